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
from typing import Any, Protocol

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
from klfusion.families.family import Known
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
        return self.some(np.flatnonzero(self.counts))

    def some(self, which: IntArray) -> ClusterSums:
        """Some of the global components; the members of others join none."""
        if len(which) == len(self.counts):
            return self
        number = numbering(which, len(self.counts))
        return ClusterSums(
            self.counts[which],
            self.mass[which],
            self.sums[which],
            self.members_a[which],
            self.shared[np.ix_(which, which)],
            [number[own] for own in self.labels],
        )

    def objective(self, family: Family, penalty: float) -> float:
        """Jensen gaps plus the penalty; a component that joined none counts as a cluster."""
        gaps = self.members_a - self.mass * family.log_partition(self.centres)
        paid = total_penalty(self.counts, penalty) + penalty * self.n_single
        return float(np.maximum(gaps, 0.0).sum()) + paid


class Rule(Protocol):
    """What it costs a component to join each of some centres, and to join none."""

    @property
    def centres(self) -> FloatArray:
        """(G, p)."""

    @property
    def new(self) -> float:
        """Cost of joining none."""

    def costs(self, batch: FusionProblem) -> FloatArray:
        """Of the components of a batch, (n, G)."""


@dataclass(frozen=True, eq=False)
class Priced:
    """The divergence from a centre and its price."""

    centres: FloatArray
    prices: FloatArray  # (G,)
    new: float = np.inf

    def costs(self, batch: FusionProblem) -> FloatArray:
        """Divergences and prices, (n, G)."""
        costs = batch.costs(self.centres)
        costs += self.prices
        return costs


def sweep(batches: ProblemBatches, rule: Rule) -> ClusterSums:
    """Assign every silo at the least cost; some global components may be empty in the result."""
    return batches.reduce(partial(_assign, rule=rule), ClusterSums.plus)


def _assign(batch: FusionProblem, rule: Rule) -> ClusterSums:
    """Assign a batch in smaller ones, where the matrix of its costs would be large."""
    smaller = InMemory(batch, len(rule.centres)).batches
    sums = reduce(ClusterSums.plus, (_assign_one(own, rule) for own in smaller))
    return replace(sums, labels=[sums.all_labels])


def _assign_one(batch: FusionProblem, rule: Rule) -> ClusterSums:
    costs = rule.costs(batch)
    labels = costs.argmin(axis=1)
    labels[costs[np.arange(batch.n), labels] > rule.new] = -1
    silo = np.cumsum(np.diff(batch.silo, prepend=batch.silo[:1]) != 0)
    for j in _in_conflict(silo, labels):
        labels[batch.silos[j]] = assign_silo(costs[batch.silos[j]], rule.new)
    joined, size = labels >= 0, len(rule.centres)
    mass, sums, members_a = batch.sums(labels, size)
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
        found = sweep(batches, Priced(centres, tangents(counts, penalty))).compact()
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
    known = batches.family.known(centres)
    task = partial(_bound, centres=centres, known=known, prices=prices)
    return batches.reduce(task, float.__add__, labels)


def _bound(
    batch: FusionProblem, labels: IntArray, centres: FloatArray, known: Known, prices: FloatArray
) -> float:
    total, start = 0.0, 0
    for smaller in InMemory(batch, len(centres)).batches:
        own = labels[start : start + smaller.n]
        costs = smaller.family.kl_from(centres, smaller.natural, smaller.log_partition, known)
        costs *= smaller.weights[:, None]
        costs[np.arange(smaller.n), own] += prices[own]
        total += float(costs.min(axis=1).sum())
        start += smaller.n
    return total


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
        return sweep(batches, Priced(self.natural, tangents(self.counts, penalty), new))

    def some(self, which: IntArray | BoolArray) -> Centres:
        """Some of them."""
        return Centres(self.natural[which], self.counts[which])

    def grouped(self, group: IntArray) -> Centres:
        """Averages over groups, weighted by counts; each has a member."""
        counts = np.bincount(group, weights=self.counts)
        natural = np.zeros((len(counts), self.natural.shape[1]))
        np.add.at(natural, group, self.counts[:, None] * self.natural)
        return Centres(natural / counts[:, None], np.asarray(counts, dtype=np.float64))

    def joined(self, others: Centres) -> Centres:
        """These and others."""
        return Centres(
            np.concatenate([self.natural, others.natural]),
            np.concatenate([self.counts, others.counts]),
        )


def merge_centres(found: ClusterSums, family: Family, penalty: float) -> Centres:
    """Merge global components that share no silo where that pays, the cheapest first."""
    state = (found.counts, found.mass, found.sums, found.shared)
    counts, mass, sums, shared = (np.array(own, dtype=np.float64) for own in state)
    while True:
        centres = sums / mass[:, None]
        log_partition = family.log_partition(centres)
        a, b = nearest_pairs(family.kl_from(centres, centres, log_partition), shared == 0.0)
        total = mass[a] + mass[b]
        increase = mass[a] * log_partition[a] + mass[b] * log_partition[b]
        increase -= total * family.log_partition((sums[a] + sums[b]) / total[:, None])
        ratio = np.maximum(increase, 0.0) / merge_saving(counts[a], counts[b])
        gone, changed = np.zeros((2, len(counts)), dtype=bool)
        for k in np.argsort(ratio, kind="stable"):
            i, j = a[k], b[k]
            if ratio[k] < penalty and not (changed[i] or changed[j]):
                changed[[i, j]] = gone[j] = True
                for array in (counts, mass, sums, shared, shared.T):
                    array[i] += array[j]
        if not gone.any():
            return Centres(centres, counts)
        counts, mass, sums = counts[~gone], mass[~gone], sums[~gone]
        shared = shared[np.ix_(~gone, ~gone)]
