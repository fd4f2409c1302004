"""The multivariate gamma function, ``Gamma_d(a) = pi^(d (d - 1) / 4) prod_j Gamma(a - j / 2)``.

Two factors are ``Gamma(z) Gamma(z + 1/2) = 2^(1 - 2 z) sqrt(pi) Gamma(2 z)``, and all
``Gamma(2 z)`` are the least of them, ``Gamma(x)``, times ``x (x + 1) ...``. So one logarithm of a
gamma function serves for all.
"""

from functools import lru_cache

import numpy as np
from scipy.special import digamma, gammaln

from klfusion._utils.arrays import FloatArray

_LOG_2, _LOG_PI = float(np.log(2.0)), float(np.log(np.pi))
_MANY = 100  # entries from which the time is that of gamma functions, not of calls


@lru_cache(maxsize=64)
def _halves(dim: int) -> FloatArray:
    """``0, 1/2, ..., (dim - 1) / 2``."""
    return np.asarray(0.5 * np.arange(dim))


@lru_cache(maxsize=64)
def _steps(pairs: int) -> tuple[FloatArray, FloatArray]:
    """``0, 1, ...``, and how many of the factors have ``x + 0``, ``x + 1``, ..."""
    step = np.arange(max(2 * pairs - 2, 0), dtype=np.float64)
    return step, np.asarray(pairs - 1.0 - step // 2)


def log_gamma(a: FloatArray, dim: int) -> FloatArray:
    """``log Gamma_d(a)`` of each entry of a vector."""
    pairs, single = divmod(dim, 2)
    least = 2.0 * a - (dim - 1) + single  # of the arguments 2 z
    if len(a) < _MANY or not least.min() > 0.0:  # fewer calls; or outside of the domain
        total = gammaln(a[:, None] - _halves(dim)).sum(axis=1)
        total += 0.25 * dim * (dim - 1) * _LOG_PI
        return np.asarray(total)
    total = np.full(len(a), (0.25 * dim * (dim - 1) + 0.5 * pairs) * _LOG_PI)
    if pairs:
        step, times = _steps(pairs)
        total += pairs * (gammaln(least) - _LOG_2 * (2.0 * a - pairs - 1.0))
        if pairs > 1:
            total += np.log(least[:, None] + step) @ times
    if single:
        total += gammaln(a - 0.5 * (dim - 1))
    return total


def digammas(a: FloatArray, dim: int) -> FloatArray:
    """Its derivative, ``sum_j digamma(a - j / 2)``."""
    pairs, single = divmod(dim, 2)
    least = 2.0 * a - (dim - 1) + single
    if len(a) < _MANY or not least.min() > 0.0:
        return np.asarray(digamma(a[:, None] - _halves(dim)).sum(axis=1))
    total = np.zeros(len(a))
    if pairs:
        step, times = _steps(pairs)
        total += 2.0 * pairs * (digamma(least) - _LOG_2)
        if pairs > 1:
            total += (1.0 / (least[:, None] + step)) @ (2.0 * times)
    if single:
        total += digamma(a - 0.5 * (dim - 1))
    return total
