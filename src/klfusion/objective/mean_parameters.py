"""From mean parameters ``mu = grad A(eta)`` back to natural ones.

Few families have a closed inverse. Newton's method on the convex ``A(eta) - <mu, eta>`` serves all,
a user's own included. Its matrix is the derivative of the mean map by finite differences; their
errors slow the method down but do not move its limit.
"""

from functools import singledispatch

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.errors import KLFusionError
from klfusion.families import Categorical, DiagonalNormal, Family, Normal
from klfusion.families.triangles import unpack

_MOST_PARAMETERS = 1500  # of one distribution: a step takes time in proportion to the cube
_DIFFERENCE = 1e-6  # relative step of finite differences, about the cube root of rounding
_MAX_STEPS = 200
_NEAR = 0.1  # Newton decrement below which full steps are safe
_DONE = 1e-22  # Newton decrement: squared step in standard deviations of the statistics
_ROUNDING = 1e-10  # Newton decrement below which an increase is rounding


@singledispatch
def natural_from_mean(family: Family, mean: FloatArray, start: FloatArray) -> FloatArray:
    """The natural parameters, (p,), of the distribution with these mean parameters, (p,).

    These are within the range of the mean map, as every average of mean parameters is.
    """
    check_size(family)
    eta, best, shortest = start, start, np.inf
    for _ in range(_MAX_STEPS):
        residual = family.mean(eta[None])[0] - mean
        step = scaled_step(derivative(family, eta), residual)
        decrement = float(residual @ step)
        if 0.0 <= decrement < shortest:
            best, shortest = eta, decrement
        elif shortest < _ROUNDING:
            return best
        if 0.0 <= decrement <= _DONE:
            return best
        length = 1.0 if abs(decrement) < _NEAR else 1.0 / (1.0 + np.sqrt(abs(decrement)))
        while not family.in_domain((eta - length * step)[None]):
            length /= 2.0
        eta = eta - length * step
    raise KLFusionError(f"{family}: no distribution with these means in {_MAX_STEPS} steps")


@natural_from_mean.register
def _(family: DiagonalNormal, mean: FloatArray, start: FloatArray) -> FloatArray:
    first, half_square = mean[: family.dim], mean[family.dim :]
    return np.asarray(family.natural(first[None], (-2.0 * half_square - first**2)[None])[0])


@natural_from_mean.register
def _(family: Normal, mean: FloatArray, start: FloatArray) -> FloatArray:
    first = mean[: family.dim]
    second = -2.0 * unpack(mean[family.dim :], family.dim)
    return np.asarray(family.natural(first[None], (second - np.outer(first, first))[None])[0])


@natural_from_mean.register
def _(family: Categorical, mean: FloatArray, start: FloatArray) -> FloatArray:
    return np.asarray(family.natural(mean[None])[0])


def check_size(family: Family) -> None:
    """Refuse families with too many parameters for a matrix of them."""
    if family.size > _MOST_PARAMETERS:
        raise KLFusionError(
            f"expected at most {_MOST_PARAMETERS} parameters of a distribution, for a barycenter "
            f"that is not an average, got {family.size} in {family}"
        )


def scaled_step(curvature: FloatArray, gradient: FloatArray) -> FloatArray:
    """``pinv(curvature) gradient``: no step along directions without curvature."""
    return np.asarray(np.linalg.lstsq(curvature, gradient, rcond=1e-14)[0])


def derivative(family: Family, eta: FloatArray) -> FloatArray:
    """The derivative of the mean map at ``eta``, (p, p), by central differences."""
    h = _DIFFERENCE * np.maximum(np.abs(eta), 1e-3 * np.abs(eta).max(initial=1e-3))
    while not family.in_domain(np.concatenate([eta + np.diag(h), eta - np.diag(h)])):
        h = h / 2.0
    up, down = family.mean(eta + np.diag(h)), family.mean(eta - np.diag(h))
    matrix = (up - down) / (2.0 * h)[:, None]
    return np.asarray(0.5 * (matrix + matrix.T))
