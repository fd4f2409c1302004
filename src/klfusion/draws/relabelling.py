"""Label switching undone: each draw is a silo of point components, and all are matched.

A sample of draws is matched by `klfusion.Homogeneous`. Each cluster becomes a Normal, and every
draw gets the permutation of largest likelihood, until none changes (Stephens, 2000).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import chdtri, logsumexp

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.running import silent
from klfusion.draws.layout import Layout
from klfusion.families import DiagonalNormal
from klfusion.methods.homogeneous import Homogeneous
from klfusion.objective.problem import FusionProblem

_SAMPLE = 400  # draws that are matched to begin with
_MOST_ROUNDS = 100
_MOST_LISTED = 6  # components whose permutations are all compared; of more, one swap from the best
_OUTSIDE = 1e-3  # probability outside the region in which half of a chain's draws should be


@dataclass(frozen=True, eq=False)
class Relabelled:
    """What `klfusion.relabel` found.

    Parameters
    ----------
    draws : mapping of name to array
        With permuted components.
    permutation : int array of shape (chains, draws, K)
        Component ``permutation[c, d, k]`` of a draw is in place ``k``.
    probability : array of shape (chains, draws)
        Of the permutation, given the Normals of the components.
    findings : tuple of str
        Chains in another mode; components that overlap.
    """

    draws: dict[str, FloatArray]
    permutation: IntArray
    probability: FloatArray
    findings: tuple[str, ...]

    @property
    def n_switched(self) -> int:
        """Number of draws whose components were permuted."""
        return int((self.permutation != np.arange(self.permutation.shape[-1])).any(axis=-1).sum())


def relabelled(layout: Layout, random_state: int = 0) -> tuple[Layout, Relabelled]:
    """Permute the components of each draw."""
    features = layout.features()
    chains, draws, size, dim = features.shape
    points = features.reshape(-1, size, dim)
    if size == 1:
        order, sure = np.zeros((len(points), 1), dtype=np.intp), np.ones(len(points))
    else:
        order = _order(points, np.random.default_rng(random_state))
        order = _kept_names(order)
        sure = _probability(_costs(points, order), order)
    ordered = np.take_along_axis(points, order[..., None], axis=1)
    findings = _stuck(ordered.reshape(chains, draws, -1))
    missed = float((1.0 - sure).sum())
    if missed > 0.01 * len(points):  # more than one in a hundred
        findings.append(
            f"components overlap: about {missed:.0f} of {len(points)} draws may be relabelled "
            "wrongly"
        )
    permutation = order.reshape(chains, draws, size)
    moved = layout.permuted(permutation)
    values = {key: np.asarray(own) for key, own in moved.draws.values.items()}
    found = Relabelled(values, permutation, sure.reshape(chains, draws), tuple(findings))
    return moved, found


def _order(points: FloatArray, rng: np.random.Generator) -> IntArray:
    """Permutations (n, K) of points (n, K, f): row ``order[i, k]`` of draw ``i`` is cluster k."""
    n, size, dim = points.shape
    scale = points.reshape(-1, dim).std(axis=0)
    some = np.unique(np.linspace(0, n - 1, min(n, _SAMPLE)).astype(np.intp))
    z = (points[some] / np.where(scale > 0, scale, 1.0)).reshape(-1, dim)
    family, method = DiagonalNormal(dim), Homogeneous()
    silo = np.repeat(np.arange(len(some)), size)
    problem = FusionProblem(family, family.natural(z, np.ones_like(z)), silo, np.ones(len(z)))
    labels = method.match(problem, method.search(None, rng, silent)).labels.reshape(-1, size)
    ordered = np.take_along_axis(points[some], np.argsort(labels, axis=1)[..., None], axis=1)
    order = _assigned(_log_densities(points, ordered))
    for _ in range(_MOST_ROUNDS):
        after = _assigned(_costs(points, order))
        if (after == order).all():
            break
        order = after
    return order


def _costs(points: FloatArray, order: IntArray) -> FloatArray:
    return _log_densities(points, np.take_along_axis(points, order[..., None], axis=1))


def _log_densities(points: FloatArray, ordered: FloatArray) -> FloatArray:
    """Log-density (n, K, K) of each point of a draw under the Normal of each cluster."""
    n, size, dim = points.shape
    out = np.empty((n, size, size))
    floor = 1e-9 * ordered.reshape(-1, dim).var(axis=0) + np.finfo(np.float64).tiny
    for k in range(size):
        covariance = np.cov(ordered[:, k].T).reshape(dim, dim) + np.diag(floor)
        factor = np.linalg.cholesky(covariance)
        away = (points - ordered[:, k].mean(axis=0)).reshape(-1, dim).T
        square = np.square(np.linalg.solve(factor, away)).sum(axis=0).reshape(n, size)
        out[:, :, k] = -0.5 * square - np.log(np.diag(factor)).sum()
    return out


def _assigned(densities: FloatArray) -> IntArray:
    """The permutation (n, K) of largest likelihood: row of a draw for each cluster."""
    n, size, _ = densities.shape
    if size <= _MOST_LISTED:
        every, totals = _totals(densities)
        return np.asarray(every[totals.argmax(axis=1)])
    found = [linear_sum_assignment(-own.T)[1] for own in densities]
    return np.asarray(found, dtype=np.intp).reshape(n, size)


def _totals(densities: FloatArray) -> tuple[IntArray, FloatArray]:
    """All permutations (P, K), and the log-likelihood (n, P) of each."""
    size = densities.shape[1]
    every = np.array(list(permutations(range(size))), dtype=np.intp)
    return every, densities[:, every, np.arange(size)].sum(axis=2)


def _probability(densities: FloatArray, order: IntArray) -> FloatArray:
    """Of each permutation (n, K) among all, or among those one swap away."""
    size = order.shape[1]
    own = np.take_along_axis(densities, order[:, None, :], axis=1)[:, 0].sum(axis=1)
    if size <= _MOST_LISTED:
        return np.asarray(np.exp(own - logsumexp(_totals(densities)[1], axis=1)))
    there = np.take_along_axis(densities, order[:, :, None], axis=1)  # place, cluster
    same = np.einsum("nkk->nk", there)
    a, b = np.triu_indices(size, 1)
    swaps = there[:, a, b] + there[:, b, a] - same[:, a] - same[:, b]
    return np.asarray(np.exp(-logsumexp(np.pad(swaps, ((0, 0), (1, 0))), axis=1)))


def _kept_names(order: IntArray) -> IntArray:
    """Clusters in the places that most of their draws had."""
    size = order.shape[1]
    counts = np.stack([np.bincount(own, minlength=size) for own in order.T])  # cluster, place
    cluster = linear_sum_assignment(-counts.T)[1]
    return order[:, cluster]


def _stuck(table: FloatArray) -> list[str]:
    """Chains (chains, draws, d) most of whose draws are outside the Normal of the others."""
    chains, dim = len(table), table.shape[2]
    found: list[int] = []
    for c in range(chains if chains > 1 else 0):
        others = np.delete(table, c, axis=0).reshape(-1, dim)
        if len(others) <= dim + 2:
            continue
        covariance = np.cov(others.T).reshape(dim, dim)
        covariance += 1e-9 * np.diag(np.diag(covariance)) + np.finfo(np.float64).tiny * np.eye(dim)
        away = np.linalg.solve(np.linalg.cholesky(covariance), (table[c] - others.mean(axis=0)).T)
        if np.median(np.square(away).sum(axis=0)) > chdtri(dim, _OUTSIDE):
            found.append(c)
    if chains == 2 and found:
        return ["chains 0 and 1 are in different modes"]
    return [f"chain {c} is stuck in another mode than the others" for c in found]
