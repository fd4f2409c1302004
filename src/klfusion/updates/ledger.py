"""What all silos sent, side by side: one more or one less need not be read anew.

A `Ledger` is made once of a fusion's silos and labels. That of a fusion with a silo more or less
follows from it by appending or deleting rows; sums are always taken anew over the rows that are
there, so that nothing of a silo that left stays in the rounding of a difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TypeVar

import numpy as np

from klfusion._fuse import enough
from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion.errors import KLFusionError
from klfusion.families import Family, Tempered
from klfusion.fusion.record import compared
from klfusion.methods import Method
from klfusion.model_size.preparation import Matched, matched, priors_of, stack_silos
from klfusion.objective.clusters import Clusters
from klfusion.objective.problem import FusionProblem
from klfusion.posteriors.compatibility import aligned_silos
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure.structure import scatter

_T = TypeVar("_T")
_Values = TypeVar("_Values", FloatArray, IntArray)
_SOME = 8  # components, enough to see whether one can stand for all
_SAME = 1e-6  # relative: divergences that agree


@dataclass(frozen=True, eq=False)
class Ledger:
    """Silos and their matching as arrays.

    Parameters
    ----------
    silos, posteriors : tuple of Posterior
        As they were sent; with vocabularies and classes brought to one.
    numbers : int array of shape (J,)
        One for each silo, rising: ``silo`` of the problems below.
    weights : array of shape (J,)
    labels, all_labels : tuple of int arrays, int array of shape (n,)
        By silo, and one after the other.
    stacked : FusionProblem
        All components; the same as those of ``units`` where these are all, one by one.
    counts : array of shape (n,), optional
        How many observations stand behind each, where every silo told.
    units : Matched
        What was matched: what a silo had split is one, what it left out is not there.
    matching : FusionProblem
        The units as ``method`` compares them.
    method : Method, optional
    like : array of shape (1, p), optional
        One component that stands for all when units are made comparable; None if none can.
    variation : array, optional
        Between silos, as units are compared.
    """

    silos: tuple[Posterior, ...]
    posteriors: tuple[Posterior, ...]
    numbers: IntArray
    weights: FloatArray
    labels: tuple[IntArray, ...]
    all_labels: IntArray
    stacked: FusionProblem
    counts: FloatArray | None
    units: Matched
    matching: FusionProblem
    method: Method | None
    like: FloatArray | None
    variation: FloatArray | None

    @classmethod
    def of(
        cls,
        silos: Sequence[Posterior],
        labels: Sequence[IntArray],
        weights: FloatArray,
        method: Method | None,
        certainty: float | None = None,
        posteriors: Sequence[Posterior] | None = None,
        variation: FloatArray | None = None,
    ) -> Ledger:
        """Read everything; units are compared at a ``certainty``, by default their own."""
        posteriors = aligned_silos(silos) if posteriors is None else posteriors
        sizes, all_labels = [len(own) for own in labels], np.concatenate(labels)
        _check_any(all_labels >= 0)
        stacked = stack_silos(posteriors, weights)
        units = matched(posteriors, labels, weights)
        if units.problem.n == stacked.n:  # one array for both
            units = replace(units, problem=stacked)
        like = _standing_for_all(method, units.problem, certainty)
        standing = [] if like is None else [like]
        problem = compared(method, units.problem, *standing, variation=variation)
        problem = replace(problem, given=None)
        for known in (stacked, problem):
            _ = known.log_partition  # computed here, it is handed on
        return cls(
            tuple(silos), tuple(posteriors), np.arange(len(sizes)), weights, tuple(labels),
            all_labels, stacked, _counts(posteriors), units, problem, method, like, variation,
        )  # fmt: skip

    @cached_property
    def clusters(self) -> Clusters:
        """What the units add up to, as they are compared."""
        return Clusters(self.matching, self.units.labels)

    @property
    def certainty(self) -> float | None:
        """At which units are compared; None where that cannot be told by one number."""
        return None if self.like is None else _size(self.stacked.family, self.like)

    def by_silo(self, values: _Values) -> tuple[_Values, ...]:
        """Split an array over all components into one a silo."""
        edges = accumulate(map(len, self.labels), initial=0)
        return tuple([values[a:b] for a, b in pairwise(edges)])

    def pooled_counts(self, size: int) -> FloatArray | None:
        """Observations behind each global component, (G,), where they are known."""
        if self.counts is None:
            return None
        return scatter([self.counts], [self.all_labels], size)

    def compared(self, own: FusionProblem) -> FusionProblem:
        """Other components as the units are compared."""
        like = self.units.problem.natural if self.like is None else self.like
        return replace(compared(self.method, own, like, variation=self.variation), given=None)

    def joined(
        self,
        silo: Posterior,
        posterior: Posterior,
        labels: IntArray,
        own: Matched,
        own_compared: FusionProblem,
    ) -> Ledger:
        """With one more silo, as it was sent and as it goes with the others; its units, too.

        These as `Matched`, and as they are `compared`.
        """
        number, weight = int(self.numbers[-1]) + 1, float(own.problem.weights[0])
        silo_of_units = np.full(own.problem.n, number)
        new = replace(own.problem, silo=silo_of_units)
        units = Matched(
            self.units.problem.joined(new),
            np.append(self.units.labels, own.labels),
            _appended(self.units.priors, own.priors),
        )
        stacked = units.problem
        if self.stacked is not self.units.problem or new.n < len(labels):
            rows = np.full(len(labels), number), np.full(len(labels), weight)
            stacked = FusionProblem(new.family, posterior.natural, *rows)
            stacked = self.stacked.joined(stacked)
        return replace(
            self,
            silos=(*self.silos, silo),
            posteriors=(*self.posteriors, posterior),
            numbers=np.append(self.numbers, number),
            weights=np.append(self.weights, weight),
            labels=(*self.labels, labels),
            all_labels=np.append(self.all_labels, labels),
            stacked=stacked,
            counts=_appended(self.counts, posterior.counts),
            units=units,
            matching=(
                compared(self.method, units.problem, variation=self.variation)
                if self.like is None
                else self.matching.joined(replace(own_compared, silo=silo_of_units))
            ),
        )

    def without(self, j: int) -> Ledger:
        """With one silo less; the others must be aligned as they were sent."""
        number = self.numbers[j]
        less = self._where(self.units.problem.silo != number)
        kept, posteriors, units = self.stacked.silo != number, _but(self.posteriors, j), less.units
        stacked = units.problem
        if self.stacked is not self.units.problem:
            stacked = self.stacked.some(np.flatnonzero(kept))
        counts = None if self.counts is None else self.counts[kept]
        if counts is None:  # the one that did not tell its own may be gone
            counts = _counts(posteriors)
        if units.priors is None:
            where = np.searchsorted(np.delete(self.numbers, j), units.problem.silo)
            units = replace(units, priors=priors_of(posteriors, where))
        return replace(
            less,
            silos=_but(self.silos, j),
            posteriors=posteriors,
            numbers=np.delete(self.numbers, j),
            weights=np.delete(self.weights, j),
            labels=_but(self.labels, j),
            all_labels=self.all_labels[kept],
            stacked=stacked,
            counts=counts,
            units=units,
        )

    def with_support(self, least: int) -> Ledger:
        """With what enough silos have, numbered without holes in the order they had."""
        support = np.bincount(self.units.labels)  # a silo has at most one unit of each
        kept, size = enough(support, least), len(support)
        if len(kept) == size:
            return self
        number = np.full(size + 1, -1, dtype=np.intp)  # the last: of label -1
        number[kept] = np.arange(len(kept))
        less = self._where(number[self.units.labels] >= 0)
        renumbered = replace(less.units, labels=number[less.units.labels])
        labels = number[self.all_labels]
        by_silo = self.by_silo(labels)
        return replace(less, labels=by_silo, all_labels=labels, units=renumbered)

    def _where(self, kept: BoolArray) -> Ledger:
        """With some of the units only."""
        if kept.all():
            return self
        _check_any(kept)
        rows, units = np.flatnonzero(kept), self.units
        problem, priors = units.problem.some(rows), units.priors
        return replace(
            self,
            units=Matched(problem, units.labels[rows], None if priors is None else priors[rows]),
            matching=(
                compared(self.method, problem, variation=self.variation)
                if self.like is None
                else self.matching.some(rows)
            ),
        )


def _check_any(kept: BoolArray) -> None:
    if not kept.any():
        raise KLFusionError("expected components to be left, got none")


def _but(values: tuple[_T, ...], j: int) -> tuple[_T, ...]:
    return values[:j] + values[j + 1 :]


def _appended(values: FloatArray | None, more: FloatArray | None) -> FloatArray | None:
    return None if values is None or more is None else np.concatenate([values, more])


def _counts(posteriors: Sequence[Posterior]) -> FloatArray | None:
    """Observations behind all components, (n,); None unless every silo told them."""
    known = [p.counts for p in posteriors if p.counts is not None]
    return np.concatenate(known) if len(known) == len(posteriors) else None


def _size(family: Family, one: FloatArray) -> float | None:
    """How many observations one component ``(1, p)`` is worth, where that can be told."""
    return float(family.effective_size(one)[0]) if isinstance(family, Tempered) else None


def _standing_for_all(
    method: Method | None, problem: FusionProblem, certainty: float | None
) -> FloatArray | None:
    """One component ``(1, p)`` amid all and as certain as they are, or as is asked for.

    None if, of some components, it makes something else than they do of themselves: one number
    does not tell how certain a product of families is, or weights that are brought to one variance.
    """
    some = problem.some(np.arange(min(_SOME, problem.n)))
    given, by_one = (
        compared(method, some, like).natural for like in (some.natural, _typical(some))
    )
    family = problem.family
    if not np.allclose(family.kl(given, given), family.kl(by_one, by_one), rtol=_SAME, atol=_SAME):
        return None
    return _typical(problem, certainty)


def _typical(problem: FusionProblem, certainty: float | None = None) -> FloatArray:
    """The average, as certain as all are in the geometric mean."""
    family, one = problem.family, np.mean(problem.natural, axis=0, keepdims=True)
    if not isinstance(family, Tempered):
        return np.asarray(one)
    size, own = family.effective_size(problem.natural), family.effective_size(one)
    wanted = np.exp(np.log(size).mean()) if certainty is None else certainty
    return family.tempered(one, wanted / own)
