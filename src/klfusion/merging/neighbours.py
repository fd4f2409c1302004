"""The penalty path on which a cluster merges with one of its nearest neighbours.

Neighbours are found with one matrix of divergences. A merged cluster may merge with the neighbours
of both, so that a merge costs a few dozen log-partitions instead of one per cluster.
"""

from heapq import heappop, heappush

import numpy as np

from klfusion._utils.arrays import IntArray
from klfusion._utils.running import Report, require_memory
from klfusion.merging.agglomeration import Merge, PenaltyPricing, agglomerate, penalty_path_of
from klfusion.objective.clusters import Clusters, shared_silos
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import MergePath

_NEIGHBOURS = 20  # per cluster; more change the path little and cost time in proportion
_BATCH = 2_000_000  # numbers in one batch of trial merges: 16 MB

_Entry = tuple[float, int, int, float, int, int]  # price, clusters, increase, their versions


def neighbour_path(problem: FusionProblem, report: Report) -> MergePath:
    """The penalty path over nearest neighbours."""
    n = problem.n
    require_memory(3 * 8 * n * n, f"comparing all pairs of {n:,} units", "fuse smaller networks")
    state = Clusters(problem, np.arange(n, dtype=np.intp))
    return penalty_path_of(n, list(agglomerate(Neighbours(state), n, report)))


class Neighbours:
    """Candidates: every cluster with its nearest neighbours that share no silo with it.

    Merges lie in a heap. An entry is stale once one of its clusters has another version. When the
    heap is empty, neighbours are searched again.
    """

    def __init__(self, state: Clusters) -> None:
        self._state, self._pricing = state, PenaltyPricing(state)
        self._holds = state.occupied()
        self._version = np.zeros(state.size, dtype=np.intp)  # -1: the cluster is gone
        self._near: dict[int, set[int]] = {}
        self._heap: list[_Entry] = []

    def cheapest(self, most: float) -> Merge | None:
        """The merge with the lowest price among neighbours."""
        version = self._version
        while True:
            while self._heap:
                price, a, b, increase, version_a, version_b = self._heap[0]
                if version[a] == version_a and version[b] == version_b:
                    return Merge(price, a, b, increase) if price < most else None
                heappop(self._heap)
            self._near = self._nearest()
            self._heap = self._entries(self._near)  # sorted, which is a heap
            if not self._heap:
                return None

    def apply(self, merge: Merge) -> None:
        """Merge two clusters; the union has the neighbours of both."""
        _, a, b, increase = merge
        near, version, holds = self._near, self._version, self._holds
        self._state.merge(a, b, increase)
        self._pricing.merge(a, b)
        holds[a] |= holds[b]
        version[a] += 1
        version[b] = -1
        around = near[a] | near.pop(b)
        for c in around:  # neighbours of b are neighbours of a from now on
            if c in near and b in near[c]:
                near[c] = (near[c] - {b}) | {a}
        near[a] = {
            c for c in around if c != a and version[c] >= 0 and not (holds[c] & holds[a]).any()
        }
        for c in near[a]:
            near[c].add(a)
        for entry in self._entries({a: near[a]}):
            heappush(self._heap, entry)

    def _nearest(self) -> dict[int, set[int]]:
        """Of each cluster, the nearest that it may merge with."""
        state = self._state
        used = np.flatnonzero(state.counts)
        kl = state.divergences(used)
        kl = kl + kl.T
        kl[shared_silos(self._holds[used], self._holds[used]) > 0] = np.inf
        few = min(_NEIGHBOURS, len(used) - 1)
        near: dict[int, set[int]] = {int(a): set() for a in used}
        if few < 1:
            return near
        nearest = np.argpartition(kl, few - 1, axis=1)[:, :few]
        for i, row in enumerate(nearest):
            for k in row[np.isfinite(kl[i, row])]:
                near[int(used[i])].add(int(used[k]))
                near[int(used[k])].add(int(used[i]))
        return near

    def _entries(self, near: dict[int, set[int]]) -> list[_Entry]:
        """Merges of clusters with their neighbours, the cheapest first."""
        pairs = sorted({(min(a, c), max(a, c)) for a, others in near.items() for c in others})
        if not pairs:
            return []
        a, b = np.array(pairs, dtype=np.intp).T
        step = max(1, _BATCH // self._state.sums.shape[1])
        blocks = [slice(low, low + step) for low in range(0, len(a), step)]
        increase = np.concatenate([self._state.merge_increases(a[i], b[i]) for i in blocks])
        version: IntArray = self._version
        columns = (self._pricing.prices(increase, a, b), a, b, increase, version[a], version[b])
        return sorted(zip(*(column.tolist() for column in columns), strict=True))
