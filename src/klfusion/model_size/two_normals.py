"""Mutual information between an observation and which of two Normals it came from, in nats."""

from collections.abc import Iterator

import numpy as np
from scipy.special import ndtri

from klfusion._utils.arrays import FloatArray, IntArray

POINTS = 1024  # quadrature points of each Normal
_BLOCK_ENTRIES = 1 << 21  # numbers of a block of pairs at all points: 16 MB

Normals = tuple[FloatArray, FloatArray]  # means (n, d), covariances (n, d, d), or diagonals (n, d)


def entropy(share: FloatArray) -> FloatArray:
    """Entropy of the assignment, an upper bound, if a ``share`` is of the first."""
    return np.asarray(-share * np.log(share) - (1.0 - share) * np.log1p(-share))


def information_at_distance(distance: FloatArray, share: FloatArray) -> FloatArray:
    """Of Normals of one covariance, means at a distance in standard deviations, (m,)."""
    node, weight = _NODES
    d, s = distance[:, None], share[:, None]
    odds = np.log(s) - np.log1p(-s)
    of_first, of_second = odds + d * node + 0.5 * d**2, odds + d * node - 0.5 * d**2
    return _information(of_first, of_second, share, weight)


def information(
    normals: Normals, a: IntArray, b: IntArray, share: FloatArray, points: int = POINTS
) -> FloatArray:
    """Of pairs of Normals, each with its own covariance, (m,); a ``share`` is of the first.

    There is no closed form: the log-odds are averaged over quasi-random points of each.
    """
    dim = normals[0].shape[1]
    noise, weight = _standard_points(dim, points), np.full(points, 1.0 / points)
    own = -0.5 * np.square(noise).sum(axis=1)  # log density of the points of a Normal, in its frame
    out = np.empty(len(a))
    for some in _blocks(len(a), dim):
        s = share[some]
        first, second = _side_by_side(normals, a[some], b[some])
        prior = np.log(s) - np.log1p(-s) + _log_volume(second) - _log_volume(first)
        of_first = prior[:, None] + own - _log_density(noise, first, second)
        of_second = prior[:, None] - own + _log_density(noise, second, first)
        out[some] = _information(of_first, of_second, s, weight)
    return out


def _nodes() -> tuple[FloatArray, FloatArray]:
    """Nodes of Gauss-Hermite quadrature, and weights that sum to one."""
    node, weight = np.polynomial.hermite_e.hermegauss(40)
    return node, weight / weight.sum()


_NODES = _nodes()


def _information(
    of_first: FloatArray, of_second: FloatArray, share: FloatArray, weight: FloatArray
) -> FloatArray:
    """From log-odds of the first, at points (m, k) of the first and of the second."""
    s = share[:, None]
    missed = s * _softplus(-of_first) + (1.0 - s) * _softplus(of_second)
    return np.asarray(entropy(share) - missed @ weight)


def _softplus(x: FloatArray) -> FloatArray:
    """``log(1 + exp(x))`` to an absolute error of rounding, faster than `numpy.logaddexp`."""
    return np.asarray(np.maximum(x, 0.0) + np.log(1.0 + np.exp(-np.abs(x))))


def _blocks(n: int, dim: int) -> Iterator[slice]:
    step = max(1, _BLOCK_ENTRIES // (max(POINTS, dim) * dim))
    return (slice(low, low + step) for low in range(0, n, step))


def _side_by_side(normals: Normals, a: IntArray, b: IntArray) -> list[Normals]:
    """Means (m, d) and roots of covariances (m, d, d) of both, on axes of their own.

    The first axis goes from one mean to the other. Points are spread best along the first axis,
    and the log-odds vary most along this one.
    """
    mean, covariance = normals
    axes = np.eye(mean.shape[1])
    full = covariance if covariance.ndim == 3 else covariance[:, :, None] * axes
    wide = np.linalg.cholesky(full[a] + full[b])
    between = np.linalg.solve(wide, (mean[a] - mean[b])[:, :, None])
    others = np.broadcast_to(axes, wide.shape)
    basis = np.linalg.qr(np.concatenate([between, others], axis=2))[0]
    turn = np.linalg.solve(wide.swapaxes(1, 2), basis).swapaxes(1, 2)

    def turned(which: IntArray) -> Normals:
        inside = turn @ full[which] @ turn.swapaxes(1, 2)
        return (turn @ mean[which][:, :, None])[:, :, 0], np.asarray(np.linalg.cholesky(inside))

    return [turned(a), turned(b)]


def _standard_points(dim: int, n: int) -> FloatArray:
    """Quasi-random points of the standard Normal, (n, d), half of them mirror images.

    The additive recurrence of powers of the generalised golden ratio (Roberts 2018).
    """
    ratio = 2.0
    for _ in range(40):
        ratio = (1.0 + ratio) ** (1.0 / (dim + 1))
    step = (1.0 / ratio) ** np.arange(1, dim + 1)
    uniform = (0.5 + np.outer(np.arange(1, n // 2 + 1), step)) % 1.0
    points = ndtri(np.clip(uniform, 1e-12, 1.0 - 1e-12))
    return np.concatenate([points, -points])


def _log_volume(normal: Normals) -> FloatArray:
    """Logarithm of the determinant of each root, (m,)."""
    return np.asarray(np.log(np.einsum("mii->mi", normal[1])).sum(axis=1))


def _log_density(noise: FloatArray, points_of: Normals, density_of: Normals) -> FloatArray:
    """Log density (m, k) in the frame of one Normal of standard points (k, d) of another."""
    (mean, root), (other, other_root) = points_of, density_of
    shift = np.linalg.solve(other_root, (mean - other)[:, :, None])[:, :, 0]
    turn = np.linalg.solve(other_root, root)
    scaled = noise @ turn.swapaxes(1, 2) + shift[:, None, :]
    return np.asarray(-0.5 * np.einsum("mkd,mkd->mk", scaled, scaled))
