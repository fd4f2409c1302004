"""`BySilo`: one array per silo, by position or name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, SupportsIndex, TypeVar, overload

from numpy.typing import NDArray

from klfusion._utils.text import few
from klfusion.errors import KLFusionError

_Array = TypeVar("_Array", bound=NDArray[Any])


class BySilo(tuple[_Array, ...]):
    """One array per silo, in the order of the silos; a silo's name works as an index, too."""

    _names: tuple[str, ...]

    def __new__(cls, arrays: Iterable[_Array], names: Iterable[str]) -> BySilo[_Array]:
        """Name the arrays."""
        made = super().__new__(cls, tuple(arrays))
        made._names = tuple(names)
        return made

    @overload
    def __getitem__(self, key: SupportsIndex | str, /) -> _Array: ...
    @overload
    def __getitem__(self, key: slice, /) -> tuple[_Array, ...]: ...
    def __getitem__(self, key: SupportsIndex | slice | str, /) -> _Array | tuple[_Array, ...]:
        """An array by position or by the silo's name; several by a slice."""
        if not isinstance(key, str):
            return super().__getitem__(key)
        if key not in self._names:
            raise KLFusionError(f"expected a silo of {few(self._names)}, got {key!r}")
        return super().__getitem__(self._names.index(key))
