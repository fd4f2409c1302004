"""``log Gamma`` and its derivative of many numbers.

SciPy computes ``log Gamma`` and its derivative one number at a time, NumPy's logarithm many at
once. So both are Stirling's series at ``z = x + 8``, less what eight steps of the recurrence add.
The product of the steps, ``x (x + 1) ... (x + 7)``, is ``y (y + 6) (y + 10) (y + 12)`` with
``y = x (x + 7)``. Where all numbers are large the series is enough. All is computed in place, in
blocks that stay in cache.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise, product

import numpy as np
from scipy import special

from klfusion._utils.arrays import FloatArray, IntArray

_SHIFT = 8.0
_STEPS = (6.0, 10.0, 12.0)
_HALF_LOG_TWO_PI = 0.5 * float(np.log(2.0 * np.pi))
# B_2k / (2k (2k - 1)) and B_2k / 2k with Bernoulli's numbers, highest order first.
_LOG_GAMMA_SERIES = (-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
_DIGAMMA_SERIES = (-691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)
_LARGE = 100.0  # from here on two terms of the series are exact
_BLOCK = 16384  # numbers that stay in cache, with four arrays computed from them
_TOO_LARGE = 1e30  # beyond this the eight factors overflow
_SPARSE = 0.5  # share of a row off its least number below which that is computed once

_Kernel = Callable[[FloatArray, FloatArray], FloatArray]  # values of a block, with room for four


def sum_log_gamma(x: FloatArray) -> FloatArray:
    """``sum_k log Gamma(x[i, k])`` of positive numbers, ``(n, p) -> (n,)``."""
    out = np.full(len(x), x.shape[1] * _HALF_LOG_TWO_PI)
    if x.max(initial=0.0) > _TOO_LARGE:
        return np.asarray(special.gammaln(x).sum(axis=1))
    kernel = _log_gamma if x.min(initial=_LARGE) < _LARGE else _large_log_gamma
    for some, _, block, room in _by_blocks(x):
        values, off = _values(kernel, block, room)
        if off is None:
            out[some] += values.reshape(block.shape).sum(axis=1)
        else:
            out[some] += values[1:].sum() + (block.size - len(off)) * values[0]
    return out


def digamma(x: FloatArray) -> FloatArray:
    """The derivative of ``log Gamma`` at positive numbers, ``(n, p) -> (n, p)``."""
    out = np.empty(x.shape)
    if x.max(initial=0.0) > _TOO_LARGE:
        return np.asarray(special.digamma(x))
    for some, columns, block, room in _by_blocks(x):
        values, off = _values(_digamma, block, room)
        if off is None:
            out[some, columns] = values.reshape(block.shape)
        else:
            out[some, columns] = values[0]
            out[some.start, columns.start + off] = values[1:]
    return out


def _values(
    kernel: _Kernel, block: FloatArray, room: FloatArray
) -> tuple[FloatArray, IntArray | None]:
    """A function of all numbers of a block; of a sparse row, of its least number and others.

    Most words of a topic are at the prior: where the others are.
    """
    x, off = block.reshape(-1), None
    if len(block) == 1:
        least = x.min()
        others = x != least
        if np.count_nonzero(others) < _SPARSE * len(x):
            off = np.flatnonzero(others)
            x = np.append(least, x[off])
    with np.errstate(divide="ignore", invalid="ignore"):
        return kernel(x, room[:, : len(x)]), off


def _by_blocks(x: FloatArray) -> Iterator[tuple[slice, slice, FloatArray, FloatArray]]:
    """Whole rows, or parts of one row, of about `_BLOCK` numbers at a time, with room for four."""
    n, p = x.shape
    step = max(1, _BLOCK // max(p, 1))
    n_parts = -(-p // _BLOCK)
    parts = [p * k // n_parts for k in range(n_parts + 1)]
    room = np.empty((4, min(_BLOCK, n * p)))
    for low, (a, b) in product(range(0, n, step), pairwise(parts)):
        block = x[low : low + step, a:b]
        yield slice(low, low + step), slice(a, b), block, room


def _log_gamma(x: FloatArray, room: FloatArray) -> FloatArray:
    y: FloatArray
    z, inverse, y, product = room
    np.multiply(np.add(x, 7.0, out=y), x, out=y)
    np.multiply(np.add(y, _STEPS[0], out=product), y, out=product)
    for step in _STEPS[1:]:
        product *= np.add(y, step, out=z)
    np.log(product, out=product)
    product += np.add(x, _SHIFT, out=z)
    np.divide(1.0, z, out=inverse)
    np.log(z, out=y)
    y *= np.subtract(z, 0.5, out=z)
    y -= product
    np.multiply(inverse, inverse, out=z)
    y += np.multiply(_polynomial(_LOG_GAMMA_SERIES, z, product), inverse, out=product)
    return y


def _large_log_gamma(x: FloatArray, room: FloatArray) -> FloatArray:
    y: FloatArray
    y, inverse, z, _ = room
    np.multiply(np.log(x, out=y), np.subtract(x, 0.5, out=z), out=y)
    y -= x
    np.divide(1.0, x, out=inverse)
    np.multiply(inverse, inverse, out=z)
    z *= _LOG_GAMMA_SERIES[-2]
    z += _LOG_GAMMA_SERIES[-1]
    y += np.multiply(z, inverse, out=z)
    return y


def _digamma(x: FloatArray, room: FloatArray) -> FloatArray:
    y: FloatArray
    z, inverse, y, total = room
    np.multiply(np.add(x, 7.0, out=y), x, out=y)
    np.divide(1.0, y, out=total)
    for step in _STEPS:
        total += np.divide(1.0, np.add(y, step, out=z), out=z)
    total *= np.add(x, 3.5, out=z)
    total *= 2.0
    np.divide(1.0, np.add(x, _SHIFT, out=z), out=inverse)
    np.log(z, out=y)
    y -= total
    y -= np.multiply(inverse, 0.5, out=total)
    inverse *= inverse
    y -= np.multiply(_polynomial(_DIGAMMA_SERIES, inverse, total), inverse, out=total)
    return y


def _polynomial(coefficients: tuple[float, ...], x: FloatArray, out: FloatArray) -> FloatArray:
    """By Horner's rule."""
    np.multiply(x, coefficients[0], out=out)
    for coefficient in coefficients[1:-1]:
        out += coefficient
        out *= x
    out += coefficients[-1]
    return out
