"""F densities of log-distances on grids of their parameters, tabulated and interpolated.

A log-distance is ``location + log F(k, nu)``, see `densities`. Tables are over log-distances
relative to the median one of different components.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import betaln, polygamma

from klfusion._utils.arrays import TINY, FloatArray, IntArray

# Degrees of freedom (k, nu) of log-distances between copies of one component, equally likely.
_SAME = np.array(
    [(k, nu) for k in (2, 5, 10, 40) for nu in (8, 300)]
    + [(20, 30), (100, 30), (100, 1000), (400, 100), (400, 3000), (2000, 3000)],
    dtype=np.float64,
)
# The same of different components. Few directions mean that some lie near by chance.
_DIFFERENT = np.array(
    [(k, nu) for k in (1, 2, 3, 5, 8, 13, 21, 34, 55, 150, 500, 2000) for nu in (6, 20, 100, 1000)],
    dtype=np.float64,
)
_STEP, _HIGH = 0.025, 4.0  # of the tabulated log-distances
LOWEST = -12.0  # log-distance over that of different components; what is nearer counts as that
TABULATED: FloatArray = np.arange(LOWEST, _HIGH + 0.5 * _STEP, _STEP)
NEVER = -1e4  # log-density that stands for none, finite to be interpolated
_LOG_2 = float(np.log(2.0))
_NO_MORE = -0.5 * float(np.log(TINY))  # nats; what is so much less changes no sum


def log_f(y: FloatArray, location: FloatArray, k: FloatArray, nu: FloatArray) -> FloatArray:
    """Log-densities of the logarithms of F variates, each moved by its location, (y, k)."""
    ratio = np.log(k / nu) - location
    tail = np.exp(y)[:, None] * np.exp(ratio)
    np.log1p(tail, out=tail)
    tail *= 0.5 * (k + nu)
    out = y[:, None] * (0.5 * k)
    out += 0.5 * k * ratio - betaln(0.5 * k, 0.5 * nu)
    out -= tail
    return np.asarray(out)


def logaddexp(
    a: FloatArray,
    b: FloatArray,
    out: FloatArray | None = None,
    room: FloatArray | None = None,
) -> FloatArray:
    """`numpy.logaddexp`, five times as fast, of numbers of which the larger is finite."""
    smaller = np.minimum(a, b, out=room)
    larger = np.maximum(a, b, out=out)
    smaller -= larger
    _without_underflow(smaller)
    larger += np.log1p(np.exp(smaller, out=smaller), out=smaller)
    return np.asarray(larger)


def log_sum(x: FloatArray) -> FloatArray:
    """`scipy.special.logsumexp` of finite numbers over the last axis; overwrites them."""
    largest = x.max(axis=-1)
    x -= largest[..., None]
    _without_underflow(x)
    return np.asarray(largest + np.log(np.exp(x, out=x).sum(axis=-1)))


def _without_underflow(x: FloatArray) -> None:
    """Raise exponents that change no sum; underflow takes several times as long."""
    np.clip(x, -_NO_MORE, 0.0, out=x)  # takes less time than the maximum with a number


def exp_of_less(x: FloatArray) -> FloatArray:
    """``exp(-|x|)``, which overwrites the numbers."""
    np.negative(np.abs(x, out=x), out=x)
    _without_underflow(x)
    return np.exp(x, out=x)


def _deviation(k: FloatArray, nu: FloatArray) -> FloatArray:
    """Standard deviation of the logarithm of an F variate."""
    return np.asarray(np.sqrt(polygamma(1, 0.5 * k) + polygamma(1, 0.5 * nu)))


def places_of(y: FloatArray) -> tuple[IntArray, FloatArray]:
    """The entry of `TABULATED` below each log-distance, and the share of the way to the next."""
    place = (np.maximum(np.fmin(y, _HIGH), LOWEST) - LOWEST) / _STEP  # NaN is far
    low: IntArray = np.minimum(place.astype(np.intp), len(TABULATED) - 2)
    return low, place - low


def at_places(table: FloatArray, places: tuple[IntArray, FloatArray]) -> FloatArray:
    """Linear interpolation of a table over `TABULATED`, (..., columns of the table)."""
    low, share = places
    share = share.reshape(*low.shape, *[1] * (table.ndim - 1))
    below, above = np.take(table, low, axis=0), np.take(table, low + 1, axis=0)
    return np.asarray(below * (1.0 - share) + above * share)


def interpolate(
    table: FloatArray, places: tuple[IntArray, FloatArray], out: FloatArray, room: FloatArray
) -> None:
    """`at_places` of a table (y, columns) written to ``out``, (m, columns)."""
    low, share = places[0], places[1][:, None]
    np.take(table, low, axis=0, out=out, mode="clip")  # else it would be buffered
    out *= 1.0 - share
    np.take(table, low + 1, axis=0, out=room, mode="clip")
    room *= share
    out += room


@lru_cache(maxsize=1)
def different_grid() -> tuple[FloatArray, FloatArray, FloatArray]:
    """Degrees of freedom and locations of the grid of `Different`, for one observation."""
    shift = np.linspace(-3.0, 3.0, 9)
    k, nu = (np.repeat(column, len(shift)) for column in _DIFFERENT.T)
    return k, nu, np.tile(shift, len(_DIFFERENT)) * _deviation(k, nu)


@lru_cache(maxsize=1)
def _same_points() -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Degrees of freedom, locations and log-prior of the grid of `Same`."""
    steps = np.minimum(1.6 * _deviation(*_SAME.T), 0.5)
    below = [np.arange(0.1, -LOWEST, step) for step in steps]
    sizes = [len(one) for one in below]
    k, nu = (np.repeat(column, sizes) for column in _SAME.T)
    prior = -np.log(np.repeat(sizes, sizes) * len(_SAME))
    return k, nu, -np.concatenate(below), prior


