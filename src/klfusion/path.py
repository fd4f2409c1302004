"""The whole path from no fusion to the smallest model, one merge at a time.

A merge of clusters ``a`` and ``b`` pays as soon as the penalty exceeds
``r = increase of the Jensen gap / (sqrt(n_a) + sqrt(n_b) - sqrt(n_a + n_b))``. Always merging the
pair with the smallest ``r``, never two components of one silo, gives in one pass a solution for
every penalty.
"""

from __future__ import annotations

import numpy as np

from klfusion import memory
from klfusion._typing import BoolArray, FloatArray, IntArray
from klfusion.algorithm import Report
from klfusion.clusters import Clusters, merge_saving
from klfusion.fusion import PenaltyPath
from klfusion.problem import FusionProblem

_MAX_TRIAL_ENTRIES = 2_000_000  # numbers in one batch of trial merges


def penalty_path(problem: FusionProblem, report: Report) -> PenaltyPath:
    """Agglomerate all the way, in O(n^2) log-partitions and O(n^2) memory."""
    n = problem.n
    memory.require(
        3 * 8 * n * n,
        f"comparing all pairs of {n:,} components",
        "use method='exact' with penalty= or n_components=, or drop components without data",
    )
    state = Clusters(problem, np.arange(n, dtype=np.intp))
    holds = np.zeros((n, len(problem.silos)), dtype=np.float32)
    holds[np.arange(n), problem.silo] = 1.0
    ratio = _initial_ratios(state, report)
    nearest = ratio.argmin(axis=1)
    smallest = ratio[np.arange(n), nearest]
    merges, ratios, total = [], [], [0.0]
    while True:
        a = int(smallest.argmin())
        if not np.isfinite(smallest[a]):
            break
        b = int(nearest[a])
        increase = float(ratio[a, b] * merge_saving(state.counts[a], state.counts[b]))
        merges.append((a, b))
        ratios.append(float(ratio[a, b]))
        total.append(total[-1] + increase)
        report("merging", len(merges), n)
        state.merge(a, b, increase)
        holds[a] += holds[b]
        ratio[b, :] = ratio[:, b] = np.inf
        smallest[b] = np.inf
        others = (state.counts > 0) & (holds @ holds[a] == 0)
        ratio[a, :] = ratio[:, a] = np.inf
        k = np.flatnonzero(others)
        ratio[a, k] = ratio[k, a] = _ratios(state, np.full(len(k), a), k)
        _update_minima(ratio, nearest, smallest, a, b, state.counts > 0)
    return PenaltyPath(
        merges=np.array(merges, dtype=np.intp).reshape(-1, 2),
        ratios=np.array(ratios, dtype=np.float64),
        divergences=np.array(total),
        n_components=n - np.arange(len(merges) + 1),
    )


def _ratios(state: Clusters, a: IntArray, b: IntArray) -> FloatArray:
    return state.merge_increases(a, b) / merge_saving(state.counts[a], state.counts[b])


def _initial_ratios(state: Clusters, report: Report) -> FloatArray:
    """Ratios of all pairs of single components, infinite within a silo and on the diagonal."""
    n = state.size
    ratio = np.full((n, n), np.inf)
    step = max(1, _MAX_TRIAL_ENTRIES // (n * state.sums.shape[1]))
    silo = state.problem.silo
    for low in range(0, n, step):
        report("comparing", low, n)
        a, b = np.nonzero(np.triu(silo[low : low + step, None] != silo[None, :], k=low + 1))
        a += low
        ratio[a, b] = ratio[b, a] = _ratios(state, a, b)
    return ratio


def _update_minima(
    ratio: FloatArray,
    nearest: IntArray,
    smallest: FloatArray,
    a: int,
    b: int,
    alive: BoolArray,
) -> None:
    """Row minima after rows and columns ``a`` and ``b`` changed."""
    stale = alive & ((nearest == a) | (nearest == b))
    stale[a] = True
    rows = np.flatnonzero(stale)
    nearest[rows] = ratio[rows].argmin(axis=1)
    smallest[rows] = ratio[rows, nearest[rows]]
    closer = ratio[:, a] < smallest
    nearest[closer], smallest[closer] = a, ratio[closer, a]


def nearest_within_silo(problem: FusionProblem) -> FloatArray:
    """What merging each component with the nearest of its own silo, known to differ, would cost.

    Components that are alone in their silo have none.
    """
    state = Clusters(problem, np.arange(problem.n, dtype=np.intp))
    pairs = [
        np.stack(np.triu_indices(rows.stop - rows.start, k=1), axis=1) + rows.start
        for rows in problem.silos
    ]
    a, b = np.concatenate(pairs).T
    nearest = np.full(problem.n, np.inf)
    step = max(1, _MAX_TRIAL_ENTRIES // problem.natural.shape[1])
    for low in range(0, len(a), step):
        some = slice(low, low + step)
        increase = state.merge_increases(a[some], b[some])
        np.minimum.at(nearest, a[some], increase)
        np.minimum.at(nearest, b[some], increase)
    return np.asarray(nearest[np.isfinite(nearest)])
