"""`BySilo`: one array per silo, by position or name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Self, SupportsIndex, TypeVar, cast, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from klfusion._utils.arrays import IntArray
from klfusion._utils.text import brief, few
from klfusion.errors import KLFusionError

_Array = TypeVar("_Array", bound=NDArray[Any])


class BySilo(Sequence[_Array]):
    """One array per silo, in the order of the silos; a silo's name works as an index, too.

    All are views of one array: a hundred thousand silos take no hundred thousand arrays.
    """

    _flat: _Array
    _edges: IntArray
    _names: tuple[str, ...]

    def __init__(self, arrays: Iterable[ArrayLike], names: Iterable[str]) -> None:
        """Name the arrays."""
        if isinstance(arrays, BySilo):
            self._flat, self._edges = arrays._flat, arrays._edges
        else:
            try:
                each = [np.asarray(array) for array in arrays]
                self._flat = cast(_Array, np.concatenate(each) if each else np.empty(0))
            except (TypeError, ValueError) as error:
                raise KLFusionError(f"expected one array per silo ({error})") from error
            self._edges = np.cumsum([0, *map(len, each)])
        if not isinstance(names, Iterable):
            raise KLFusionError(f"expected names of silos, got {brief(names)}")
        self._names = tuple(names)

    @classmethod
    def of(cls, flat: _Array, edges: IntArray, names: Iterable[str]) -> Self:
        """The arrays that lie between edges of one array."""
        made = cls((), names)
        made._flat, made._edges = flat, edges
        return made

    @overload
    def __getitem__(self, key: SupportsIndex | str, /) -> _Array: ...
    @overload
    def __getitem__(self, key: slice, /) -> tuple[_Array, ...]: ...
    def __getitem__(self, key: SupportsIndex | slice | str, /) -> _Array | tuple[_Array, ...]:
        """An array by position or by the silo's name; several by a slice."""
        try:
            at = self._names.index(key) if isinstance(key, str) else key
            if isinstance(at, slice):
                return tuple(self._between(j) for j in range(len(self))[at])
            return self._between(range(len(self))[at])
        except (IndexError, TypeError, ValueError) as error:
            known = f"expected a silo of {few(self._names)}, or a position up to {len(self) - 1}"
            raise KLFusionError(f"{known}, got {brief(key)}") from error

    def _between(self, j: int) -> _Array:
        return cast(_Array, self._flat[self._edges[j] : self._edges[j + 1]])

    def __len__(self) -> int:
        return len(self._edges) - 1

    def __iter__(self) -> Iterator[_Array]:
        for low, high in pairwise(self._edges.tolist()):
            yield cast(_Array, self._flat[low:high])

    def __contains__(self, key: object) -> bool:
        """Whether a silo has this name."""
        return key in self._names

    def __repr__(self) -> str:
        return repr(tuple(self))

    def keys(self) -> tuple[str, ...]:
        """Names of silos."""
        return self._names

    def values(self) -> tuple[_Array, ...]:
        """Their arrays."""
        return tuple(self)

    def items(self) -> Iterable[tuple[str, _Array]]:
        """Names of silos and their arrays."""
        return zip(self._names, self, strict=True)
