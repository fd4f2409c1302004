"""Global components of very many silos on the way, and which of them are one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray, relabel
from klfusion._utils.penalty import merge_saving, tangents
from klfusion.families import Family
from klfusion.many_silos.sweep import Tally, sweep
from klfusion.model_size.revision import Usual
from klfusion.objective.clusters import nearest_pairs
from klfusion.objective.parts import Parts
from klfusion.objective.problem import FusionProblem

_TOL = 1e-7  # by which a raised penalty exceeds what a merge takes
_FEW = 0.02  # of the members of two global components: perhaps stragglers of the larger
_HARDLY_EVER = 0.05  # of the times that two would meet by chance
_OFTEN = 10  # meetings by chance, so that having none tells
_LONG = 1.5  # times the usual share of a component's spread, along its longest axis
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, eq=False)
class Globals:
    """Global components on the way: where they are, and how many local ones are in each."""

    centres: FloatArray
    counts: FloatArray

    @classmethod
    def of_labels(cls, problem: FusionProblem, labels: IntArray, share: float = 1.0) -> Globals:
        """The clusters of a problem that is a ``share`` of all."""
        labels = relabel(labels)
        counts = np.bincount(labels)
        return cls(problem.average(labels, len(counts)), counts / share)

    @classmethod
    def of(cls, tally: Tally) -> Globals:
        """Those of a sweep."""
        return cls(tally.centres, tally.counts.astype(np.float64))

    def sweep(self, parts: Parts, penalty: float, alone: float) -> Tally:
        """Assign every silo, with the choice of being alone."""
        return sweep(parts, self.centres, tangents(self.counts, penalty), alone)

    def some(self, which: IntArray | BoolArray) -> Globals:
        """Some of them."""
        return Globals(self.centres[which], self.counts[which])

    def joined(self, others: Globals) -> Globals:
        """These and others."""
        return Globals(
            np.concatenate([self.centres, others.centres]),
            np.concatenate([self.counts, others.counts]),
        )


def merged(
    tally: Tally, family: Family, penalty: float, n_silos: int, usual: Usual | None = None
) -> tuple[Globals, float]:
    """Global components that hardly ever meet made one where that pays, the best pairs first.

    At one penalty, half of what many silos have is cheaper than the whole: what a cut saves grows
    with their number, what it costs with its root. So with `Usual` known, two are also made one if
    a plane through one component could have parted them, or if the smaller is made of stragglers;
    the penalty is raised to what that takes.
    """
    state = (tally.counts, tally.mass, tally.sums, tally.members_a)
    counts, mass, sums, members_a = (np.array(own, dtype=np.float64) for own in state)
    meets, n = tally.meets.copy(), int(tally.counts.sum())
    raised, chance = penalty, 0.0 if usual is None else _HARDLY_EVER / n_silos
    while True:
        centres = sums / mass[:, None]
        log_partition = family.log_partition(centres)
        apart = meets <= chance * np.outer(counts, counts)
        a, b = nearest_pairs(family.kl_from(centres, centres, log_partition), apart)
        total, gaps = mass[a] + mass[b], np.maximum(members_a - mass * log_partition, 0.0)
        increase = mass[a] * log_partition[a] + mass[b] * log_partition[b]
        increase -= total * family.log_partition((sums[a] + sums[b]) / total[:, None])
        ratio = np.maximum(increase, 0.0) / merge_saving(counts[a], counts[b])
        one = ratio < penalty
        if usual is not None:
            both, least = counts[a] + counts[b], np.minimum(counts[a], counts[b])
            share = increase / np.maximum(gaps[a] + gaps[b] + increase, _TINY)
            # Two that should have met many times, and have not, may be halves of something long.
            often = counts[a] * counts[b] > _OFTEN * n_silos
            one |= often & (share < usual.explained(both, least / both, _LONG))
            one |= (least < _FEW * both) & (increase < least * usual.farthest(n))
        gone, changed = np.zeros((2, len(counts)), dtype=bool)
        for k in np.argsort(ratio, kind="stable"):
            i, j = a[k], b[k]
            if one[k] and not (changed[i] or changed[j]):
                changed[[i, j]] = gone[j] = True
                raised = max(raised, (1.0 + _TOL) * float(ratio[k]))
                for array in (counts, mass, sums, members_a, meets, meets.T):
                    array[i] += array[j]
        if not gone.any():
            return Globals(centres, counts), raised
        counts, mass, sums = counts[~gone], mass[~gone], sums[~gone]
        members_a, meets = members_a[~gone], meets[np.ix_(~gone, ~gone)]
