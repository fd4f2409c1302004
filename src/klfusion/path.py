"""The whole path from no fusion to the smallest model, one merge at a time.

A merge of clusters ``a`` and ``b`` pays as soon as the penalty exceeds
``r = increase of the Jensen gap / (sqrt(n_a) + sqrt(n_b) - sqrt(n_a + n_b))``. Always merging the
pair with the smallest ``r``, never two that share a silo, gives in one pass a solution for every
penalty.

On the way it is noted how near to each other clusters lie that *do* share a silo. Those are known
to differ, so they show what different components look like at every stage of the path.

The Jensen gap of a union is at least the sum of its parts' gaps. So what it takes to merge ``c``
with the union of ``a`` and ``b`` is at least what it takes with either, less what merging those
took. Where that bound is far from the smallest ``r`` nothing is computed until it no longer is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from klfusion import memory
from klfusion._typing import BoolArray, FloatArray, IntArray
from klfusion.algorithm import Report
from klfusion.clusters import Clusters, how_many_shared, merge_saving
from klfusion.nearest import Nearest
from klfusion.penalty_path import PenaltyPath
from klfusion.problem import FusionProblem

# Bounds below so many times the smallest ratio are made exact: of a cluster just merged, and of one
# whose bound has become the smallest.
_SOON, _NOW = 1.5, 2.0


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
    holds = state.occupied().astype(np.float32)
    mergeable, different = _all_pairs(state, report)
    bounded = np.zeros((n, n), dtype=bool)  # ratios that are only known to be so large at least
    merges, ratios, total, distances = [], [], [0.0], []
    while (ratio := mergeable.smallest.min(initial=np.inf)) < most:
        a = int(mergeable.smallest.argmin())
        b = int(mergeable.nearest[a])
        if bounded[a, b]:
            _settle(state, mergeable, bounded, a if state.counts[a] > 1 else b, _NOW * ratio)
            continue
        increase = float(ratio * merge_saving(state.counts[a], state.counts[b]))
        known = different.smallest[np.isfinite(different.smallest)]
        distances.append((increase * _inverse(state, a, b), *_typical_log(known), len(known)))
        merges.append((a, b))
        ratios.append(float(ratio))
        total.append(total[-1] + increase)
        report("merging", len(merges), n)

        others = np.flatnonzero(state.counts)
        others = others[(others != a) & (others != b)]
        increases = np.maximum(*(_increases(state, mergeable, one, others) for one in (a, b)))
        increases -= increase
        state.merge(a, b, increase)
        holds[a] += holds[b]
        meet = how_many_shared(holds[others], holds[a]) > 0
        saving = merge_saving(state.counts[a], state.counts[others])
        later = ~meet & (increases > _SOON * ratio * saving)
        increases[~later] = state.merge_increases_with(a, others[~later])
        bounded[a, :] = bounded[:, a] = False
        bounded[a, others[later]] = bounded[others[later], a] = True
        mergeable.replace(a, b, others, np.where(meet, np.inf, increases / saving))
        distance_a = increases * _inverse(state, a, others)
        different.replace(a, b, others, np.where(meet, distance_a, np.inf))
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


def _increases(state: Clusters, mergeable: Nearest, one: int, others: IntArray) -> FloatArray:
    """What merging with each of the others takes, as far as it is known."""
    saving = merge_saving(state.counts[one], state.counts[others])
    return np.asarray(mergeable.matrix[one, others] * saving)


def _settle(state: Clusters, mergeable: Nearest, bounded: BoolArray, one: int, most: float) -> None:
    """Put exact ratios of a cluster in the place of bounds up to ``most``."""
    others = np.flatnonzero(bounded[one] & (mergeable.matrix[one] <= most))
    increases = state.merge_increases_with(one, others)
    bounded[one, others] = bounded[others, one] = False
    saving = merge_saving(state.counts[one], state.counts[others])
    mergeable.correct(one, others, increases / saving)


def _inverse(state: Clusters, a: int, b: int | IntArray) -> FloatArray:
    """``1/n_a + 1/n_b``: times the increase of a merge, the squared distance of the centres."""
    return np.asarray(1.0 / state.counts[a] + 1.0 / state.counts[b])


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
