"""Parameters as users give them: checked, and stacked in columns."""

import math
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.errors import InvalidPosteriorError, KLFusionError

_EPSILON = float(np.finfo(np.float64).eps)
_MAX_LOSS = 1e-3  # share of the scatter that rounding may change


def numbers(value: Any, name: str) -> FloatArray:
    """A parameter as a float64 array."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise KLFusionError(f"{name}: expected an array of numbers ({error})") from error


def rows(value: Any, dim: int, name: str, *, shared: bool = False) -> FloatArray:
    """A parameter given as ``(n, dim)``; ``(n,)`` if ``dim`` is 1 or it may be ``shared``."""
    array = numbers(value, name)
    if array.ndim == 1 and (dim == 1 or shared):
        array = np.repeat(array[:, None], dim, axis=1)
    if array.ndim != 2 or array.shape[1] != dim:
        raise KLFusionError(f"{name}: expected shape (n, {dim}), got {np.shape(value)}")
    return array


def stack(*columns: FloatArray) -> FloatArray:
    """Parameter blocks side by side; refuses batches of different length."""
    if len({len(c) for c in columns}) != 1:
        raise KLFusionError(
            f"parameters describe different numbers of components: {[len(c) for c in columns]}"
        )
    return np.concatenate([c.reshape(len(c), math.prod(c.shape[1:])) for c in columns], axis=1)


def geometric_mean(columns: FloatArray) -> FloatArray:
    """Of each row, ``(n, k) -> (n,)``."""
    return np.asarray(np.exp(np.log(columns).mean(axis=1)))


def check_offset(mean: FloatArray, kappa: FloatArray, scatter: FloatArray) -> None:
    """Refuse means so far from the origin that rounding of ``kappa mean^2`` exceeds the scatter."""
    with np.errstate(over="ignore"):  # infinite: all is lost
        offset = kappa * mean**2
    lost = (scatter > 0) & (_EPSILON * offset > _MAX_LOSS * scatter)
    if lost.any():
        component, dimension = np.argwhere(lost)[0]
        raise InvalidPosteriorError(
            f"component {component}: the mean in dimension {dimension} lies so far from the "
            "origin, compared with the spread, that float64 cannot hold both: "
            "subtract a common offset from the data at every silo"
        )
