"""Estimated predictive loss of merges, from the posteriors alone.

In a cluster, observations of component ``i`` are predicted by the cluster's average instead of by
their own component. Each loses ``KL(component || average)``: ``sum_i N_i KL_i / N`` nats per
observation in all. This is a Jensen gap of nearly certain posteriors weighted by their observations
(`FusionProblem.per_observation`). The expected difference between samples of one component is
subtracted. The estimate is an upper one, because other components may predict what an average
does not.
"""

from collections.abc import Sequence

import numpy as np

from klfusion._utils.arrays import CACHED_ENTRIES, FloatArray, IntArray, blocks
from klfusion._utils.running import Report
from klfusion.merging.agglomeration import AllPairs, Which, agglomerate
from klfusion.objective.clusters import Clusters
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import MergePath


def path_losses(problem: FusionProblem, path: MergePath) -> FloatArray | None:
    """Loss before each step of a path and at its end, (m + 1,); None if it cannot be estimated."""
    observed = problem.per_observation()
    if observed is None:
        return None
    pricing, losses = LossPricing(problem), [0.0]
    increases = _increases(observed, path.merges).tolist()
    for (a, b), increase in zip(path.merges.tolist(), increases, strict=True):
        losses.append(losses[-1] + increase - float(pricing.by_chance(a, b)))
        pricing.merge(a, b)
    return _rising(losses)


class LossPricing:
    """Price of a merge: its loss beyond what chance explains if the components are the same."""

    def __init__(self, problem: FusionProblem) -> None:
        self._by_chance = problem.chance_per_observation()

    def by_chance(self, a: IntArray | int, b: Which) -> FloatArray:
        """Expected increase of merging clusters ``a`` and ``b`` of one component."""
        return np.asarray(np.minimum(self._by_chance[a], self._by_chance[b]))

    def prices(self, increases: FloatArray, a: IntArray | int, b: Which) -> FloatArray:
        """Increases beyond chance, nats per observation."""
        return np.asarray(increases - self.by_chance(a, b))

    def increases(self, prices: FloatArray, a: IntArray | int, b: Which) -> FloatArray:
        """The inverse of `prices`."""
        return np.asarray(prices + self.by_chance(a, b))

    def merge(self, a: int, b: int) -> None:
        """A union has as many free parameters as the part with more."""
        self._by_chance[a] = max(self._by_chance[a], self._by_chance[b])


def least_loss_path(
    problem: FusionProblem, observed: FusionProblem, report: Report, *, within_silos: bool
) -> MergePath:
    """Always the merge with the least loss in ``observed``, `FusionProblem.per_observation`.

    With ``within_silos`` components of one silo may merge, too, and the path ends with one cluster.
    """
    report("comparing", 0, None)
    n, every = problem.n, np.arange(problem.n)
    state, pricing = Clusters(observed, every), LossPricing(problem)
    prices = pricing.prices(observed.pair_increases, every[:, None], every)
    excluded = (problem.silo[:, None] == problem.silo) & (not within_silos)
    candidates = AllPairs(state, np.where(excluded, np.inf, prices), pricing)
    made = list(agglomerate(candidates, n, report))
    merges = np.array([(merge.a, merge.b) for merge in made], dtype=np.intp).reshape(-1, 2)
    losses = _rising(np.cumsum([0.0, *(merge.price for merge in made)]))
    return MergePath.of_merges(n, merges, _increases(problem, merges), losses=losses)


def path_of(problem: FusionProblem, path: MergePath) -> MergePath:
    """The same merges, with the penalties and divergences of another problem."""
    return MergePath.of_merges(problem.n, path.merges, _increases(problem, path.merges))


def _increases(problem: FusionProblem, merges: IntArray) -> FloatArray:
    """Replay merges: the increase of the Jensen gaps by each, (m,)."""
    mass, sums = problem.weights.copy(), problem.weights[:, None] * problem.natural
    total, after = np.empty((2, len(merges)))
    for some in blocks((len(merges), problem.family.size), CACHED_ENTRIES):
        unions = np.empty((len(merges[some]), problem.family.size))
        for step, (a, b) in enumerate(merges[some].tolist()):
            mass[a] += mass[b]
            sums[a] += sums[b]
            total[some.start + step], unions[step] = mass[a], sums[a]
        after[some] = problem.family.log_partition_of_average(unions, total[some])
    of_cluster, increases = problem.weights * problem.log_partition, np.empty(len(merges))
    of_union = total * after
    for step, (a, b) in enumerate(merges.tolist()):
        before = of_cluster[a] + of_cluster[b]
        increases[step] = max(before - of_union[step], 0.0)
        of_cluster[a] = before - increases[step]
    return increases


def _rising(losses: Sequence[float] | FloatArray) -> FloatArray:
    """Running maximum of totals: a merge that seems to gain does not offset one that loses."""
    return np.asarray(np.maximum.accumulate(losses))
