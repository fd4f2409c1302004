"""The whole path from no fusion to the smallest model, one merge at a time.

A merge of clusters ``a`` and ``b`` pays as soon as the penalty exceeds
``r = increase of the Jensen gap / (sqrt(n_a) + sqrt(n_b) - sqrt(n_a + n_b))``. Always merging the
pair with the smallest ``r``, never two that share a silo, gives in one pass a solution for every
penalty.

On the way it is noted how near to each other clusters lie that *do* share a silo. Those are known
to differ, so they show what different components look like at every stage of the path.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from klfusion._utils import memory
from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.penalty import merge_saving
from klfusion._utils.progress import Report
from klfusion.merging.agglomeration import agglomerate
from klfusion.merging.nearest import Nearest
from klfusion.objective.clusters import Clusters
from klfusion.objective.merge_path import PenaltyPath
from klfusion.objective.problem import FusionProblem


@dataclass(frozen=True, eq=False)
class Distances:
    """Squared distances between cluster centres at each step of a path, all as logarithms.

    Parameters
    ----------
    merged : array of shape (m,)
        Of the pair that the step merges.
    typical, spread : array of shape (m,)
        Median and (robust) deviation, over clusters, of the distance to the nearest cluster that is
        known to differ; NaN where none is.
    known : int array of shape (m,)
        How many clusters that is taken over.
    """

    merged: FloatArray
    typical: FloatArray
    spread: FloatArray
    known: IntArray


def penalty_path(
    problem: FusionProblem, report: Report, most: float = np.inf
) -> tuple[PenaltyPath, Distances]:
    """Agglomerate in O(n^2) log-partitions and O(n^2) memory, while a merge pays at ``most``."""
    n = problem.n
    memory.require(
        4 * 8 * n * n,
        f"comparing all pairs of {n:,} components",
        "use method='exact' with penalty= or n_components=, or drop components without data",
    )
    state = Clusters(problem, np.arange(n, dtype=np.intp))
    mergeable, different = _all_pairs(state, report)
    merges, ratios, total, distances = [], [], [0.0], []
    for made in agglomerate(state, mergeable, _Ratios(state), also_meeting=True, most=most):
        a, b, others = made.a, made.b, made.others
        known = different.smallest[np.isfinite(different.smallest)]
        distance = made.increase * _inverse(*made.counts)
        distances.append((distance, *_typical_log(known), len(known)))
        merges.append((a, b))
        ratios.append(made.price)
        total.append(total[-1] + made.increase)
        report("merging", len(merges), n)
        distance_a = made.increases * _inverse(state.counts[a], state.counts[others])
        different.replace(a, b, others, np.where(made.meet, distance_a, np.inf))
    path = PenaltyPath(
        merges=np.array(merges, dtype=np.intp).reshape(-1, 2),
        ratios=np.array(ratios, dtype=np.float64),
        divergences=np.array(total),
        n_components=n - np.arange(len(merges) + 1),
    )
    merged, typical, spread, counts = np.array(distances, dtype=np.float64).reshape(-1, 4).T
    with np.errstate(divide="ignore"):
        return path, Distances(np.log(merged), typical, spread, counts.astype(np.intp))


def _all_pairs(state: Clusters, report: Report) -> tuple[Nearest, Nearest]:
    """Single components: ratios of pairs of different silos, distances within a silo."""
    report("comparing", 0, None)
    silo, increase = state.problem.silo, state.problem.pair_increases
    together = silo[:, None] == silo[None, :]
    one = np.ones(1, dtype=np.intp)
    ratio = np.where(together, np.inf, increase / merge_saving(one, one))
    return Nearest(ratio), Nearest(np.where(together, 2.0 * increase, np.inf))


class _Ratios:
    """Prices of the path: penalties from which on a merge pays."""

    def __init__(self, state: Clusters) -> None:
        self._counts = state.counts

    def prices(self, increases: FloatArray, a: int, others: IntArray) -> FloatArray:
        return np.asarray(increases / merge_saving(self._counts[a], self._counts[others]))

    def increases(self, prices: FloatArray, a: int, others: IntArray) -> FloatArray:
        return np.asarray(prices * merge_saving(self._counts[a], self._counts[others]))

    def merge(self, a: int, b: int) -> None:
        """The state has counted them."""


def _inverse(n_a: IntArray | int, n_b: IntArray | int) -> FloatArray:
    """``1/n_a + 1/n_b``: times the increase of a merge, the squared distance of the centres."""
    return np.asarray(1.0 / n_a + 1.0 / n_b)


def _typical_log(values: FloatArray) -> tuple[float, float]:
    """Median of the logarithms, and their deviation as the median tells it."""
    if len(values) == 0:
        return np.nan, np.nan
    logs = np.log(np.maximum(values, np.finfo(np.float64).tiny))
    middle = _median(logs)
    return middle, 1.4826 * _median(np.abs(logs - middle))


def _median(values: FloatArray) -> float:
    """As numpy's, which takes five times as long where values are few."""
    ordered, n = np.sort(values), len(values)
    return 0.5 * float(ordered[(n - 1) // 2] + ordered[n // 2])
