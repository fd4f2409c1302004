"""Checking what a learner of sequences was given."""

from __future__ import annotations

from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.errors import KLFusionError


def sequences(X: Any, lengths: Any, n_features: int | None = None) -> tuple[FloatArray, IntArray]:
    """Frames (T, d), and the length of each sequence; one sequence if no lengths were given."""
    try:
        x = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise KLFusionError(f"X: expected an array of numbers ({error})") from error
    if x.ndim != 2 or x.size == 0:
        raise KLFusionError(f"X: expected frames of shape (n_frames, n_features), got {x.shape}")
    if n_features is not None and x.shape[1] != n_features:
        raise KLFusionError(f"X: expected {n_features} features, as in fit, got {x.shape[1]}")
    if not np.isfinite(x).all():
        row, column = np.argwhere(~np.isfinite(x))[0]
        raise KLFusionError(
            f"X: expected finite numbers, got {x[row, column]} in frame {row}, feature {column}"
        )
    sizes = np.array([len(x)]) if lengths is None else np.asarray(lengths)
    whole = sizes.ndim == 1 and sizes.dtype.kind in "iu"
    if not whole or sizes.min(initial=1) < 1 or sizes.sum() != len(x):
        raise KLFusionError(
            f"lengths: expected whole numbers >= 1 that add up to {len(x)} frames, got {lengths!r}"
        )
    return x, sizes.astype(np.intp)


def number(value: Any, name: str, *, above: float, allow_equal: bool = False) -> float:
    """A finite number above a bound."""
    try:
        result = float(value)
    except (TypeError, ValueError) as error:
        raise KLFusionError(f"{name}: expected a number, got {value!r}") from error
    if not np.isfinite(result) or result < above or (result == above and not allow_equal):
        sign = ">=" if allow_equal else ">"
        raise KLFusionError(f"{name}: expected a finite number {sign} {above:g}, got {value!r}")
    return result


def count(value: Any, name: str) -> int:
    """A whole number, at least 1."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise KLFusionError(f"{name}: expected an integer >= 1, got {value!r}")
    return int(value)
