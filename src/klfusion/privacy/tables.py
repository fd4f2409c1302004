"""A site's rows from a file, for an audit there."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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


def read(path: Path, outcome: str, wanted: Sequence[str] | None) -> tuple[Columns, Any]:
    """The columns that are wanted, or all others, and the outcome, of a CSV file."""
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            lines = list(csv.reader(stream))
    except (OSError, ValueError) as error:
        raise KLFusionError(f"{path}: expected a table, CSV ({error})") from error
    if len(lines) < 2:
        raise KLFusionError(f"{path}: expected a line of names, and rows, got {len(lines)} lines")
    names, *rows = lines
    if outcome not in names:
        raise KLFusionError(
            f"{path}: expected a column {outcome!r}, the outcome, got {few(names)}: see --outcome"
        )
    kept = [*wanted] if wanted is not None else [name for name in names if name != outcome]
    missing = [name for name in kept if name not in names]
    if missing:
        raise KLFusionError(
            f"{path}: expected the columns of the model, got none named {few(missing)}"
        )
    for number, row in enumerate(rows, 2):
        if len(row) != len(names):
            raise KLFusionError(
                f"{path}, line {number}: expected {len(names)} cells, got {len(row)}"
            )
    columns = [_numbers(path, rows, names.index(name), name) for name in kept]
    try:
        y: Any = _numbers(path, rows, names.index(outcome), outcome)
    except KLFusionError:  # classes may be words
        y = np.array([row[names.index(outcome)] for row in rows])
    return Columns(np.column_stack(columns), kept), y


def _numbers(path: Path, rows: list[list[str]], place: int, name: str) -> FloatArray:
    found = np.zeros(len(rows))
    for number, row in enumerate(rows):
        try:
            found[number] = float(row[place])
        except ValueError as error:
            raise KLFusionError(
                f"{path}, line {number + 2}: expected a number in column {name!r}, got "
                f"{row[place]!r}"
            ) from error
    return found
