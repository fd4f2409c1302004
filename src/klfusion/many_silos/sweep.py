"""Assignments streamed over silos that lie in parts: in memory, in files, on other machines.

A sweep sends the global components to every part and gets sums back. The penalty, concave in the
counts, is replaced by its tangent at the last counts, which lies above it; so all silos can be
assigned at once, and the objective still never rises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

import numpy as np

from klfusion._utils import iterate
from klfusion._utils.arrays import FloatArray, IntArray, numbering
from klfusion._utils.iterate import Descent
from klfusion._utils.penalty import tangents, total_penalty
from klfusion._utils.progress import Report
from klfusion.assignment.one_silo import assign_silo
from klfusion.families import Family
from klfusion.objective.clusters import shared_silos
from klfusion.objective.parts import InMemory, Parts
from klfusion.objective.problem import FusionProblem


@dataclass(frozen=True, eq=False)
class Tally:
    """What a plan adds up, and where it left every component.

    Parameters
    ----------
    counts : int array of shape (G,)
    mass : array of shape (G,)
    sums : array of shape (G, p)
    members_a : array of shape (G,)
        Weighted sums of the members' log-partitions.
    meets : array of shape (G, G)
        In how many silos two global components are both found.
    labels : list of int arrays
        Of each part; -1 for what is left alone.
    """

    counts: IntArray
    mass: FloatArray
    sums: FloatArray
    members_a: FloatArray
    meets: FloatArray
    labels: list[IntArray]

    def plus(self, other: Tally) -> Tally:
        """Both; the other's parts come after these."""
        return Tally(
            self.counts + other.counts,
            self.mass + other.mass,
            self.sums + other.sums,
            self.members_a + other.members_a,
            self.meets + other.meets,
            self.labels + other.labels,
        )

    @property
    def all_labels(self) -> IntArray:
        """Of all parts, one after the other."""
        return np.concatenate(self.labels)

    @property
    def n_alone(self) -> int:
        """How many components were left alone."""
        return sum(int((own < 0).sum()) for own in self.labels)

    @property
    def centres(self) -> FloatArray:
        """The barycenters, (G, p)."""
        return np.asarray(self.sums / self.mass[:, None])

    def compact(self) -> Tally:
        """Without global components that nothing is left of."""
        used = np.flatnonzero(self.counts)
        if len(used) == len(self.counts):
            return self
        number = numbering(used, len(self.counts))
        return replace(
            self,
            counts=self.counts[used],
            mass=self.mass[used],
            sums=self.sums[used],
            members_a=self.members_a[used],
            meets=self.meets[np.ix_(used, used)],
            labels=[number[own] for own in self.labels],
        )

    def objective(self, family: Family, penalty: float) -> float:
        """Jensen gaps plus ``penalty * sum_g sqrt(n_g)``; what is alone counts as one each."""
        gaps = self.members_a - self.mass * family.log_partition(self.centres)
        paid = total_penalty(self.counts, penalty) + penalty * self.n_alone
        return float(np.maximum(gaps, 0.0).sum()) + paid


def sweep(parts: Parts, centres: FloatArray, prices: FloatArray, alone: float = np.inf) -> Tally:
    """Assign every silo to the centres, at a price each; ``alone`` is that of joining none.

    Parameters
    ----------
    parts : Parts
    centres : array of shape (G, p)
    prices : array of shape (G,)
    alone : float

    Returns
    -------
    Tally
        Global components may have become empty.
    """
    task = partial(_assign, centres=centres, prices=prices, alone=alone)
    return parts.reduce(task, Tally.plus)


def _assign(part: FusionProblem, centres: FloatArray, prices: FloatArray, alone: float) -> Tally:
    """Assign a part, piece by piece where the matrix of its divergences would be large."""
    pieces = InMemory(part, len(centres)).parts
    tally = reduce(Tally.plus, (_assign_piece(own, centres, prices, alone) for own in pieces))
    return replace(tally, labels=[tally.all_labels])


def _assign_piece(
    part: FusionProblem, centres: FloatArray, prices: FloatArray, alone: float
) -> Tally:
    costs = part.costs(centres)
    costs += prices
    labels = costs.argmin(axis=1)
    labels[costs[np.arange(part.n), labels] > alone] = -1
    turn = np.cumsum(np.diff(part.silo, prepend=part.silo[:1]) != 0)
    for j in _in_conflict(turn, labels):
        labels[part.silos[j]] = assign_silo(costs[part.silos[j]], alone)
    taken, size = labels >= 0, len(centres)
    mass, sums, members_a = part.some(np.flatnonzero(taken)).sums(labels[taken], size)
    holds = np.zeros((int(turn.max(initial=-1)) + 1, size), dtype=np.float32)
    holds[turn[taken], labels[taken]] = 1.0
    counts = np.bincount(labels[taken], minlength=size)
    together = shared_silos(holds.T, holds.T).astype(np.float64)
    return Tally(counts, mass, sums, members_a, together, [labels])


def _in_conflict(silo: IntArray, labels: IntArray) -> IntArray:
    """Silos two of whose components chose the same; for all others the choice is optimal."""
    rows = np.flatnonzero(labels >= 0)
    key = np.sort(silo[rows] * (int(labels.max(initial=0)) + 1) + labels[rows])
    twice = key[1:][np.diff(key) == 0]
    return np.unique(twice // (int(labels.max(initial=0)) + 1))


def descend(
    parts: Parts,
    centres: FloatArray,
    counts: IntArray | FloatArray,
    penalty: float,
    *,
    max_iter: int,
    tol: float,
    report: Report,
) -> Descent[Tally]:
    """Sweep and average in turn, with no new global components, until nothing changes.

    Returns
    -------
    Descent
        Of sums.
    """

    def step(centres: FloatArray, counts: IntArray | FloatArray) -> tuple[Tally, float]:
        found = sweep(parts, centres, tangents(counts, penalty)).compact()
        return found, found.objective(parts.family, penalty)

    return iterate.descend(
        lambda tally: step(tally.centres, tally.counts), *step(centres, counts),
        tol=tol, max_iter=max_iter - 1, stage="sweeping", report=report,
    )  # fmt: skip


def bound(
    parts: Parts, centres: FloatArray, labels: Sequence[IntArray], counts: IntArray, penalty: float
) -> float:
    """A value below that of every plan at these centres.

    A column's norm is at least its product with any unit vector; with that of the plan at hand
    the penalty becomes a price, ``penalty / sqrt(n_g)`` for staying and none for moving.
    """
    prices = 2.0 * tangents(counts, penalty)
    return parts.reduce(partial(_bound, centres=centres, prices=prices), float.__add__, labels)


def _bound(part: FusionProblem, labels: IntArray, centres: FloatArray, prices: FloatArray) -> float:
    total, start = 0.0, 0
    for piece in InMemory(part, len(centres)).parts:
        own = labels[start : start + piece.n]
        costs = piece.costs(centres)
        costs[np.arange(piece.n), own] += prices[own]
        total += float(costs.min(axis=1).sum())
        start += piece.n
    return total
