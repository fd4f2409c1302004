"""Global components of very many silos while they are searched: sweeps over all, and merges.

A sweep makes one assignment per silo. It sends the centres to every batch, in memory, in files or
on other machines, and gets sums back. The penalty, concave in the counts, is replaced by its
tangent at the last counts, which lies above it. So all silos are assigned at once, and the
objective still never rises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np

from klfusion._utils import running
from klfusion._utils.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    merge_saving,
    numbering,
    relabel,
    tangents,
    total_penalty,
)
from klfusion._utils.running import Descent, Report
from klfusion.assignment.binary import assign_silo
from klfusion.families import Family
from klfusion.model_size.revision import MemberDistribution
from klfusion.objective.batches import InMemory, ProblemBatches
from klfusion.objective.clusters import nearest_pairs, shared_silos
from klfusion.objective.problem import FusionProblem


@dataclass(frozen=True, eq=False)
class ClusterSums:
    """A plan, and its sums in each global component."""

    counts: IntArray  # of members, (G,)
    mass: FloatArray  # sums of the members' weights, (G,)
    sums: FloatArray  # weighted sums of the members' natural parameters, (G, p)
    members_a: FloatArray  # weighted sums of the members' log-partitions, (G,)
    shared: FloatArray  # number of silos that have both of two global components, (G, G)
    labels: list[IntArray]  # of each batch; -1 for a component that joined none

    def plus(self, other: ClusterSums) -> ClusterSums:
        """Both; the other's batches come after these."""
        return ClusterSums(*(a + b for a, b in zip(self._values(), other._values(), strict=True)))

    def _values(self) -> tuple[Any, ...]:
        return tuple(vars(self).values())

    @property
    def all_labels(self) -> IntArray:
        """Of all batches, one after the other."""
        return np.concatenate(self.labels)

    @property
    def n_single(self) -> int:
        """Number of components that joined no global component."""
        return sum(int((own < 0).sum()) for own in self.labels)

    @property
    def centres(self) -> FloatArray:
        """The barycenters, (G, p)."""
        return np.asarray(self.sums / self.mass[:, None])

    def compact(self) -> ClusterSums:
        """Without empty global components."""
        used = np.flatnonzero(self.counts)
        if len(used) == len(self.counts):
            return self
        number = numbering(used, len(self.counts))
        return ClusterSums(
            self.counts[used],
            self.mass[used],
            self.sums[used],
            self.members_a[used],
            self.shared[np.ix_(used, used)],
            [number[own] for own in self.labels],
        )

    def objective(self, family: Family, penalty: float) -> float:
        """Jensen gaps plus the penalty; a component that joined none counts as a cluster."""
        gaps = self.members_a - self.mass * family.log_partition(self.centres)
        paid = total_penalty(self.counts, penalty) + penalty * self.n_single
        return float(np.maximum(gaps, 0.0).sum()) + paid


def sweep(
    batches: ProblemBatches, centres: FloatArray, prices: FloatArray, new: float = np.inf
) -> ClusterSums:
    """Assign every silo to the centres, (G, p), at ``prices``, (G,), or to none at price ``new``.

    Some global components may be empty in the result.
    """
    task = partial(_assign, centres=centres, prices=prices, new=new)
    return batches.reduce(task, ClusterSums.plus)


def _assign(
    batch: FusionProblem, centres: FloatArray, prices: FloatArray, new: float
) -> ClusterSums:
    """Assign a batch in smaller ones, where the matrix of its divergences would be large."""
    smaller = InMemory(batch, len(centres)).batches
    sums = reduce(ClusterSums.plus, (_assign_one(own, centres, prices, new) for own in smaller))
    return replace(sums, labels=[sums.all_labels])


def _assign_one(
    batch: FusionProblem, centres: FloatArray, prices: FloatArray, new: float
) -> ClusterSums:
    costs = batch.costs(centres)
    costs += prices
    labels = costs.argmin(axis=1)
    labels[costs[np.arange(batch.n), labels] > new] = -1
    silo = np.cumsum(np.diff(batch.silo, prepend=batch.silo[:1]) != 0)
    for j in _in_conflict(silo, labels):
        labels[batch.silos[j]] = assign_silo(costs[batch.silos[j]], new)
    joined, size = labels >= 0, len(centres)
    mass, sums, members_a = batch.some(np.flatnonzero(joined)).sums(labels[joined], size)
    holds = np.zeros((int(silo.max(initial=-1)) + 1, size), dtype=np.float32)
    holds[silo[joined], labels[joined]] = 1.0
    counts = np.bincount(labels[joined], minlength=size)
    shared = shared_silos(holds.T, holds.T).astype(np.float64)
    return ClusterSums(counts, mass, sums, members_a, shared, [labels])


def _in_conflict(silo: IntArray, labels: IntArray) -> IntArray:
    """Silos with two components in one column; for all others the row minima are optimal."""
    rows = np.flatnonzero(labels >= 0)
    key = np.sort(silo[rows] * (int(labels.max(initial=0)) + 1) + labels[rows])
    twice = key[1:][np.diff(key) == 0]
    return np.unique(twice // (int(labels.max(initial=0)) + 1))


def descend(
    batches: ProblemBatches,
    centres: FloatArray,
    counts: IntArray | FloatArray,
    penalty: float,
    *,
    max_iter: int,
    tol: float,
    report: Report,
) -> Descent[ClusterSums]:
    """Alternate sweeps and averages until nothing changes; no component is opened."""

    def step(centres: FloatArray, counts: IntArray | FloatArray) -> tuple[ClusterSums, float]:
        found = sweep(batches, centres, tangents(counts, penalty)).compact()
        return found, found.objective(batches.family, penalty)

    return running.descend(
        lambda found: step(found.centres, found.counts), *step(centres, counts),
        tol=tol, max_iter=max_iter - 1, stage="sweeping", report=report,
    )  # fmt: skip


def bound(
    batches: ProblemBatches,
    centres: FloatArray,
    labels: Sequence[IntArray],
    counts: IntArray,
    penalty: float,
) -> float:
    """Lower bound of the objective of every plan at these centres.

    A column's norm is at least its product with any unit vector. With that of the plan at hand the
    penalty becomes a price, ``penalty / sqrt(n_g)`` for staying and none for moving.
    """
    prices = 2.0 * tangents(counts, penalty)
    return batches.reduce(partial(_bound, centres=centres, prices=prices), float.__add__, labels)


def _bound(
    batch: FusionProblem, labels: IntArray, centres: FloatArray, prices: FloatArray
) -> float:
    total, start = 0.0, 0
    for smaller in InMemory(batch, len(centres)).batches:
        own = labels[start : start + smaller.n]
        costs = smaller.costs(centres)
        costs[np.arange(smaller.n), own] += prices[own]
        total += float(costs.min(axis=1).sum())
        start += smaller.n
    return total


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
