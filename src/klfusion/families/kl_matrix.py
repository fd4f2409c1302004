"""KL divergences of all pairs of distributions of a family.

``KL(g || i) = A(eta_i) - A(eta_g) - <mu(eta_g), eta_i - eta_g>``, for all pairs one matrix product,
is a small difference of large terms where the two are near; those entries are computed again, by an
integral.
"""

from collections.abc import Callable

import numpy as np

from klfusion._utils.arrays import ROUNDING, FloatArray

# Entries are differences of large terms; below this share of them, cancellation took their digits.
_CANCELLATION = 1e-9
# Gauss-Legendre nodes and weights on [0, 1].
_NODES, _NODE_WEIGHTS = (0.5 * v for v in np.polynomial.legendre.leggauss(5))
_NODES = _NODES + 0.5
# This rule minus the cubic through 0 and every other node: how far from linear an integrand is.
_CURVATURE = _NODE_WEIGHTS.copy()
_CURVATURE[::2] -= np.linalg.solve(_NODES[::2] ** [[1], [2], [3]], [1 / 2, 1 / 3, 1 / 4])
# Rows are made in blocks of about this many entries, which stay in cache; near pairs are computed
# again in batches of about this many natural parameters.
_BLOCK_ENTRIES = 1 << 16
_BATCH_ENTRIES = 1 << 20

_Mean = Callable[[FloatArray], FloatArray]  # the gradient of A, (n, p) -> (n, p)
_WithA = tuple[FloatArray, FloatArray]  # natural parameters, (n, p), and their A, (n,)


def kl_matrix(
    mean_map: _Mean, of_centres: tuple[FloatArray, FloatArray, FloatArray], of_locals: _WithA
) -> FloatArray:
    """``KL(centres[g] || locals_[i])`` as an ``(i, g)`` matrix, from ``A`` of both."""
    (centres, log_partition_centres, mean), (locals_, log_partition) = of_centres, of_locals
    offset = np.einsum("gp,gp->g", mean, centres) - log_partition_centres
    scale = np.abs(log_partition_centres) + np.einsum("gp,gp->g", np.abs(mean), np.abs(centres))
    out = np.empty((len(locals_), len(centres)))
    step = max(1, _BLOCK_ENTRIES // max(1, len(centres)))
    batch = max(1, _BATCH_ENTRIES // max(1, centres.shape[1]))
    threshold = _CANCELLATION * (scale + np.abs(log_partition).max(initial=0.0))
    mean_t = np.ascontiguousarray(mean.T)
    for low in range(0, len(locals_), step):
        rows = slice(low, low + step)
        block = np.matmul(locals_[rows], mean_t, out=out[rows])
        np.subtract(log_partition[rows, None], block, out=block)
        block += offset
        near = block < threshold
        if near.any():
            i, g = near.nonzero()
            terms = scale[g] + np.abs(log_partition[low + i])
            lost = block[i, g] < _CANCELLATION * terms
            i, g, terms = i[lost], g[lost], terms[lost]
            for k in range(0, len(i), batch):
                pairs = i[k : k + batch], g[k : k + batch]
                ends = centres[pairs[1]], locals_[low + pairs[0]]
                block[pairs] = _near_pairs(mean_map, *ends, block[pairs], terms[k : k + batch])
    return out


def _near_pairs(
    mean_map: _Mean, first: FloatArray, second: FloatArray, rough: FloatArray, terms: FloatArray
) -> FloatArray:
    """``KL(first[i] || second[i])`` with an error that vanishes with their distance.

    It is the integral over t in [0, 1] of ``<mu(first + t d) - mu(first), d>``. Where the integrand
    is not nearly linear, the ``rough`` value stays: a difference of ``terms``.
    """
    d = second - first
    kl = np.zeros(len(first))
    moved = d.any(axis=1)
    if not moved.any():
        return kl
    first, d = first[moved], d[moved]
    mean = mean_map(first)
    slopes = np.stack(
        [np.einsum("np,np->n", mean_map(first + t * d) - mean, d) for t in _NODES], axis=1
    )
    total = np.maximum(slopes @ _NODE_WEIGHTS, 0.0)
    # The cubic's error squared, relative to the total: a cautious estimate of this rule's.
    straight = (slopes @ _CURVATURE) ** 2 <= total * ROUNDING * terms[moved]
    kl[moved] = np.where(straight, total, np.maximum(rough[moved], 0.0))
    return kl
