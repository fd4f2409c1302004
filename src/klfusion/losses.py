"""What a merge costs in prediction, told from the posteriors alone.

Observations of components ``i`` in a cluster are predicted by the cluster's average instead of by
their own component: each loses ``KL(component || average)``, in all ``sum_i N_i KL_i / N`` nats an
observation. That is a Jensen gap, of posteriors as good as certain weighted by their observations
(`FusionProblem.per_observation`), less what samples of one component differ by chance. It is an
upper estimate: the other components left may predict what an average no longer does.
"""

from __future__ import annotations

import numpy as np

from klfusion._typing import FloatArray
from klfusion.algorithm import Report
from klfusion.clusters import Clusters, merge_saving
from klfusion.errors import KLFusionError
from klfusion.nearest import Nearest
from klfusion.penalty_path import PenaltyPath
from klfusion.problem import FusionProblem


def path_losses(problem: FusionProblem, path: PenaltyPath) -> FloatArray | None:
    """The loss before each step of a path and at its end, (m + 1,); None if it cannot be told."""
    observed = problem.per_observation()
    if observed is None:
        return None
    state, chance = Clusters(observed, np.arange(problem.n, dtype=np.intp)), Chance(problem)
    losses = np.zeros(len(path.merges) + 1)
    for step, (a, b) in enumerate(path.merges):
        increase = float(state.merge_increases(np.array([a]), np.array([b]))[0])
        state.merge(int(a), int(b), increase)
        losses[step + 1] = losses[step] + chance.taken_off(increase, int(a), int(b))
    return _rising(losses)


class Chance:
    """What the observations of two clusters would seem to lose if they were of one component."""

    def __init__(self, problem: FusionProblem) -> None:
        self._each = problem.chance_per_observation()

    def taken_off(self, loss: float, a: int, b: int) -> float:
        """The loss of merging ``b`` into ``a`` beyond it; the two are one from now on."""
        by_chance = float(min(self._each[a], self._each[b]))
        self._each[a] = max(self._each[a], self._each[b])
        return loss - by_chance


def least_loss_path(problem: FusionProblem, report: Report) -> PenaltyPath:
    """Always the merge that loses least, components of one silo not excepted, down to one.

    Parameters
    ----------
    problem : FusionProblem
    report : callable
        Told of progress.

    Returns
    -------
    PenaltyPath
        Its divergences are its losses, chance included, its ratios on their scale.
    """
    observed = problem.per_observation()
    if observed is None:
        raise KLFusionError(
            "within_silo_merging: expected posteriors that tell how many observations they are "
            f"worth, got {problem.family}, which does not"
        )
    report("comparing", 0, None)
    n = problem.n
    state, chance = Clusters(observed, np.arange(n, dtype=np.intp)), Chance(problem)
    pairs = Nearest(observed.pair_increases.copy())
    merges, ratios, total, losses = [], [], [0.0], [0.0]
    for step in range(n - 1):
        report("merging", step + 1, n)
        a = int(pairs.smallest.argmin())
        b, increase = int(pairs.nearest[a]), float(pairs.smallest[a])
        ratios.append(increase / float(merge_saving(state.counts[a], state.counts[b])))
        merges.append((a, b))
        total.append(total[-1] + increase)
        losses.append(losses[-1] + chance.taken_off(increase, a, b))
        state.merge(a, b, increase)
        others = np.flatnonzero(state.counts)
        others = others[others != a]
        pairs.replace(a, b, others, state.merge_increases_with(a, others))
    return PenaltyPath(
        merges=np.array(merges, dtype=np.intp).reshape(-1, 2),
        ratios=np.array(ratios, dtype=np.float64),
        divergences=np.array(total),
        n_components=n - np.arange(n),
        losses=_rising(np.array(losses)),
    )


def _rising(losses: FloatArray) -> FloatArray:
    """Luck with one merge does not make good what another lost."""
    return np.asarray(np.maximum.accumulate(losses))
