"""A structure that is being checked, with clear errors about its arrays and settings."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Never

from klfusion._utils.arrays import FloatArray
from klfusion._utils.checks import is_number
from klfusion._utils.text import brief
from klfusion.errors import InvalidPosteriorError
from klfusion.families import Family
from klfusion.posteriors.structure.structure import Structure

Seen = dict[tuple[str, str, int], Any]  # by kind, key and identity of what an info has

_LISTS, _LONG = (list, tuple), (list, tuple, dict)
_FEW = 64  # numbers, of which Python finds the lowest sooner than numpy; short entries


class Checked:
    """One structure of ``n`` components, with the errors that its checks raise."""

    def __init__(
        self, structure: Structure, family: Family, n: int, where: str, seen: Seen | None = None
    ) -> None:
        self.seen = {} if seen is None else seen
        self.arrays, self.info = structure.arrays, structure.info
        self.kind, self.family, self.n, self.where = structure.kind, family, n, where

    def refuse(self, key: str, expected: str, got: object) -> Never:
        """Raise an error about an array or a setting."""
        found = got if isinstance(got, str) else brief(got)
        raise InvalidPosteriorError(
            f"{self.where}: expected {self.kind}.{key} to be {expected}, got {found}"
        )

    def array(self, key: str, shape: tuple[int, ...], *, above: bool = False) -> FloatArray:
        """An array of numbers >= 0, or > 0 if ``above``."""
        found = self.shaped(key, shape)
        lowest = _lowest(found)
        if not (lowest > 0 if above else lowest >= 0):
            self.refuse(key, f"numbers {'>' if above else '>='} 0", f"{lowest:.6g}")
        return found

    def shaped(self, key: str, shape: tuple[int, ...]) -> FloatArray:
        """An array of this shape."""
        if key not in self.arrays:
            self.refuse(key, f"an array of shape {shape}", "none")
        if self.arrays[key].shape != shape:
            self.refuse(key, f"of shape {shape}", f"{self.arrays[key].shape}")
        return self.arrays[key]

    def pseudo_counts(self, key: str, shape: tuple[int, ...]) -> None:
        """An array >= 0 with a positive number in each row."""
        found = self.array(key, shape)
        if not (_lowest(found) > 0 or (found.max(axis=-1) > 0).all()):
            self.refuse(key, "pseudo-counts, some of them > 0", "zeros alone")

    def setting(self, key: str, valid: Callable[[Any], bool], expected: str) -> Any:
        """An entry of ``info``."""
        value = self.info.get(key)
        if not (valid(value) if value is None else self.once(key, valid)):
            self.refuse(key, expected, value)
        return value

    def once(self, key: str, check: Callable[[Any], Any]) -> Any:
        """What a check says about an entry of ``info``, on which alone it depends.

        A long entry is asked once: a file may have many structures around one ``info``.
        """
        value = self.info.get(key)
        if not isinstance(value, _LONG) or len(value) < _FEW:
            return check(value)
        place = self.kind, key, id(value)
        if place not in self.seen:
            self.seen[place] = check(value)
        return self.seen[place]


def _lowest(numbers: FloatArray) -> float:
    if numbers.size < _FEW:
        return min(numbers.ravel().tolist(), default=math.inf)
    return float(numbers.min())


def are_values(value: Any, kind: Any) -> bool:
    """Whether there is nothing, or a mapping to such values, which are finite."""
    if value is None:
        return True
    return isinstance(value, Mapping) and all(
        isinstance(v, kind) and (isinstance(v, str) or math.isfinite(v)) for v in value.values()
    )


def is_positive(value: Any) -> bool:
    """Whether it is a finite number > 0."""
    return is_number(value) and 0 < value < math.inf


def are_texts(value: Any) -> bool:
    """Whether it is a list of texts."""
    if not isinstance(value, _LISTS):
        return False
    return {*map(type, value)} <= {str} or all(isinstance(one, str) for one in value)
