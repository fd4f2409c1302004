"""Symmetric matrices by their upper triangles, and elimination in very many small ones at once.

Of a packed matrix the off-diagonal entries are times sqrt(2), so that the inner product of two
packed matrices is the trace inner product of the matrices.

Log-determinants and inverses are of unpacked triangles, one per column of an array
``(d (d + 1) / 2, m)``. Each step of an elimination is one operation on all matrices. LAPACK takes
several times as long, for each call is of one small matrix.
"""

from functools import lru_cache

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray

# Matrices per row from which this is faster than LAPACK; fewer leave most of the time to calls.
_LEAST_DETERMINANTS, _LEAST_INVERSES = 30, 12


def packed_size(dim: int) -> int:
    """Number of entries of a packed symmetric matrix."""
    return dim * (dim + 1) // 2


@lru_cache(maxsize=64)
def packing(dim: int) -> tuple[IntArray, FloatArray, IntArray, FloatArray]:
    """Entry of the flattened matrix of each packed number, and its scale; then the inverse."""
    row, col = np.triu_indices(dim)
    scale = np.where(row == col, 1.0, np.sqrt(2.0))
    back = np.empty((dim, dim), dtype=np.intp)
    back[row, col] = back[col, row] = np.arange(len(row))
    return row * dim + col, scale, back.ravel(), (1.0 / scale)[back.ravel()]


def pack(matrices: FloatArray) -> FloatArray:
    """``(..., d, d) -> (..., d (d + 1) / 2)``."""
    dim = matrices.shape[-1]
    upper, scale, *_ = packing(dim)
    return np.take(matrices.reshape(*matrices.shape[:-2], dim * dim), upper, axis=-1) * scale


def unpack(packed: FloatArray, dim: int) -> FloatArray:
    """``(..., d (d + 1) / 2) -> (..., d, d)``."""
    *_, flat, scale = packing(dim)
    return (np.take(packed, flat, axis=-1) * scale).reshape(*packed.shape[:-1], dim, dim)


@lru_cache(maxsize=64)
def bordered_layout(dim: int) -> tuple[IntArray, FloatArray]:
    """Which of ``s``, ``kappa``, packed ``M`` is where in ``[[M, s], [s', kappa]]``, times what."""
    where, scale = np.empty((dim + 1, dim + 1), dtype=np.intp), np.ones((dim + 1, dim + 1))
    *_, inner, inner_scale = packing(dim)
    where[:dim, :dim] = dim + 1 + inner.reshape(dim, dim)
    scale[:dim, :dim] = inner_scale.reshape(dim, dim)
    where[dim, :dim] = where[:dim, dim] = np.arange(dim)
    where[dim, dim] = dim
    return where.ravel(), scale.ravel()


@lru_cache(maxsize=64)
def _of_products(dim: int) -> tuple[IntArray, IntArray, FloatArray]:
    """Row and column of each packed number, and its scale."""
    where, scale, *_ = packing(dim)
    return where // dim, where % dim, scale


def squares(vectors: FloatArray) -> FloatArray:
    """``x x'``, packed, ``(n, d) -> (n, d (d + 1) / 2)``."""
    row, column, scale = _of_products(vectors.shape[1])
    out = np.take(vectors, row, axis=1)
    out *= np.take(vectors, column, axis=1)
    out *= scale
    return out


def products_with(vector: FloatArray) -> FloatArray:
    """The matrix of ``x -> x v' + v x'``, packed, ``(d, d (d + 1) / 2)``."""
    each = np.eye(len(vector))[:, :, None] * vector
    return pack(each + each.swapaxes(1, 2))


def congruence(matrix: FloatArray) -> FloatArray:
    """The matrix of ``S -> M S M'``, packed: one product for all, ``packed @ congruence(M)``."""
    dim = len(matrix)
    return pack(matrix @ unpack(np.eye(packed_size(dim)), dim) @ matrix.T)


def many_determinants(n: int, dim: int) -> bool:
    """Whether `log_det_of` is faster for ``n`` matrices."""
    return n >= _LEAST_DETERMINANTS * dim


def many_inverses(n: int, dim: int) -> bool:
    """Whether `invert` is."""
    return n >= _LEAST_INVERSES * dim


def log_det_of(triangles: FloatArray, dim: int) -> FloatArray:
    """Log-determinants by elimination, which overwrites the triangles; NaN of what has none.

    Pivots of positive definite matrices need no exchange of rows.
    """
    rows, total = _rows(triangles, dim), np.zeros(triangles.shape[1])
    room = np.empty_like(rows[0])
    with np.errstate(all="ignore"):
        for k, own in enumerate(rows):
            total += np.log(own[0])
            factor = own[1:] / own[0]
            for i, below in enumerate(rows[k + 1 :]):
                change = np.multiply(own[i + 1 :], factor[i], out=room[: len(below)])
                np.subtract(below, change, out=below)
    return total


def invert(triangles: FloatArray, dim: int) -> FloatArray:
    """Replace positive definite matrices by their inverses; log-determinants as above.

    Each step exchanges a variable between both sides of ``y = A x`` (the sweep operator).
    """
    rows, total = _rows(triangles, dim), np.zeros(triangles.shape[1])
    column, room = np.empty((dim, triangles.shape[1])), np.empty_like(rows[0])
    with np.errstate(all="ignore"):
        for k, own in enumerate(rows):
            total += np.log(own[0])
            inverse = 1.0 / own[0]
            for i, above in enumerate(rows[:k]):
                column[i] = above[k - i]
            column[k + 1 :] = own[1:]
            factor = column * inverse
            for i, other in enumerate(rows):
                if i != k:
                    change = np.multiply(column[i:], factor[i], out=room[: dim - i])
                    np.subtract(other, change, out=other)
                if i < k:
                    other[k - i] = factor[i]
            own[1:] = factor[k + 1 :]
            own[0] = -inverse
    np.negative(triangles, out=triangles)
    return total


def _rows(triangles: FloatArray, dim: int) -> list[FloatArray]:
    """Views of row ``k`` from the diagonal on, (d - k, m)."""
    ends = np.cumsum(np.arange(dim, 0, -1))
    return [triangles[end - dim + k : end] for k, end in enumerate(ends.tolist())]
