"""The penalty path: from no fusion to the smallest model, one merge at a time.

A merge of clusters ``a`` and ``b`` lowers the objective once the penalty exceeds
``r = increase of the Jensen gap / (sqrt(n_a) + sqrt(n_b) - sqrt(n_a + n_b))``. The path always
merges the pair with the smallest ``r`` that shares no silo. One pass gives a solution for every
penalty.
"""

import math

import numpy as np

from klfusion._utils import memory
from klfusion._utils.penalty import merge_saving
from klfusion._utils.progress import Report
from klfusion.merging.agglomeration import PenaltyPricing, agglomerate, penalty_path_of
from klfusion.merging.all_pairs import AllPairs
from klfusion.objective.clusters import Clusters
from klfusion.objective.merge_path import MergePath
from klfusion.objective.problem import FusionProblem

def penalty_path(
    problem: FusionProblem, report: Report, most: float = np.inf
) -> MergePath:
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
    candidates = AllPairs(state, ratios, PenaltyPricing(state))
    return penalty_path_of(n, list(agglomerate(candidates, n, report, most)))


def penalty_between(path: MergePath, steps: int) -> float:
    """A penalty at which so many merges lower the objective and, if possible, no more."""
    before = float(np.max(path.ratios[:steps], initial=0.0))
    after = float(path.ratios[steps]) if steps < len(path.ratios) else 1.5 * before
    if before == 0.0 or after == 0.0:
        return 0.5 * (before + after) or 1.0
    return math.sqrt(before * after)
