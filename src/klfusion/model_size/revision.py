"""Revision of a matching, with the distribution of distances between members and their cluster.

Removing a component from its cluster and adding it again increases the Jensen gap by some nats.
These increases, over all components, are the reference distribution of members. With it, two
errors of the sampled path can be found:

- outliers of a cluster: they are no farther from it than the farthest member is expected to be;
- a mixed component, one local component fitted to the data of two. It lies within the distribution
  of members around a weighted average of two clusters that its silos lack, and outside around
  every single one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import ndtri

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion.objective.clusters import Clusters
from klfusion.objective.problem import FusionProblem

_LEAST_MEMBERS = 10  # of clusters of three or more; fewer do not show a distribution
_SPLIT_DEVIATIONS = 4.5  # of the share that halves explain, above that of halves of one component
_LEVEL = 0.05  # probability that the farthest of all members is rejected
_QUANTILE_95 = 1.645  # standard deviations: 95 % of members lie within
_MIXED_DEVIATIONS = 2.5  # a mixed component is so much nearer to an average than to a cluster
_SHARES = np.linspace(0.2, 0.8, 5)  # of the first of two clusters in an average
_FINER_STEPS = (0.04, 0.01)  # of shares, around the best so far
_AROUND = np.arange(-3, 4)
_NEAREST = 6  # clusters of which all pairs are averaged
_OUTCOMES = 500  # words of the coarse problem on which most candidates are rejected
_REJECTED = 2.0  # times the 95 % quantile there: gaps of the coarse problem are lower bounds
_LEAST_DEVIATION = 1e-3  # of logarithms; copies would have none
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class MemberDistribution:
    """Log-normal distribution of the increase of the gap by which a member joins its cluster.

    Median and upper standard deviation of the logarithm.
    """

    median: float
    deviation: float

    @classmethod
    def of(cls, clusters: Clusters) -> MemberDistribution | None:
        """Fit to clusters of three or more; ``None`` if those have too few members."""
        members = np.flatnonzero(clusters.counts[clusters.labels] > 2)
        if len(members) < _LEAST_MEMBERS:
            return None
        logs = _logarithm(_leave_one_out_increases(clusters, members))
        median, upper = np.quantile(logs, [0.5, 0.8413])  # the upper one: a standard deviation
        return cls(float(median), max(float(upper - median), _LEAST_DEVIATION))

    def z_score(self, increase: FloatArray | float) -> FloatArray:
        """Standard deviations of an increase above the median."""
        return np.asarray((_logarithm(np.asarray(increase)) - self.median) / self.deviation)

    def explained(
        self, count: FloatArray | float, part: FloatArray | float, stretch: float = 1.0
    ) -> FloatArray:
        """Upper limit of the share of a component's spread that a plane through it explains.

        The plane cuts off ``part`` of its ``count`` members, along an axis with ``stretch`` times
        the average share. The logarithm of a chi-square of ``d`` degrees of freedom has standard
        deviation ``sqrt(2 / d)``, which gives the dimension.
        """
        dim = max(2.0 / self.deviation**2, 1.0)
        density = np.exp(-0.5 * ndtri(part) ** 2) / np.sqrt(2.0 * np.pi)
        expected = stretch * density**2 / (part * (1.0 - part)) / dim + 1.0 / (count - 1.0)
        deviation = np.sqrt(2.0 * (1.0 - 8.0 / (np.pi**2 * dim)) / (count * dim))
        return np.asarray(expected + _SPLIT_DEVIATIONS * deviation)

    @property
    def quantile_95(self) -> float:
        """The increase that 95 % of members do not exceed."""
        return float(np.exp(self.median + _QUANTILE_95 * self.deviation))

    def maximum(self, n: int) -> float:
        """The increase that the farthest of ``n`` members exceeds in 5 % of cases (Sidak)."""
        reach = float(ndtri((1.0 - _LEVEL) ** (1.0 / n)))
        return float(np.exp(self.median + reach * self.deviation))


def find_mixed(problem: FusionProblem, labels: IntArray) -> BoolArray:
    """Which components are in mixed clusters, (n,): averages of two others, the smallest first.

    Natural parameters of observations add up. So a component fitted to the observations of two
    lies between them. Every silo keeps one component at least.
    """
    clusters = Clusters(problem, labels)
    mixed = np.zeros(clusters.size, dtype=bool)
    members = MemberDistribution.of(clusters)
    if members is None:
        return mixed[clusters.labels]
    holds = clusters.occupied()
    averages = _Averages(clusters)
    coarse = _Averages(Clusters(problem.coarser(_OUTCOMES), clusters.labels))
    for c in np.argsort(clusters.counts, kind="stable"):
        absent = ~holds[:, holds[c]]  # from the silos that hold c, (G, n_c)
        others = np.flatnonzero(
            (clusters.counts > clusters.counts[c]) & ~mixed & (absent.mean(axis=1) >= 0.5)
        )
        if len(others) < 2:
            continue
        single = clusters.merge_increases(np.full(len(others), c), others)
        near = others[np.argsort(single, kind="stable")[:_NEAREST]]
        pairs = np.array(list(combinations(near, 2)))
        pairs = pairs[(absent[pairs[:, 0]] & absent[pairs[:, 1]]).mean(axis=1) >= 0.5]
        if len(pairs) == 0:
            continue
        limit = _REJECTED * members.quantile_95
        if coarse.clusters.problem is not problem and coarse.least_increase(int(c), pairs) > limit:
            continue
        increase = averages.least_increase(int(c), pairs)
        nearer = float(members.z_score(single.min()) - members.z_score(increase))
        mixed[c] = increase <= members.quantile_95 and nearer >= _MIXED_DEVIATIONS
    found: BoolArray = mixed[clusters.labels]
    for rows in problem.silos:
        if found[rows].all():
            found[rows] = False
    return found


class _Averages:
    """Weighted averages of two centres, each as certain as the mass behind it."""

    def __init__(self, clusters: Clusters) -> None:
        self.clusters = clusters
        self._known: dict[tuple[int, int], FloatArray] = {}  # log-partitions at `_SHARES`

    def least_increase(self, c: int, pairs: IntArray) -> float:
        """Least increase of the gaps if ``c`` joined an average of one of the pairs (k, 2)."""
        increases = np.empty((len(pairs), len(_SHARES)))
        for k, (i, j) in enumerate(pairs.tolist()):
            if (i, j) not in self._known:
                average = self._average(i, j, _SHARES)[0]
                self._known[i, j] = self.clusters.problem.family.log_partition(average)
            increases[k] = self._increases(c, i, j, _SHARES, self._known[i, j])
        best, share = np.unravel_index(increases.argmin(), increases.shape)
        i, j = pairs[best].tolist()
        # Between clusters that lie far apart a coarse grid of shares would miss the minimum.
        middle = _SHARES[share]
        for step in _FINER_STEPS:
            finer = middle + step * _AROUND
            found = self._increases(c, i, j, finer)
            middle = finer[found.argmin()]
        return float(found.min())

    def _average(self, i: int, j: int, share: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Averages (m, p), and the mass (m,) that makes each as certain as its two centres."""
        first, second = self.clusters.mass[i], self.clusters.mass[j]
        average = np.outer(share / first, self.clusters.sums[i])
        average += np.outer((1.0 - share) / second, self.clusters.sums[j])
        return average, 1.0 / (share**2 / first + (1.0 - share) ** 2 / second)

    def _increases(
        self, c: int, i: int, j: int, share: FloatArray, log_partition: FloatArray | None = None
    ) -> FloatArray:
        """Increase of the gaps if ``c`` joined each average of clusters ``i`` and ``j``, (m,)."""
        clusters, family = self.clusters, self.clusters.problem.family
        average, mass = self._average(i, j, share)
        if log_partition is None:
            log_partition = family.log_partition(average)
        total = mass + clusters.mass[c]
        average *= (mass / total)[:, None]
        average += clusters.sums[c] / total[:, None]
        before = mass * log_partition + clusters.mass[c] * clusters.centre_a[c]
        return np.asarray(before - total * family.log_partition(average))


def _leave_one_out_increases(clusters: Clusters, members: IntArray) -> FloatArray:
    """Increase of the gap of the rest of its cluster if each of some components joins it."""
    problem, own = clusters.problem, clusters.labels[members]
    weights = problem.weights[members]
    rest = clusters.mass[own] - weights
    sums = clusters.sums[own] - weights[:, None] * problem.natural[members]
    before = weights * problem.log_partition[members]
    before += rest * problem.family.log_partition(sums / rest[:, None])
    return np.asarray(before - clusters.mass[own] * clusters.centre_a[own])


def _logarithm(increase: FloatArray) -> FloatArray:
    return np.log(np.maximum(increase, _TINY))
