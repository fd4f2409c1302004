"""`Column`: one column of a `Schema`, with its kind, categories, unit and reference range."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from klfusion._utils.arrays import FloatArray
from klfusion._utils.checks import is_number
from klfusion._utils.text import brief, few
from klfusion.errors import KLFusionError
from klfusion.learners._cells import Category, is_missing, numbers, plain

CONTINUOUS, SEMICONTINUOUS, COUNTS = "continuous", "semicontinuous", "counts"
BINARY, CATEGORICAL, ORDERED = "binary", "categorical", "ordered"
KINDS = (CONTINUOUS, SEMICONTINUOUS, BINARY, CATEGORICAL, COUNTS, ORDERED)
NUMERIC = (CONTINUOUS, SEMICONTINUOUS, COUNTS)


@dataclass(frozen=True)
class Column:
    """One column of a `Schema`.

    Parameters
    ----------
    name : str
    kind : {"continuous", "semicontinuous", "binary", "categorical", "counts", "ordered"}
        A semicontinuous column has one value that many rows share, such as a dose of zero, and
        else continuous ones.
    reference : (low, high), optional
        Of numbers: the range that holds most values. Priors have its centre and its width. Of a
        semicontinuous column it is that of the other values.
    categories : sequence, optional
        The values of a binary, categorical or ordered column; of the last two or more, in order.
    unit : str, optional
    block : str, optional
        Continuous columns of one block have a full covariance within a component. A row counts in
        a block where all cells of it are measured.
    point_mass : float, optional
        The shared value of a semicontinuous column; 0 unless given.
    log : bool
        Whether the logarithm of a continuous or semicontinuous column is Normal within a component,
        as for skewed columns. Its values are positive, but for a shared one.

    Examples
    --------
    >>> import klfusion as kf
    >>> kf.learners.Column("pressure", "continuous", reference=(90, 140), unit="mmHg").scale
    12.755102040816327
    >>> kf.learners.Column("dose", "semicontinuous", reference=(10, 40), unit="mg").point_mass
    0.0
    """

    name: str
    kind: str
    reference: tuple[float, float] | None = None
    categories: tuple[Category, ...] = ()
    unit: str | None = None
    block: str | None = None
    point_mass: float | None = None
    log: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise KLFusionError(f"expected the name of a column as text, got {brief(self.name)}")
        where = f"column {self.name!r}"
        if not isinstance(self.kind, str) or self.kind not in KINDS:
            got = f"got {brief(self.kind)}"
            raise KLFusionError(f"{where}: expected a kind of {', '.join(KINDS)}, {got}")
        if self.unit is not None and not isinstance(self.unit, str):
            raise KLFusionError(f"{where}: expected the unit as text, got {brief(self.unit)}")
        if self.block is not None and (self.kind != CONTINUOUS or not isinstance(self.block, str)):
            expected = "expected the name of a block of continuous columns"
            raise KLFusionError(f"{where}: {expected}, got {brief(self.block)}")
        object.__setattr__(self, "point_mass", self._checked_point_mass(where))
        if self.is_numeric:
            object.__setattr__(self, "reference", _range(self.reference, where))
            self._check_log(where)
            if self.categories:
                raise KLFusionError(f"{where}: expected no categories of a {self.kind} column")
            return
        self._check_log(where)
        categories = tuple(map(plain, self.categories))
        least = "two" if self.kind == BINARY else "two or more"
        unique = len(set(categories)) == len(categories)
        if len(categories) < 2 or not unique or (self.kind == BINARY and len(categories) > 2):
            got = f"got {brief(list(categories))}"
            raise KLFusionError(f"{where}: expected {least} different categories, {got}")
        object.__setattr__(self, "categories", categories)

    def _checked_point_mass(self, where: str) -> float | None:
        given = self.point_mass
        if self.kind != SEMICONTINUOUS:
            if given is not None:
                raise KLFusionError(f"{where}: expected no point mass of a {self.kind} column")
            return None
        if given is None:
            return 0.0
        if not is_number(given) or not math.isfinite(given):
            raise KLFusionError(f"{where}: expected a finite point mass, got {brief(given)}")
        return float(given)

    def _check_log(self, where: str) -> None:
        if not isinstance(self.log, bool):
            raise KLFusionError(f"{where}: expected log to be True or False, got {brief(self.log)}")
        if self.log and self.kind not in (CONTINUOUS, SEMICONTINUOUS):
            raise KLFusionError(f"{where}: expected no logarithm of a {self.kind} column")
        if self.log and self.reference is not None and self.reference[0] <= 0:
            expected = "expected a positive reference range, for its logarithm"
            raise KLFusionError(f"{where}: {expected}, got {self.reference}")

    @property
    def is_numeric(self) -> bool:
        """Whether its values are numbers, not categories."""
        return self.kind in NUMERIC

    @property
    def centre(self) -> float:
        """The middle of the reference range; of a logarithm, that of its range."""
        low, high = self._fitted_range
        return 0.5 * (low + high)

    @property
    def scale(self) -> float:
        """The standard deviation of a Normal with 95 % of it in the reference range."""
        low, high = self._fitted_range
        return (high - low) / (2.0 * 1.96)

    @property
    def _fitted_range(self) -> tuple[float, float]:
        assert self.reference is not None
        low, high = self.reference
        return (math.log(low), math.log(high)) if self.log else (low, high)

    @cached_property
    def expanded(self) -> tuple[Column, ...]:
        """The columns that are fitted: of a semicontinuous one, whether and how much."""
        if self.point_mass is None:
            return (self,)
        value = f"{self.point_mass:g}"
        others = f"{self.name} other than {value}"
        return (
            Column(f"{self.name} is {value}", BINARY, categories=("yes", "no")),
            Column(others, CONTINUOUS, self.reference, unit=self.unit, log=self.log),
        )

    def expand(self, values: FloatArray) -> FloatArray:
        """Values of the columns `expanded`, (n, 1 or 2), from what `encoded` gives."""
        at = values == self.point_mass
        others = np.where(at, np.nan, values)
        others = np.log(others) if self.log else others
        if self.point_mass is None:
            return others[:, None]
        whether = np.where(np.isnan(values), np.nan, np.where(at, 0.0, 1.0))
        return np.column_stack([whether, others])

    def in_units(self, fitted: FloatArray) -> FloatArray:
        """Values of a column of numbers from fitted ones, which may be logarithms."""
        return np.exp(fitted) if self.log else fitted

    @property
    def label(self) -> str:
        """The name with its unit."""
        return self.name if self.unit is None else f"{self.name} ({self.unit})"

    def encoded(self, values: NDArray[Any]) -> FloatArray:
        """Numbers, or positions of categories, (n,); NaN where a value is missing."""
        where = f"column {self.name!r}"
        if self.is_numeric:
            out = numbers(values, where)
            bad = np.isinf(out)
            expected = "finite numbers"
            if self.kind == COUNTS:
                expected = "whole numbers >= 0"
                with np.errstate(invalid="ignore"):
                    bad |= (out < 0) | (out != np.rint(out)) & ~np.isnan(out)
            elif self.log:
                expected = "positive numbers, for log=True in the schema"
                bad |= (out <= 0) & (out != self.point_mass)
            if bad.any():
                row = int(np.flatnonzero(bad)[0])
                raise KLFusionError(f"{where}, row {row}: expected {expected}, got {out[row]:g}")
            return out
        place = {category: float(k) for k, category in enumerate(self.categories)}
        out = np.full(len(values), np.nan)
        for row, value in enumerate(values.tolist()):
            if not is_missing(value):
                try:
                    out[row] = place[value]
                except (KeyError, TypeError):
                    known = few(self.categories)
                    expected = f"expected one of {known}, as in the schema"
                    message = f"{where}, row {row}: {expected}, got {brief(value)}"
                    raise KLFusionError(message) from None
        return out

    def decoded(self, values: FloatArray) -> NDArray[Any]:
        """Values of the column from what `encoded` gives; NaN stays."""
        if self.is_numeric:
            return values
        table = np.array([*self.categories, np.nan], dtype=object)
        return np.asarray(table[np.where(np.isnan(values), len(table) - 1, values).astype(int)])


def _range(given: Any, where: str) -> tuple[float, float]:
    try:
        low, high = (float(value) for value in given)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        got = brief(given)
        raise KLFusionError(f"{where}: expected a reference range (low, high), got {got}")
    return low, high
