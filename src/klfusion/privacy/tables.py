"""A site's rows from a file, for an audit there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion._utils.text import few
from klfusion.errors import KLFusionError
from klfusion.io.table import Table


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


def read(
    path: Path, outcome: str, wanted: Sequence[str] | None, *, words: bool = True
) -> tuple[Columns, Any]:
    """The columns that are wanted, or all others, and the outcome, of a CSV file.

    With ``words``, an outcome that is no number is one of classes.
    """
    given = Table.read(path)
    if outcome not in given.names:
        raise KLFusionError(
            f"{path}: expected a column {outcome!r}, the outcome, got {few(given.names)}: "
            "see --outcome"
        )
    kept = [*wanted] if wanted is not None else [name for name in given.names if name != outcome]
    missing = [name for name in kept if name not in given.names]
    if missing:
        raise KLFusionError(
            f"{path}: expected the columns of the model, got none named {few(missing)}"
        )
    values = given.numbers(kept)
    try:
        y: Any = given.numbers([outcome])[:, 0]
    except KLFusionError:
        if not words:
            raise
        y = np.array(given.cells(outcome))
    return Columns(values, kept), y
