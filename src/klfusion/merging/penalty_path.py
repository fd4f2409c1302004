"""The penalty path: from no fusion to the smallest model, one merge at a time.

A merge of clusters ``a`` and ``b`` lowers the objective once the penalty exceeds
``r = increase of the Jensen gap / (sqrt(n_a) + sqrt(n_b) - sqrt(n_a + n_b))``. The path always
merges the pair with the smallest ``r`` that shares no silo. One pass gives a solution for every
penalty.

Clusters that *do* share a silo are known to differ. The distances between them, recorded at each
step, are the null distribution of "different" along the path.
"""

from dataclasses import dataclass

import numpy as np

from klfusion._utils import memory
from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.penalty import merge_saving
from klfusion._utils.progress import Report
from klfusion.merging.agglomeration import PenaltyPricing, agglomerate, penalty_path_of
from klfusion.merging.all_pairs import AllPairs, Nearest, inverse_sum
from klfusion.objective.clusters import Clusters
from klfusion.objective.merge_path import MergePath
from klfusion.objective.problem import FusionProblem

_NORMAL_MAD = 1.4826  # standard deviations per median absolute deviation, for a Normal


@dataclass(frozen=True, eq=False)
class Distances:
    """Logarithms of squared distances between cluster centres, at each step of a path, (m,).

    ``typical`` and ``spread`` are median and robust standard deviation, over clusters, of the
    distance to the nearest cluster that is known to differ; NaN where none is.
    """

    merged: FloatArray  # of the pair that the step merges
    typical: FloatArray
    spread: FloatArray
    known: IntArray  # number of clusters with such a distance


def penalty_path(
    problem: FusionProblem, report: Report, most: float = np.inf
) -> tuple[MergePath, Distances]:
    """Agglomerate while a merge pays at penalty ``most``: O(n^2) log-partitions and memory."""
    n = problem.n
    memory.require(
        4 * 8 * n * n,
        f"comparing all pairs of {n:,} components",
        "use kf.Binary with a penalty or n_components=, or drop components without data",
    )
    report("comparing", 0, None)
    state = Clusters(problem, np.arange(n, dtype=np.intp))
    one_silo = problem.silo[:, None] == problem.silo
    ratios = np.where(one_silo, np.inf, problem.pair_increases / merge_saving(1, 1))
    differing = Nearest(np.where(one_silo, 2.0 * problem.pair_increases, np.inf))
    candidates = AllPairs(state, ratios, PenaltyPricing(state), differing=differing)
    merges, distances = [], []
    for merge in agglomerate(candidates, n, report, most):
        known = differing.smallest[np.isfinite(differing.smallest)]
        merged = merge.increase * inverse_sum(state.counts[merge.a], state.counts[merge.b])
        distances.append((merged, *_typical_log(known), len(known)))
        merges.append(merge)
    merged, typical, spread, counts = np.array(distances, dtype=np.float64).reshape(-1, 4).T
    with np.errstate(divide="ignore"):
        found = Distances(np.log(merged), typical, spread, counts.astype(np.intp))
    return penalty_path_of(n, merges), found


def _typical_log(values: FloatArray) -> tuple[float, float]:
    """Median and robust standard deviation of the logarithms."""
    if len(values) == 0:
        return np.nan, np.nan
    logs = np.log(np.maximum(values, np.finfo(np.float64).tiny))
    middle = _median(logs)
    return middle, _NORMAL_MAD * _median(np.abs(logs - middle))


def _median(values: FloatArray) -> float:
    """As numpy's, which takes five times as long where values are few."""
    ordered, n = np.sort(values), len(values)
    return 0.5 * float(ordered[(n - 1) // 2] + ordered[n // 2])
