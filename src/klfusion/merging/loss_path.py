"""What a merge costs in prediction, told from the posteriors alone.

Observations of components ``i`` in a cluster are predicted by the cluster's average instead of by
their own component: each loses ``KL(component || average)``, in all ``sum_i N_i KL_i / N`` nats an
observation. That is a Jensen gap, of posteriors as good as certain weighted by their observations
(`FusionProblem.per_observation`), less what samples of one component differ by chance. It is an
upper estimate: the other components left may predict what an average no longer does.
"""

from __future__ import annotations

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.penalty import merge_saving
from klfusion._utils.progress import Report
from klfusion.merging.agglomeration import agglomerate
from klfusion.merging.nearest import Nearest
from klfusion.objective.clusters import Clusters
from klfusion.objective.merge_path import PenaltyPath
from klfusion.objective.problem import FusionProblem


def path_losses(problem: FusionProblem, path: PenaltyPath) -> FloatArray | None:
    """The loss before each step of a path and at its end, (m + 1,); None if it cannot be told."""
    observed = problem.per_observation()
    if observed is None:
        return None
    chance, losses = Chance(problem), [0.0]
    for (a, b), increase in zip(path.merges, _walked(observed, path.merges)[0], strict=True):
        losses.append(losses[-1] + increase - float(chance.of(a, b)))
        chance.merge(a, b)
    return _rising(np.array(losses))


class Chance:
    """What the observations of two clusters would seem to lose if they were of one component."""

    def __init__(self, problem: FusionProblem) -> None:
        self._each = problem.chance_per_observation()

    def of(self, a: IntArray | int, b: IntArray | int) -> FloatArray:
        """That of merging ``b`` into ``a``."""
        return np.asarray(np.minimum(self._each[a], self._each[b]))

    def prices(self, increases: FloatArray, a: int, others: IntArray) -> FloatArray:
        """What merges lose beyond that."""
        return np.asarray(increases - self.of(a, others))

    def increases(self, prices: FloatArray, a: int, others: IntArray) -> FloatArray:
        """What merges that lose so much add to the gaps."""
        return np.asarray(prices + self.of(a, others))

    def merge(self, a: int, b: int) -> None:
        """The two are one from now on."""
        self._each[a] = max(self._each[a], self._each[b])


def least_loss_path(
    problem: FusionProblem, observed: FusionProblem, report: Report, *, within_silos: bool
) -> PenaltyPath:
    """Always the merge that loses least.

    Parameters
    ----------
    problem : FusionProblem
    observed : FusionProblem
        The same by nats an observation: its `FusionProblem.per_observation`.
    report : callable
        Told of progress.
    within_silos : bool
        Whether components of one silo may merge, too. The path then goes down to one.

    Returns
    -------
    PenaltyPath
    """
    report("comparing", 0, None)
    n, every = problem.n, np.arange(problem.n)
    state, chance = Clusters(observed, every), Chance(problem)
    excluded = (problem.silo[:, None] == problem.silo) & (not within_silos)
    losses = observed.pair_increases - chance.of(every[:, None], every)
    pairs = Nearest(np.where(excluded, np.inf, losses))
    merges, total = [], [0.0]
    for made in agglomerate(state, pairs, chance, apart=not within_silos):
        merges.append((made.a, made.b))
        total.append(total[-1] + made.price)
        report("merging", len(merges), n)
    steps = np.array(merges, dtype=np.intp).reshape(-1, 2)
    increases, savings = _walked(problem, steps)
    return PenaltyPath(
        merges=steps,
        ratios=increases / savings,
        divergences=np.concatenate([[0.0], np.cumsum(increases)]),
        n_components=n - np.arange(len(steps) + 1),
        losses=_rising(np.array(total)),
    )


def _walked(problem: FusionProblem, merges: IntArray) -> tuple[FloatArray, FloatArray]:
    """What each of some merges adds to the gaps, and what it saves of the penalty, both (m,)."""
    state = Clusters(problem, np.arange(problem.n, dtype=np.intp))
    increases, savings = np.empty((2, len(merges)))
    for step, (a, b) in enumerate(merges):
        increases[step] = state.merge_increases(np.array([a]), np.array([b]))[0]
        savings[step] = merge_saving(state.counts[a], state.counts[b])
        state.merge(int(a), int(b), float(increases[step]))
    return increases, savings


def _rising(losses: FloatArray) -> FloatArray:
    """Luck with one merge does not make good what another lost."""
    return np.asarray(np.maximum.accumulate(losses))
