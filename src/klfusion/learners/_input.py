"""Checks of the data and settings of learners."""

from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.checks import is_number
from klfusion.errors import KLFusionError


def sequences(X: Any, lengths: Any, n_features: int | None = None) -> tuple[FloatArray, IntArray]:
    """Frames (T, d) and the length of each sequence; by default one sequence."""
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
        got = f"{x[row, column]} in frame {row}, feature {column}"
        raise KLFusionError(f"X: expected finite numbers, got {got}")
    sizes = np.array([len(x)]) if lengths is None else np.asarray(lengths)
    whole = sizes.ndim == 1 and sizes.dtype.kind in "iu"
    if not whole or sizes.min(initial=1) < 1 or sizes.sum() != len(x):
        expected = f"expected whole numbers >= 1 that add up to {len(x)} frames"
        raise KLFusionError(f"lengths: {expected}, got {lengths!r}")
    return x, sizes.astype(np.intp)


def number(value: Any, name: str, *, above: float, allow_equal: bool = False) -> float:
    """A finite number above a bound, or equal to it if allowed."""
    valid = is_number(value) and np.isfinite(value)
    if not valid or value < above or (value == above and not allow_equal):
        least = f"{'>=' if allow_equal else '>'} {above:g}"
        raise KLFusionError(f"expected {name} to be a finite number {least}, got {value!r}")
    return float(value)
