"""Global components of very many silos while they are searched, and which of them to merge."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray, merge_saving, relabel, tangents
from klfusion.families import Family
from klfusion.many_silos.sweep import ClusterSums, sweep
from klfusion.model_size.revision import MemberDistribution
from klfusion.objective.batches import ProblemBatches
from klfusion.objective.clusters import nearest_pairs
from klfusion.objective.problem import FusionProblem

_MARGIN = 1e-7  # relative: a raised penalty exceeds the price of a merge by more than rounding
_SMALL_SHARE = 0.02  # of the members of two: the smaller may be outliers of the larger
_RARELY_SHARED = 0.05  # of the silos expected by chance: local fits seldom split a component
_EXPECTED_SHARED = 10  # silos expected by chance, so that sharing none is evidence
_LONG_AXIS = 1.5  # share of a component's spread along its longest axis, over that of any axis
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, eq=False)
class Centres:
    """Barycenters of global components, (G, p), and the number of members of each, (G,)."""

    natural: FloatArray
    counts: FloatArray

    @classmethod
    def of_labels(cls, problem: FusionProblem, labels: IntArray, share: float = 1.0) -> Centres:
        """The clusters of a problem that is a ``share`` of all."""
        labels = relabel(labels)
        counts = np.bincount(labels)
        return cls(problem.average(labels, len(counts)), counts / share)

    @classmethod
    def of_sums(cls, sums: ClusterSums) -> Centres:
        """Those of a sweep."""
        return cls(sums.centres, sums.counts.astype(np.float64))

    def sweep(self, batches: ProblemBatches, penalty: float, new: float) -> ClusterSums:
        """Assign every silo; a component may join none at the price ``new``."""
        return sweep(batches, self.natural, tangents(self.counts, penalty), new)

    def some(self, which: IntArray | BoolArray) -> Centres:
        """Some of them."""
        return Centres(self.natural[which], self.counts[which])

    def joined(self, others: Centres) -> Centres:
        """These and others."""
        return Centres(
            np.concatenate([self.natural, others.natural]),
            np.concatenate([self.counts, others.counts]),
        )


def merge_centres(
    found: ClusterSums,
    family: Family,
    penalty: float,
    n_silos: int,
    members: MemberDistribution | None = None,
) -> tuple[Centres, float]:
    """Merge global components that rarely share a silo where that pays, the cheapest first.

    At a fixed penalty, two halves of a component of many silos cost less than the whole: what a
    split saves grows with the number of silos, what it costs with its square root. So with the
    distribution of ``members`` two kinds of pairs merge at any price: halves that a plane through
    one component explains, and a small component whose members are outliers of the larger. The
    penalty is raised to the highest price.
    """
    state = (found.counts, found.mass, found.sums, found.members_a)
    counts, mass, sums, members_a = (np.array(own, dtype=np.float64) for own in state)
    shared, n = found.shared.copy(), int(found.counts.sum())
    raised, by_chance = penalty, 0.0 if members is None else _RARELY_SHARED / n_silos
    while True:
        centres = sums / mass[:, None]
        log_partition = family.log_partition(centres)
        apart = shared <= by_chance * np.outer(counts, counts)
        a, b = nearest_pairs(family.kl_from(centres, centres, log_partition), apart)
        total, gaps = mass[a] + mass[b], np.maximum(members_a - mass * log_partition, 0.0)
        increase = mass[a] * log_partition[a] + mass[b] * log_partition[b]
        increase -= total * family.log_partition((sums[a] + sums[b]) / total[:, None])
        ratio = np.maximum(increase, 0.0) / merge_saving(counts[a], counts[b])
        accepted = ratio < penalty
        if members is not None:
            both, least = counts[a] + counts[b], np.minimum(counts[a], counts[b])
            share = increase / np.maximum(gaps[a] + gaps[b] + increase, _TINY)
            expected = counts[a] * counts[b] > _EXPECTED_SHARED * n_silos
            accepted |= expected & (share < members.explained(both, least / both, _LONG_AXIS))
            accepted |= (least < _SMALL_SHARE * both) & (increase < least * members.maximum(n))
        gone, changed = np.zeros((2, len(counts)), dtype=bool)
        for k in np.argsort(ratio, kind="stable"):
            i, j = a[k], b[k]
            if accepted[k] and not (changed[i] or changed[j]):
                changed[[i, j]] = gone[j] = True
                raised = max(raised, (1.0 + _MARGIN) * float(ratio[k]))
                for array in (counts, mass, sums, members_a, shared, shared.T):
                    array[i] += array[j]
        if not gone.any():
            return Centres(centres, counts), raised
        counts, mass, sums = counts[~gone], mass[~gone], sums[~gone]
        members_a, shared = members_a[~gone], shared[np.ix_(~gone, ~gone)]
