"""A second look at a matching: clusters weighed by how far members usually lie from their own.

Taking a component out of its cluster and putting it back costs some nats. Over all components that
cost shows what is *usual*, in silos as in local fits. Three things can then be told that the path
of merges cannot:

- a *double*, two components in one cluster: more of what its members differ by is the difference of
  two halves than would be if there were one (the test of Duda and Hart);

- a *straggler*, what one silo alone has, is no farther from a larger cluster than the
  farthest of so many members is expected to be: it belongs there;
- a *blend*, what a local fit makes of two components it failed to tell apart, lies as near as usual
  to a weighted average of two clusters that its silos lack, and far from every single one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import ndtri

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion._utils.iterate import settle
from klfusion.objective.clusters import Clusters
from klfusion.objective.problem import FusionProblem

# Members of clusters of three or more it takes to know what is usual.
_LEAST_MEMBERS = 10
# A double: halves of three members or more differ by this many deviations more than those of one
# component would, and by a third of all.
_DOUBLE = 4.5
_DOUBLE_SHARE = 1.0 / 3.0
_LEAST_OF_DOUBLE = 6
_PASSES = 10
# A straggler stays alone if the farthest of all members lies so far in one case of twenty.
_LEVEL = 0.05
# A blend lies no farther than 95 % of members from an average of two clusters, and farther from
# each of them by two and a half deviations.
_USUAL = 1.645
_APART = 2.5
_SHARES = np.linspace(0.2, 0.8, 5)
_FINER_STEPS = (0.04, 0.01)
_AROUND = np.arange(-3, 4)
_NEAREST = 6  # clusters of which pairs are tried
_OUTCOMES = 500  # words over which what is surely no blend is told
_SURELY = 2.0  # times as far there as blends may be at most


@dataclass(frozen=True)
class Usual:
    """Median and (upper) deviation of the logarithm of what a member adds to its cluster."""

    middle: float
    spread: float

    @classmethod
    def of(cls, clusters: Clusters) -> Usual | None:
        """Learned from clusters of three or more; ``None`` if those are too few."""
        members = np.flatnonzero(clusters.counts[clusters.labels] > 2)
        if len(members) < _LEAST_MEMBERS:
            return None
        logs = _logarithm(_left_out_increases(clusters, members))
        middle, upper = np.quantile(logs, [0.5, 0.8413])
        return cls(float(middle), max(float(upper - middle), 1e-3))

    def deviations(self, increase: FloatArray | float) -> FloatArray:
        """How unusual it is that something adds so much."""
        return np.asarray((_logarithm(np.asarray(increase)) - self.middle) / self.spread)

    def explained(
        self,
        count: FloatArray | float,
        part: FloatArray | float,
        stretch: float = 1.0,
    ) -> FloatArray:
        """The most of a component's spread that is explained by a plane through it.

        The plane cuts off ``part`` of its ``count`` members, along an axis with ``stretch`` times
        the usual share. A chi-square of ``d`` degrees varies by ``sqrt(2 / d)`` on the scale of
        logarithms, which tells the dimension.
        """
        dim = max(2.0 / self.spread**2, 1.0)
        density = np.exp(-0.5 * ndtri(part) ** 2) / np.sqrt(2.0 * np.pi)
        expected = stretch * density**2 / (part * (1.0 - part)) / dim + 1.0 / (count - 1.0)
        deviation = np.sqrt(2.0 * (1.0 - 8.0 / (np.pi**2 * dim)) / (count * dim))
        return np.asarray(expected + _DOUBLE * deviation)

    @property
    def most(self) -> float:
        """What 95 % of members add at most."""
        return float(np.exp(self.middle + _USUAL * self.spread))

    def farthest(self, n: int) -> float:
        """What the farthest of ``n`` members adds, but for one case of twenty."""
        reach = float(ndtri((1.0 - _LEVEL) ** (1.0 / n)))
        return float(np.exp(self.middle + reach * self.spread))


def part_doubles(problem: FusionProblem, labels: IntArray) -> IntArray:
    """Labels with doubles parted in two, and again while that leaves others.

    Parameters
    ----------
    problem : FusionProblem
    labels : int array of shape (n,)

    Returns
    -------
    int array of shape (n,)
    """
    clusters = Clusters(problem, labels)
    for _ in range(_PASSES):
        large = np.flatnonzero(clusters.counts >= _LEAST_OF_DOUBLE)
        halves = {int(g): _in_two(problem, np.flatnonzero(clusters.labels == g)) for g in large}
        halved = clusters.labels.copy()
        for number, half in enumerate(halves.values()):
            halved[half] = clusters.size + number
        # What is usual, and in how many dimensions members vary, must not be learned from doubles.
        usual = Usual.of(Clusters(problem, halved))
        if usual is None:
            break
        parted = [half for g, half in halves.items() if _is_double(clusters, g, half, usual)]
        if not parted:
            break
        for number, half in enumerate(parted):
            clusters.labels[half] = clusters.size + number
        clusters.compact()
    return clusters.labels


def _in_two(problem: FusionProblem, members: IntArray) -> IntArray:
    """One of the two parts that two means, started far apart, divide a cluster into."""
    family, natural = problem.family, problem.natural[members]
    log_partition, weights = problem.log_partition[members], problem.weights[members]
    centres = (weights @ natural / weights.sum())[None]
    for _ in range(2):  # the member farthest from the centre, and the one farthest from that
        far = int(family.kl_from(centres, natural, log_partition)[:, 0].argmax())
        centres, previous = natural[far : far + 1], centres
    centres = np.concatenate([previous, centres])

    def nearest(centres: FloatArray) -> BoolArray:
        return np.asarray(family.kl_from(centres, natural, log_partition).argmin(axis=1) == 1)

    def step(second: BoolArray) -> BoolArray:
        if second.all() or not second.any():
            return second
        halves = (~second, second)
        return nearest(np.stack([weights[h] @ natural[h] / weights[h].sum() for h in halves]))

    return members[settle(step, nearest(centres), max_iter=_PASSES - 1)]


def _is_double(clusters: Clusters, g: int, half: IntArray, usual: Usual) -> bool:
    """Whether a half differs from the rest by more than halves of one component do."""
    count, least = int(clusters.counts[g]), 3
    if not least <= len(half) <= count - least:
        return False
    problem = clusters.problem
    weights = problem.weights[half]
    sums, mass = weights @ problem.natural[half], weights.sum()
    rest, rest_mass = clusters.sums[g] - sums, clusters.mass[g] - mass
    parts = np.stack([sums / mass, rest / rest_mass])
    before = np.array([mass, rest_mass]) @ problem.family.log_partition(parts)
    gap = clusters.gaps()[g]
    share = (before - clusters.mass[g] * clusters.centre_a[g]) / max(gap, 1e-300)
    return bool(share >= max(float(usual.explained(count, 0.5)), _DOUBLE_SHARE))


def gather_stragglers(problem: FusionProblem, labels: IntArray) -> IntArray:
    """Labels with stragglers put where they belong, the nearest first.

    Parameters
    ----------
    problem : FusionProblem
    labels : int array of shape (n,)

    Returns
    -------
    int array of shape (n,)
    """
    clusters = Clusters(problem, labels)
    while (usual := Usual.of(clusters)) is not None:
        alone, larger = np.flatnonzero(clusters.counts == 1), np.flatnonzero(clusters.counts > 2)
        holds = clusters.occupied()
        a, b = np.nonzero(~(holds[larger] @ holds[alone].T))
        if len(a) == 0:
            break
        increases = clusters.merge_increases(larger[a], alone[b])
        nearest = int(increases.argmin())
        if increases[nearest] > usual.farthest(problem.n):
            break
        clusters.merge(int(larger[a[nearest]]), int(alone[b[nearest]]), float(increases[nearest]))
        clusters.compact()
    return clusters.labels


def find_blends(problem: FusionProblem, labels: IntArray) -> BoolArray:
    """Which components are in clusters that are blends of two others, the smallest looked at first.

    Natural parameters of observations add up, so those of a component that describes the
    observations of two lie between theirs.

    Parameters
    ----------
    problem : FusionProblem
    labels : int array of shape (n,)

    Returns
    -------
    bool array of shape (n,)
    """
    clusters = Clusters(problem, labels)
    blended = np.zeros(clusters.size, dtype=bool)
    usual = Usual.of(clusters)
    if usual is None:
        return blended[clusters.labels]
    holds = clusters.occupied()
    coarse = Clusters(problem.coarser(_OUTCOMES), clusters.labels)
    known: dict[tuple[int, int], FloatArray] = {}
    known_coarse: dict[tuple[int, int], FloatArray] = {}
    for c in np.argsort(clusters.counts, kind="stable"):
        absent = ~holds[:, holds[c]]  # from the silos that hold c, (G, n_c)
        others = np.flatnonzero(
            (clusters.counts > clusters.counts[c]) & ~blended & (absent.mean(axis=1) >= 0.5)
        )
        if len(others) < 2:
            continue
        single = clusters.merge_increases(np.full(len(others), c), others)
        near = others[np.argsort(single, kind="stable")[:_NEAREST]]
        pairs = np.array(list(combinations(near, 2)))
        pairs = pairs[(absent[pairs[:, 0]] & absent[pairs[:, 1]]).mean(axis=1) >= 0.5]
        if len(pairs) == 0:
            continue
        if coarse.problem is not problem:  # gaps are smaller there, and told in a moment
            increase = _increase_over_best_blend(coarse, int(c), pairs, known_coarse)
            if increase > _SURELY * usual.most:
                continue
        increase = _increase_over_best_blend(clusters, int(c), pairs, known)
        apart = float(usual.deviations(single.min()) - usual.deviations(increase))
        blended[c] = increase <= usual.most and apart >= _APART
    found: BoolArray = blended[clusters.labels]
    for rows in problem.silos:  # no silo goes without
        if found[rows].all():
            found[rows] = False
    return found


def _increase_over_best_blend(
    clusters: Clusters, c: int, pairs: IntArray, known: dict[tuple[int, int], FloatArray]
) -> float:
    """Least increase of the gaps if ``c`` joined a weighted average of one of the pairs (k, 2).

    ``known`` keeps the averages' log-partitions, which do not depend on ``c``.
    """
    increases = np.empty((len(pairs), len(_SHARES)))
    for k, (i, j) in enumerate(pairs.tolist()):
        if (i, j) not in known:
            known[i, j] = clusters.problem.family.log_partition(_blends(clusters, i, j, _SHARES)[0])
        increases[k] = _blend_increases(clusters, c, i, j, _SHARES, known[i, j])
    best, share = np.unravel_index(increases.argmin(), increases.shape)
    i, j = pairs[best].tolist()
    # Where clusters lie far apart for what is usual, a coarse grid of shares would miss it.
    middle = _SHARES[share]
    for step in _FINER_STEPS:
        finer = middle + step * _AROUND
        found = _blend_increases(clusters, c, i, j, finer)
        middle = finer[found.argmin()]
    return float(found.min())


def _blends(clusters: Clusters, i: int, j: int, share: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Averages of two centres (m, p), each as certain as the mass behind it (m,) makes it."""
    first, second = clusters.mass[i], clusters.mass[j]
    blend = np.outer(share / first, clusters.sums[i])
    blend += np.outer((1.0 - share) / second, clusters.sums[j])
    return blend, 1.0 / (share**2 / first + (1.0 - share) ** 2 / second)


