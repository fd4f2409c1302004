"""Numerical kernels that families share: symmetric matrices, and gamma functions of many numbers.

The upper triangle of a symmetric matrix is kept, its off-diagonal entries times sqrt(2), so that
the inner product of two packed matrices is the trace inner product of the matrices.

SciPy computes ``log Gamma`` and its derivative one number at a time, NumPy's logarithm many at
once. So both are Stirling's series at ``z = x + 8``, less what eight steps of the recurrence add.
The product of the steps, ``x (x + 1) ... (x + 7)``, is ``y (y + 6) (y + 10) (y + 12)`` with ``y = x
(x + 7)``. Where all numbers are large the series is enough. All is computed in place, in blocks
that stay in cache.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise, product
from typing import Any

import numpy as np
from scipy import special

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.errors import KLFusionError
from klfusion.families.family import numbers


def packed_size(dim: int) -> int:
    """Number of entries of a packed symmetric matrix."""
    return dim * (dim + 1) // 2


@lru_cache(maxsize=64)
def _packing(dim: int) -> tuple[IntArray, FloatArray]:
    """Entry of the flattened matrix that each packed number is, and its scale."""
    row, col = np.triu_indices(dim)
    return row * dim + col, np.where(row == col, 1.0, np.sqrt(2.0))


@lru_cache(maxsize=64)
def unpacking(dim: int) -> tuple[IntArray, FloatArray]:
    """Packed number that each entry of the flattened matrix is, and its scale."""
    row, col = np.triu_indices(dim)
    back = np.empty((dim, dim), dtype=np.intp)
    back[row, col] = back[col, row] = np.arange(len(row))
    return back.ravel(), (1.0 / _packing(dim)[1])[back.ravel()]


def pack(matrices: FloatArray) -> FloatArray:
    """``(..., d, d) -> (..., d (d + 1) / 2)``."""
    dim = matrices.shape[-1]
    upper, scale = _packing(dim)
    return np.take(matrices.reshape(*matrices.shape[:-2], dim * dim), upper, axis=-1) * scale


def unpack(packed: FloatArray, dim: int) -> FloatArray:
    """``(..., d (d + 1) / 2) -> (..., d, d)``."""
    flat, scale = unpacking(dim)
    return (np.take(packed, flat, axis=-1) * scale).reshape(*packed.shape[:-1], dim, dim)


def matrices(value: Any, dim: int, name: str) -> FloatArray:
    """A parameter given as ``(n, d, d)``, checked to be symmetric."""
    array = numbers(value, name)
    if array.ndim != 3 or array.shape[1:] != (dim, dim):
        raise KLFusionError(f"{name}: expected shape (n, {dim}, {dim}), got {array.shape}")
    with np.errstate(invalid="ignore"):  # inf - inf; the check at the boundary names the silo
        asymmetry = np.abs(array - array.swapaxes(1, 2)).max(axis=(1, 2), initial=0.0)
    size = np.abs(array).max(axis=(1, 2), initial=0.0)
    bad = np.flatnonzero(asymmetry > 1e-6 * size)
    if len(bad):
        raise KLFusionError(
            f"{name}, component {bad[0]}: expected a symmetric matrix, "
            f"got entries that differ by {asymmetry[bad[0]]:.3g}"
        )
    return 0.5 * (array + array.swapaxes(1, 2))


def outer(vectors: FloatArray) -> FloatArray:
    """``v v'`` of each vector."""
    return vectors[..., :, None] * vectors[..., None, :]


def log_det(positive_definite: FloatArray) -> FloatArray:
    """Log-determinant of each matrix; NaN where its determinant is not positive."""
    try:
        factor = np.linalg.cholesky(positive_definite)
    except np.linalg.LinAlgError:  # one of them is not: find which
        sign, value = np.linalg.slogdet(positive_definite)
        return np.where(sign > 0, value, np.nan)
    return np.asarray(2.0 * np.log(np.einsum("...ii->...i", factor)).sum(axis=-1))


def smallest_pivot(symmetric: FloatArray) -> FloatArray:
    """> 0 exactly where Cholesky succeeds (then its least pivot, else an eigenvalue, or NaN)."""
    try:
        factor = np.linalg.cholesky(symmetric)
    except np.linalg.LinAlgError:
        # One by one, or a good matrix that is badly scaled would be judged by its neighbours.
        if len(symmetric) > 1:
            return np.concatenate([smallest_pivot(one[None]) for one in symmetric])
        if not np.isfinite(symmetric).all():
            return np.array([np.nan])
        return np.asarray(np.minimum(np.linalg.eigvalsh(symmetric)[:, 0], 0.0))
    return np.asarray(np.einsum("nii->ni", factor).min(axis=1) ** 2)


_SHIFT = 8.0
_STEPS = (6.0, 10.0, 12.0)
_HALF_LOG_TWO_PI = 0.5 * float(np.log(2.0 * np.pi))
# B_2k / (2k (2k - 1)) and B_2k / 2k with Bernoulli's numbers, highest order first.
_LOG_GAMMA_SERIES = (-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
_DIGAMMA_SERIES = (-691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)
_LARGE = 100.0  # from here on two terms of the series are exact
_BLOCK = 16384  # numbers that stay in cache, with four arrays computed from them
_TOO_LARGE = 1e30  # beyond this the eight factors overflow

_Kernel = Callable[[FloatArray, FloatArray], FloatArray]  # values of a block, with room for four


def sum_log_gamma(x: FloatArray) -> FloatArray:
    """``sum_k log Gamma(x[i, k])`` of positive numbers, ``(n, p) -> (n,)``."""
    out = np.full(len(x), x.shape[1] * _HALF_LOG_TWO_PI)
    if x.max(initial=0.0) > _TOO_LARGE:
        return np.asarray(special.gammaln(x).sum(axis=1))
    kernel = _log_gamma if x.min(initial=_LARGE) < _LARGE else _large_log_gamma
    for rows, _, values in _by_blocks(kernel, x):
        out[rows] += values.sum(axis=1)
    return out


def digamma(x: FloatArray) -> FloatArray:
    """The derivative of ``log Gamma`` at positive numbers, ``(n, p) -> (n, p)``."""
    out = np.empty(x.shape)
    if x.max(initial=0.0) > _TOO_LARGE:
        return np.asarray(special.digamma(x))
    for rows, columns, values in _by_blocks(_digamma, x):
        out[rows, columns] = values
    return out


def _by_blocks(kernel: _Kernel, x: FloatArray) -> Iterator[tuple[slice, slice, FloatArray]]:
    """Values of whole rows, or parts of one row, of about `_BLOCK` numbers at a time."""
    n, p = x.shape
    step = max(1, _BLOCK // max(p, 1))
    n_parts = -(-p // _BLOCK)
    parts = [p * k // n_parts for k in range(n_parts + 1)]
    room = np.empty((4, min(_BLOCK, n * p)))
    for low, (a, b) in product(range(0, n, step), pairwise(parts)):
        block = x[low : low + step, a:b]
        with np.errstate(divide="ignore", invalid="ignore"):
            values = kernel(block.reshape(-1), room[:, : block.size])
        yield slice(low, low + step), slice(a, b), values.reshape(block.shape)


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
