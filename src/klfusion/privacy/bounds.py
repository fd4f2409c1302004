"""Public bounds: columns in units of them, rows clipped, and what was clipped counted here only."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray
from klfusion._utils.checks import check_number, is_number
from klfusion._utils.text import brief, few
from klfusion.errors import KLFusionError


class ClippedWarning(UserWarning):
    """Rows lie outside the bounds. How many is for the site alone: no file has it."""


def warn_clipped(rows: BoolArray, where: str) -> None:
    """Say at the site how many ``rows`` (n,) were clipped, if any."""
    if rows.any():
        warnings.warn(
            f"{where}: {int(rows.sum())} of {len(rows)} rows lay outside the bounds and were "
            "clipped; the number stays here and is in no file",
            ClippedWarning,
            stacklevel=2,
        )


def shortened(rows: FloatArray, norm: float, where: str) -> FloatArray:
    """Rows of at most a Euclidean norm; a warning at the site says how many were clipped."""
    length = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    warn_clipped(length[:, 0] > norm * (1.0 + 1e-9), where)
    return np.asarray(rows * np.minimum(1.0, norm * (1.0 - 1e-12) / np.maximum(length, 1e-300)))


@dataclass(frozen=True, eq=False)
class Bounds:
    """Public bounds of columns, and of the Euclidean norm of a row in units of them.

    A column becomes ``(x - centre) / half``, from -1 to 1. The centre is zero if it lies within the
    bounds, so that a column of zeros and ones stays one; else the middle.
    """

    names: tuple[str, ...]
    low: FloatArray
    high: FloatArray
    norm: float

    @classmethod
    def of(
        cls, given: Mapping[str, Any], names: Sequence[str], norm: float | None, where: str
    ) -> Bounds:
        """Checked: a pair of numbers per column."""
        missing = [name for name in names if name not in given]
        if missing:
            raise KLFusionError(f"{where}: expected public bounds of {few(missing)}, got none")
        for name in names:
            pair = given[name]
            pair = pair.tolist() if isinstance(pair, np.ndarray) else pair
            good = isinstance(pair, tuple | list) and len(pair) == 2 and all(map(is_number, pair))
            if not (good and -math.inf < pair[0] < pair[1] < math.inf):
                expected = f"{where}: expected bounds of {name!r} as finite (low, high)"
                raise KLFusionError(f"{expected}, got {brief(pair)}")
        low, high = (np.array([float(given[name][k]) for name in names]) for k in (0, 1))
        if norm is not None:
            check_number("norm", norm)
        largest = math.sqrt(len(names))
        return cls(tuple(names), low, high, largest if norm is None else min(float(norm), largest))

    @property
    def centre(self) -> FloatArray:
        """What becomes zero."""
        zero = (self.low <= 0.0) & (self.high >= 0.0)
        return np.where(zero, 0.0, 0.5 * (self.low + self.high))

    @property
    def half(self) -> FloatArray:
        """What becomes one."""
        return np.maximum(self.high - self.centre, self.centre - self.low)

    def scaled(self, x: FloatArray, where: str) -> FloatArray:
        """Rows in units of the bounds, clipped; a warning at the site says how many were."""
        inside = np.clip(x, self.low, self.high)
        out = (inside - self.centre) / self.half
        length = np.sqrt(np.square(out).sum(axis=1, keepdims=True))
        shorter = np.minimum(1.0, self.norm * (1.0 - 1e-12) / np.maximum(length, 1e-300))
        long = length[:, 0] > self.norm * (1.0 + 1e-9)
        warn_clipped((inside != x).any(axis=1) | long, where)
        return np.asarray(out * shorter)

    def described(self) -> dict[str, Any]:
        """For the file; all of it was public before."""
        pairs = zip(self.low.tolist(), self.high.tolist(), strict=True)
        return {
            "bounds": {name: [*pair] for name, pair in zip(self.names, pairs, strict=True)},
            "norm": self.norm,
        }