def _blend_increases(
    clusters: Clusters,
    c: int,
    i: int,
    j: int,
    share: FloatArray,
    log_partition: FloatArray | None = None,
) -> FloatArray:
    """Increase of the gaps if ``c`` joined each average of clusters ``i`` and ``j``, (m,)."""
    family = clusters.problem.family
    blend, mass = _blends(clusters, i, j, share)
    if log_partition is None:
        log_partition = family.log_partition(blend)
    total = mass + clusters.mass[c]
    blend *= (mass / total)[:, None]
    blend += clusters.sums[c] / total[:, None]
    before = mass * log_partition + clusters.mass[c] * clusters.centre_a[c]
    return np.asarray(before - total * family.log_partition(blend))


def _left_out_increases(clusters: Clusters, members: IntArray) -> FloatArray:
    """What each of some components adds to the gap of the rest of its cluster."""
    problem, own = clusters.problem, clusters.labels[members]
    weights = problem.weights[members]
    rest = clusters.mass[own] - weights
    sums = clusters.sums[own] - weights[:, None] * problem.natural[members]
    before = weights * problem.log_partition[members]
    before += rest * problem.family.log_partition(sums / rest[:, None])
    return np.asarray(before - clusters.mass[own] * clusters.centre_a[own])


def _logarithm(increase: FloatArray) -> FloatArray:
    return np.log(np.maximum(increase, np.finfo(np.float64).tiny))
