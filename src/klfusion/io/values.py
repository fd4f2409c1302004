"""Numbers and JSON values in files; values that would change on reading are refused."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from klfusion.errors import KLFusionError


def as_array(name: str, values: ArrayLike, *, integers: bool = False) -> NDArray[Any]:
    """Convert an array to the dtype of the file; refuse if a number would change."""
    given = np.asarray(values)
    if given.dtype.kind not in "biuf":
        raise KLFusionError(f"{name}: expected an array of numbers, got {given.dtype}")
    with np.errstate(all="ignore"):
        array = given.astype(np.int64 if integers else np.float64, order="C", copy=False)
        back = array.astype(given.dtype, copy=False)
    if back is not given and not np.array_equal(back, given, equal_nan=True):
        raise KLFusionError(f"{name}: expected numbers that {array.dtype} can hold")
    return array


def plain(value: Any, where: str) -> Any:
    """Convert to JSON values: numpy scalars and arrays to Python, tuples to lists."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, where) for item in value]
    raise KLFusionError(
        f"{where}: expected JSON values, which are finite numbers, text, lists, and mappings with "
        f"text keys, got {reprlib.repr(value)}"
    )


def to_json(number: float) -> float | str:
    """A finite number, or the name of one that JSON lacks."""
    return float(number) if math.isfinite(number) else str(float(number))
