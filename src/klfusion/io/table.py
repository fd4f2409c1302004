"""A site's rows from a CSV file, with errors that name the line and the column."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.errors import KLFusionError

_OTHER_SEPARATORS = ";\t|"


@dataclass(frozen=True)
class Table:
    """Text cells under the names of a first line.

    Parameters
    ----------
    path : Path
    names : tuple of str
    lines : tuple of int
        Where each row ends in the file, counted from 1.
    rows : tuple of list of str
    """

    path: Path
    names: tuple[str, ...]
    lines: tuple[int, ...]
    rows: tuple[list[str], ...]

    @classmethod
    def read(cls, path: Path) -> Table:
        """A file in UTF-8 with commas; blank lines are left out."""
        try:
            with path.open(newline="", encoding="utf-8-sig") as stream:
                reader = csv.reader(stream)
                found = [(reader.line_num, row) for row in reader if row]
        except (OSError, ValueError, csv.Error) as error:
            raise KLFusionError(f"{path}: expected a table, CSV in UTF-8 ({error})") from error
        if len(found) < 2:
            raise KLFusionError(
                f"{path}: expected a line of names, and rows, got {len(found)} lines"
            )
        (_, names), *rows = found
        other = next((mark for mark in _OTHER_SEPARATORS if mark in names[0]), None)
        if len(names) == 1 and other is not None:
            raise KLFusionError(f"{path}: expected commas between columns, got {other!r}")
        for line, row in rows:
            if len(row) != len(names):
                raise KLFusionError(
                    f"{path}, line {line}: expected {len(names)} cells, got {len(row)}"
                )
        lines, cells = zip(*rows, strict=True)
        return cls(path, tuple(names), lines, cells)

    def cells(self, name: str) -> list[str]:
        """A column as text."""
        if self.names.count(name) > 1:
            raise KLFusionError(f"{self.path}: expected each column once, got {name!r} twice")
        return [row[self.names.index(name)] for row in self.rows]

    def numbers(self, names: Iterable[str]) -> FloatArray:
        """Columns of finite numbers, (n, d)."""
        return np.column_stack([self._numbers(name) for name in names])

    def _numbers(self, name: str) -> FloatArray:
        if not name.strip():
            place = self.names.index(name) + 1
            raise KLFusionError(
                f"{self.path}: expected a name for every column, got none for column {place}; "
                "pandas writes row numbers so: to_csv(..., index=False) leaves them out"
            )
        found = np.zeros(len(self.rows))
        for row, (line, cell) in enumerate(zip(self.lines, self.cells(name), strict=True)):
            try:
                found[row] = float(cell)
            except ValueError:
                found[row] = math.nan
            if not math.isfinite(found[row]):
                raise KLFusionError(
                    f"{self.path}, line {line}: expected a number in column {name!r}, got {cell!r}"
                )
        return found
