"""Cells of data frames, mappings and arrays: which are missing, and plain values of the others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from klfusion._utils.arrays import FloatArray
from klfusion._utils.text import brief, few
from klfusion.errors import KLFusionError

Category = str | int | float | bool


def plain(value: Any) -> Category:
    """A category as a plain Python value."""
    own = value.item() if isinstance(value, np.generic) else value
    if not isinstance(own, str | int | float | bool) or (
        isinstance(own, float) and math.isnan(own)
    ):
        raise KLFusionError(f"expected categories that are text or numbers, got {brief(value)}")
    return str(own) if isinstance(own, str) else own


def is_missing(value: Any) -> bool:
    """Whether a cell is None, NaN, or pandas' NA or NaT."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and math.isnan(value)


def numbers(values: NDArray[Any], where: str) -> FloatArray:
    """A column as numbers, NaN for missing cells."""
    if values.dtype.kind in "fiub":
        return values.astype(np.float64)
    cells = [math.nan if is_missing(v) else v for v in values.tolist()]
    for row, cell in enumerate(cells):
        if not isinstance(cell, int | float):
            raise KLFusionError(f"{where}, row {row}: expected a number, got {brief(cell)}")
    return np.array(cells, dtype=np.float64)


def columns_of(data: Any) -> dict[str, Any] | None:
    """The columns of a frame or mapping by name; None for anything else."""
    if isinstance(data, Mapping):
        for name, values in data.items():
            if isinstance(values, str) or not hasattr(values, "__len__"):
                raise KLFusionError(
                    f"column {str(name)!r}: expected a list of cells, got {brief(values)}"
                )
        return {str(name): array_of(values) for name, values in data.items()}
    if not hasattr(data, "columns"):
        return None
    names = [str(name) for name in data.columns]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise KLFusionError(f"expected columns of different names, got {few(twice)} twice")
    return {str(name): array_of(data[name]) for name in data.columns}


def array_of(series: Any) -> NDArray[Any]:
    """Numbers as they are; all else as objects, for in text NaN would be the word."""
    values = np.asarray(series)
    if values.dtype.kind in "fiub" and values.ndim == 1:
        return values
    out = np.empty(len(series), dtype=object)
    out[:] = [_python(v) for v in series]
    return out


def _python(value: Any) -> Any:
    """A cell of an object column as Python's own type, where it has one."""
    if isinstance(value, Decimal | np.floating):
        return float(value)
    return bool(value) if isinstance(value, np.bool_) else value


def levels_of(data: Any, name: str) -> tuple[list[Any], bool] | None:
    """Categories that a frame declares for a column, and whether they are in order."""
    if isinstance(data, Mapping):
        return None
    own = next(column for column in data.columns if str(column) == name)
    dtype: Any = getattr(data[own], "dtype", None)
    if not hasattr(dtype, "categories") or not hasattr(dtype, "ordered"):
        return None
    return list(dtype.categories), bool(dtype.ordered)


def check_rows(values: FloatArray) -> None:
    """Refuse a table without rows, and rows without cells."""
    if len(values) == 0:
        raise KLFusionError("expected rows, got none")
    empty = np.flatnonzero(np.isnan(values).all(axis=1))
    if len(empty):
        rows = f"{len(empty)} without any, the first is row {empty[0]}"
        raise KLFusionError(f"expected rows with measured cells, got {rows}: leave them out")


def _keep_type(frame: Any, name: str, dtype: Any) -> None:
    """A column of a frame in a type, such as that of categories, if its values fit."""
    try:
        again = frame[name].astype(dtype)
        fits = list(again) == list(frame[name])
    except (TypeError, ValueError):  # a fraction among whole numbers, say
        return
    if fits:
        frame[name] = again


def like(given: Any, found: dict[str, NDArray[Any]], values: FloatArray) -> Any:
    """The columns as the data were given: a frame, a mapping, or an array."""
    if isinstance(given, dict):
        return found
    if hasattr(given, "columns"):
        made = type(given)(found)
        if hasattr(given, "index"):
            made.index = given.index
            for name in given.columns:
                _keep_type(made, str(name), given[name].dtype)
        return made
    numeric = all(own.dtype.kind == "f" for own in found.values())
    return values if numeric else np.column_stack([own.astype(object) for own in found.values()])
