"""A site's rows from a file, for an audit there."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion._utils.text import few
from klfusion.errors import KLFusionError


class Columns:
    """Rows with names of columns, as much of a frame as adapters read."""

    def __init__(self, values: FloatArray, columns: list[str]) -> None:
        self.values, self.columns = values, columns

    def __array__(self, dtype: object = None, copy: object = None) -> FloatArray:
        """The rows (n, d)."""
        return self.values

    def __getitem__(self, names: list[str]) -> Columns:
        """Some columns, in this order."""
        return Columns(self.values[:, [self.columns.index(n) for n in names]], names)


def read(path: Path, outcome: str) -> tuple[Columns, FloatArray]:
    """Columns and the outcome of a CSV file of numbers."""
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            names, *rows = csv.reader(stream)
        values = np.array([[float(cell) for cell in row] for row in rows])
    except (OSError, ValueError) as error:
        raise KLFusionError(f"{path}: expected a table of numbers with names ({error})") from error
    if outcome not in names or values.ndim != 2 or values.shape[1] != len(names):
        raise KLFusionError(f"{path}: expected a column {outcome!r}, got {few(names)}")
    rest = [name for name in names if name != outcome]
    return Columns(values, names)[rest], values[:, names.index(outcome)]
