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
        try:
            return super().__getitem__(self._names.index(key) if isinstance(key, str) else key)
        except (IndexError, ValueError) as error:
            known = f"expected a silo of {few(self._names)}, or a position up to {len(self) - 1}"
            raise KLFusionError(f"{known}, got {key!r}") from error

    def __contains__(self, key: object) -> bool:
        """Whether a silo has this name."""
        return key in self._names

    def keys(self) -> tuple[str, ...]:
        """Names of silos."""
        return self._names

    def values(self) -> tuple[_Array, ...]:
        """Their arrays."""
        return tuple(self)

    def items(self) -> Iterable[tuple[str, _Array]]:
        """Names of silos and their arrays."""
        return zip(self._names, self, strict=True)
