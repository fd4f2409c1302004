"""Symmetric matrices stored once, and the few matrix functions the families share.

The upper triangle is kept, its off-diagonal entries times sqrt(2), so that the inner product of two
packed matrices is the trace inner product of the matrices.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import digamma, gammaln

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.errors import KLFusionError
from klfusion.families.parameters import numbers


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


def log_gamma_multivariate(a: FloatArray, dim: int) -> FloatArray:
    """``log Gamma_d(a)`` of each entry of a vector."""
    gammas = gammaln(a[:, None] - 0.5 * np.arange(dim)).sum(axis=1)
    return np.asarray(gammas + 0.25 * dim * (dim - 1) * np.log(np.pi))


def digamma_multivariate(a: FloatArray, dim: int) -> FloatArray:
    """Derivative of `log_gamma_multivariate`."""
    return np.asarray(digamma(a[:, None] - 0.5 * np.arange(dim)).sum(axis=1))


def of_eigenvalues(function: np.ufunc, symmetric: FloatArray) -> FloatArray:
    """Matrix function of each, such as the logarithm."""
    values, vectors = np.linalg.eigh(symmetric)
    return np.asarray((vectors * function(values)[..., None, :]) @ vectors.swapaxes(-1, -2))
