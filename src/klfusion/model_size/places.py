"""The places a component may have, given all other silos: log-odds of joining each cluster.

A component may join a cluster that no other of its silo is in, or be alone. So it is compared with
the clusters without the members of its own silo. These differ from the clusters in a few centres
per silo, and most matchings are already the best for most silos: all silos are compared at once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from klfusion._utils.arrays import BLOCK_ENTRIES, BoolArray, FloatArray, IntArray, in_blocks
from klfusion.assignment.binary import assign_silo
from klfusion.model_size.distances import to_clusters
from klfusion.model_size.partitions import PartitionPrior
from klfusion.objective.clusters import Clusters
from klfusion.objective.problem import FusionProblem

_Odds = Callable[[FloatArray, FloatArray | float, FloatArray | float], FloatArray]


class SomeSilos(NamedTuple):
    """Log-odds of the components of consecutive silos."""

    rows: slice  # of m components
    silo: IntArray  # of each component, from 0, (m,)
    holds: BoolArray  # whether a silo has a member in each cluster, (silos, G)
    odds: FloatArray  # of joining each cluster of other silos' members, (m, G); -inf: it is empty


@dataclass(frozen=True, eq=False)
class Places:
    """Log-odds of places under a model: ``log_odds`` of distances, and a prior of partitions."""

    problem: FusionProblem
    log_odds: _Odds
    prior: PartitionPrior

    def scores(self, clusters: Clusters, rows: slice) -> FloatArray:
        """Log-odds of joining each cluster against opening a new one, (L, G).

        The rows are those of a silo, and have been taken out.
        """
        used = np.flatnonzero(clusters.counts)
        out = np.full((rows.stop - rows.start, clusters.size), -np.inf)
        of_centres = clusters.centres_of(used), clusters.mass[used], clusters.means_of(used)
        distance = to_clusters(self.problem, rows, *of_centres)
        odds = self.log_odds(distance, 1.0, clusters.counts[used].astype(np.float64))
        out[:, used] = odds + self.prior.joining(clusters.counts)[used]
        return out

    def of_all(self, clusters: Clusters) -> Iterator[SomeSilos]:
        """Log-odds of all components without the prior, silos in blocks; none may be empty."""
        problem, labels, counts = self.problem, clusters.labels, clusters.counts
        centres, mean = clusters.centres, in_blocks(problem.family.mean, clusters.centres)
        per_block = max(1, BLOCK_ENTRIES // max(clusters.size, problem.family.size))
        starts = np.array([rows.start for rows in problem.silos])
        for silos in _consecutive(problem.silos, per_block):
            rows = slice(silos[0].start, silos[-1].stop)
            own, several = labels[rows], counts[labels[rows]] > 1
            silo = np.searchsorted(starts, np.arange(rows.start, rows.stop), side="right") - 1
            silo -= silo[0]
            distance = to_clusters(problem, rows, centres, clusters.mass, mean)
            weight = problem.weights[rows]
            rest = np.where(several, clusters.mass[own] - weight, 1.0)
            others = clusters.sums[own] - weight[:, None] * problem.natural[rows]
            others[~several] = problem.natural[rows][~several]  # of the family, and not used
            others /= rest[:, None]
            mean_of_others = in_blocks(problem.family.mean, others)
            for one in silos:
                some = slice(one.start - rows.start, one.stop - rows.start)
                parts = others[some], rest[some], mean_of_others[some]
                distance[some, own[some]] = to_clusters(problem, one, *parts)
            holds = np.zeros((len(silos), clusters.size), dtype=bool)
            holds[silo, own] = True
            left = np.asarray(counts - holds, dtype=np.float64)[silo]
            odds = self.log_odds(distance, 1.0, left)
            odds[left == 0.0] = -np.inf
            yield SomeSilos(rows, silo, holds, odds)

    def first_unsettled(self, clusters: Clusters) -> int:
        """The first silo that has a better assignment; the number of silos if none has."""
        number = 0
        for some in self.of_all(clusters):
            labels, counts = clusters.labels[some.rows], clusters.counts - some.holds
            scores = some.odds + self.prior.joining(counts)[some.silo]
            alone = clusters.counts[labels] == 1
            own = np.where(alone, 0.0, scores[np.arange(len(labels)), labels])
            better = np.maximum(scores.max(axis=1), 0.0) > own
            for j in np.unique(some.silo[better]).tolist():  # two may want one cluster
                rows = np.flatnonzero(some.silo == j)
                best = assign_silo(-scores[rows], 0.0)
                if (best != np.where(alone[rows], -1, labels[rows])).any():
                    return number + int(j)
            number += len(some.holds)
        return number


def _consecutive(silos: list[slice], most: int) -> Iterator[list[slice]]:
    """Runs of silos of at most so many components together, or of one silo."""
    first = 0
    for k in range(1, len(silos) + 1):
        if k == len(silos) or silos[k].stop - silos[first].start > most:
            yield silos[first:k]
            first = k
