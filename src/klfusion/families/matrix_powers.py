"""Powers of very many small positive definite matrices at once.

LAPACK takes most of its time for calls of one small matrix each. Here each operation is on all
matrices, which lie along the last axis, ``(d, d, m)``. Reflections make them tridiagonal, so that
inverses take few operations. Then ``x^s = a x + b + x sum_k c_k / (x + t_k)`` to the last digits.
The ``t_k`` are Zolotarev's, and few of them serve all functions of this kind.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ellipj, ellipkm1

from klfusion._utils.arrays import ROUNDING, FloatArray

_LEAST = 40  # matrices per row from which this is faster than LAPACK
_MOST_TERMS = 50  # beyond, LAPACK is faster
_WIDER = 3.0  # the interval of the ``t_k``, without which exponents other than 1/2 take more

_Reflection = tuple[FloatArray, FloatArray]  # ``v`` and ``h`` of ``I - h v v'``


class _Terms(NamedTuple):
    """``a``, ``b``, ``t_k`` and ``c_k``."""

    linear: float
    constant: float
    shifts: FloatArray
    weights: FloatArray


def many_powers(n: int, dim: int) -> bool:
    """Whether `power` is faster than eigenvalues of ``n`` matrices."""
    return dim > 1 and n >= _LEAST * dim


def power(matrices: FloatArray, exponent: float) -> FloatArray:
    """Powers from 0 to 1, (d, d, m), which overwrite the matrices.

    `numpy.linalg.LinAlgError` says that one is near singular.
    """
    with np.errstate(all="ignore"):
        diagonal, beside, reflections = _tridiagonal(matrices)
        low, high = _bounds(diagonal, beside)
    if not 0.0 < low <= high < np.inf:
        raise np.linalg.LinAlgError("expected positive definite matrices")
    terms = _terms(2.0 ** np.floor(np.log2(low)), 2.0 ** np.ceil(np.log2(high)), exponent)
    pivots = _pivots(diagonal, beside, terms.shifts)
    out = _inverses(*pivots, terms.weights)
    on_diagonal = np.arange(len(out))
    out[on_diagonal, on_diagonal] += terms.linear
    out = _times(diagonal, beside, out)
    for first, reflection in reversed(list(enumerate(reflections, 1))):
        _reflect(out, first, *reflection)
    out[on_diagonal, on_diagonal] += terms.constant
    return out


def _tridiagonal(matrices: FloatArray) -> tuple[FloatArray, FloatArray, list[_Reflection]]:
    """Diagonals (d, m), what is beside them (d - 1, m), and the reflections that lead there."""
    dim, beside, reflections = len(matrices), list[FloatArray](), list[_Reflection]()
    for k in range(dim - 2):
        vector = matrices[k, k + 1 :].copy()
        norm = np.sqrt(np.einsum("im,im->m", vector, vector))
        scale = norm * (norm + np.abs(vector[0]))
        np.divide(1.0, scale, out=scale, where=scale > 0.0)
        beside.append(np.where(vector[0] > 0.0, -norm, norm))
        vector[0] -= beside[-1]
        _reflect(matrices[k + 1 :, k + 1 :], 0, vector, scale)
        reflections.append((vector, scale))
    beside.append(matrices[-2, -1])
    return np.einsum("iim->im", matrices).copy(), np.stack(beside), reflections


def _reflect(matrices: FloatArray, first: int, vector: FloatArray, scale: FloatArray) -> None:
    """Multiply from both sides by ``I - h v v'``; ``v`` is zero before entry ``first``."""
    product = np.einsum("ijm,jm->im", matrices[:, first:], vector)
    product *= scale
    inner = np.einsum("im,im->m", product[first:], vector)
    product[first:] -= 0.5 * scale * inner * vector
    change = product[:, None] * vector
    matrices[:, first:] -= change
    matrices[first:] -= change.swapaxes(0, 1)


def _bounds(diagonal: FloatArray, beside: FloatArray) -> tuple[float, float]:
    """Of all eigenvalues: by the traces of inverses, and by Gershgorin's circles."""
    pivots, factors = _pivots(diagonal, beside, np.zeros(1))
    if not min(float(own.min()) for own in pivots) > 0.0:
        return 0.0, np.inf
    trace = np.einsum("iim->m", _inverses(pivots, factors, np.ones(1)))
    reach = diagonal.copy()
    reach[1:] += np.abs(beside)
    reach[:-1] += np.abs(beside)
    return float(1.0 / trace.max()), float(reach.max())


def _pivots(
    diagonal: FloatArray, beside: FloatArray, shifts: FloatArray
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Pivots (k, m) and factors of ``T + t_k`` by elimination, for each of its rows."""
    pivots, factors = [diagonal[0] + shifts[:, None]], list[FloatArray]()
    for own, entry in zip(diagonal[1:], beside, strict=True):
        factors.append(entry / pivots[-1])
        pivots.append(own + shifts[:, None] - entry * factors[-1])
    return pivots, factors


def _inverses(
    pivots: list[FloatArray], factors: list[FloatArray], weights: FloatArray
) -> FloatArray:
    """``sum_k c_k inv(T + t_k)``, (d, d, m)."""
    dim, row = len(pivots), weights[:, None] / pivots[-1][None]
    out = np.empty((dim, dim, row.shape[-1]))
    out[-1, -1] = row[0].sum(axis=0)
    for i in range(dim - 2, -1, -1):  # row i of each inverse from that below
        rest = row * -factors[i]
        own = weights[:, None] / pivots[i] - factors[i] * rest[0]
        row = np.concatenate([own[None], rest])
        out[i, i:] = out[i:, i] = row.sum(axis=1)
    return out


def _times(diagonal: FloatArray, beside: FloatArray, other: FloatArray) -> FloatArray:
    """Products of tridiagonal matrices with functions of them, (d, d, m)."""
    out = diagonal[:, None] * other
    out[1:] += beside[:, None] * other[:-1]
    out[:-1] += beside[:, None] * other[1:]
    return np.asarray(out)


@lru_cache(maxsize=64)
def _terms(low: float, high: float, exponent: float) -> _Terms:
    """For numbers between two; an error if there are too many terms."""
    x = np.sqrt(low * high) * (high / low) ** (0.5 * np.cos(np.linspace(0.0, np.pi, 500)))
    low, high = low / _WIDER, high * _WIDER
    n = int(np.ceil(-np.log(ROUNDING) * np.log(16.0 * high / low) / (2.0 * np.pi**2)))
    if n > _MOST_TERMS:
        raise np.linalg.LinAlgError(f"expected {_MOST_TERMS} terms at most, got {n}")
    places = (np.arange(n) + 0.5) / n * ellipkm1(low / high)
    sine, cosine, *_ = ellipj(places, 1.0 - low / high)
    shifts = np.asarray(low * (sine / cosine) ** 2, dtype=np.float64)
    functions = np.column_stack([x, np.ones(len(x)), x[:, None] / (x[:, None] + shifts)])
    functions *= x[:, None] ** -exponent
    largest = functions.max(axis=0)
    found = np.linalg.lstsq(functions / largest, np.ones(len(x)), rcond=None)[0] / largest
    return _Terms(float(found[0]), float(found[1]), shifts, np.asarray(found[2:], np.float64))