class Grid(NamedTuple):
    """Points of the grid of `Same` whose location is possible."""

    location: FloatArray
    prior: FloatArray
    density: FloatArray  # log-densities, (y, grid)
    outlier: FloatArray  # the same of outliers


@lru_cache(maxsize=4)
def same_grid(lowest: float) -> Grid:
    """The points whose location is not below ``lowest``."""
    k, nu, location, prior = (own[_same_points()[2] >= lowest] for own in _same_points())
    outside = (TABULATED[:, None] <= location) | (TABULATED[:, None] >= 0)
    outlier = np.where(outside, NEVER, -np.log(-location))
    return Grid(location, prior, log_f(TABULATED, location, k, nu), outlier)


@lru_cache(maxsize=4)
def outliers_beside(lowest: float) -> FloatArray:
    """Log-densities of outliers over those of these points, (y, grid)."""
    grid = same_grid(lowest)
    return grid.outlier - grid.density


@lru_cache(maxsize=4)
def same_densities(lowest: float) -> tuple[FloatArray, FloatArray]:
    """Densities of these points, and of outliers, (y, grid)."""
    grid = same_grid(lowest)
    return np.exp(grid.density), np.exp(grid.outlier)


def _within_grid(noise: float, nearest: float) -> tuple[float, float]:
    """The relative location of noise, and the lowest that *same* may have."""
    location = _same_points()[2]
    at, low = np.clip([noise, min(noise, nearest)], location.min(), location.max())
    return float(at), float(low) - 0.5


def lowest_location(noise: float, nearest: float) -> float:
    """The lowest relative location that *same* may have, rounded down so that few grids are made.

    Given the log-distances of noise and of the nearest components, see `grid_prior`.
    """
    return math.floor(2.0 * _within_grid(noise, nearest)[1]) / 2.0


def grid_prior(noise: float, nearest: float) -> FloatArray:
    """Log-prior of the grid: half for the location of noise, half for any up to *different*.

    ``noise`` is the relative log-distance of two estimates of one component, without variation.
    *Same* lies no nearer than that, unless the ``nearest`` components do.
    """
    at, low = _within_grid(noise, nearest)
    grid = same_grid(lowest_location(noise, nearest))
    some = np.abs(grid.location - at) <= 0.5, grid.location >= low
    parts = [grid.prior - log_sum(grid.prior[own]) + np.where(own, 0.0, NEVER) for own in some]
    return np.asarray(np.logaddexp(*parts) - _LOG_2)
