"""Log-determinants, inverses and pivots of many symmetric matrices, ``(n, d, d)``."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from klfusion._utils.arrays import FloatArray, blocks

_BLOCK_ENTRIES = 1 << 14  # numbers in a block of matrices, which stays in the cache


def log_det(positive_definite: FloatArray) -> FloatArray:
    """Log-determinant of each matrix; NaN where its determinant is not positive."""
    try:
        factor = np.linalg.cholesky(positive_definite)
    except np.linalg.LinAlgError:  # one of them is not: find which
        sign, value = np.linalg.slogdet(positive_definite)
        return np.where(sign > 0, value, np.nan)
    return _of_factor(factor)


def _of_factor(factor: NDArray[np.floating[Any]]) -> FloatArray:
    """Log-determinants from Cholesky factors."""
    logs = np.log(factor.diagonal(axis1=-2, axis2=-1)).sum(axis=-1)
    logs *= 2.0
    return np.asarray(logs)


def inverse_and_log_det(positive_definite: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Inverses, (n, d, d), and log-determinants, (n,), as of `log_det`.

    Inverses are those of LAPACK: products of inverted factors lose digits.
    """
    inverse, logs = np.empty_like(positive_definite), np.empty(len(positive_definite))
    for some in blocks(positive_definite.shape, _BLOCK_ENTRIES):
        found = np.linalg.inv(positive_definite[some])
        inverse[some] = 0.5 * (found + found.swapaxes(1, 2))
        logs[some] = log_det(positive_definite[some])
    return inverse, logs


def smallest_pivot(symmetric: FloatArray, *, named: bool = True) -> FloatArray:
    """> 0 only where Cholesky succeeds (then its least pivot, else an eigenvalue, or NaN).

    Where the number is not ``named`` in an error, it is a pivot that is not positive.
    """
    try:
        factor = np.linalg.cholesky(symmetric)
    except np.linalg.LinAlgError:
        # Each by itself, or a good matrix that is badly scaled would be judged by others.
        least, out = _least_pivots(symmetric), np.full(len(symmetric), np.nan)
        good = least > 0.0
        if good.all():  # but for rounding
            if half := len(symmetric) // 2:
                parts = symmetric[:half], symmetric[half:]
                return np.concatenate([smallest_pivot(part, named=named) for part in parts])
            return np.zeros(1)
        out[good] = smallest_pivot(symmetric[good], named=named)
        bad = ~good & np.isfinite(symmetric).all(axis=(1, 2))
        if named and bad.any():
            least[bad] = np.linalg.eigvalsh(symmetric[bad])[:, 0]
        out[bad] = np.minimum(least[bad], 0.0)
        return out
    return np.asarray(np.einsum("nii->ni", factor).min(axis=1) ** 2)


def _least_pivots(symmetric: FloatArray) -> FloatArray:
    """Least pivot of each matrix by elimination, all matrices at once, (n,)."""
    rest, least = symmetric.transpose(1, 2, 0).copy(), np.full(len(symmetric), np.inf)
    with np.errstate(all="ignore"):
        while len(rest):
            pivot, column = rest[0, 0], rest[1:, 0]
            least = np.where(np.isnan(least) | (least < pivot), least, pivot)
            rest = rest[1:, 1:] - column[:, None] * (column / pivot)
    return least
