"""The components of a fusion's silos side by side, so that a silo more or less costs little.

Sums are always computed from the rows present: no silo that left stays in a rounding error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray, numbering
from klfusion.errors import KLFusionError
from klfusion.families import Tempered
from klfusion.fusion.assemble import enough
from klfusion.fusion.result import Fusion
from klfusion.fusion.settings import FuseSettings
from klfusion.methods import Method
from klfusion.model_size.preparation import stack_silos
from klfusion.objective.clusters import Clusters
from klfusion.objective.problem import FusionProblem
from klfusion.pooling.one_prior import under_one_prior
from klfusion.pooling.pool import Matched, matched, priors_of
from klfusion.posteriors.columns import unmeasured
from klfusion.posteriors.compatibility import aligned_silos
from klfusion.posteriors.posterior import Posterior

_T = TypeVar("_T")
_Silos = Sequence[Posterior]
_Values = TypeVar("_Values", FloatArray, IntArray)
_SOME = 8  # components, enough to check whether one can stand for all
_SAME = 1e-6  # relative difference of divergences that counts as rounding
_MOST_KEPT = 50_000_000  # natural parameters; larger tables are read anew each time

TABLES: WeakKeyDictionary[Fusion, Table] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Table:
    """Silos as sent and aligned, labels (n_j,) per silo, and the components behind them.

    All local components are ``stacked``. Matched ones are ``units``, with splits of a silo merged;
    ``compared`` has the units in comparable form.
    """

    silos: tuple[Posterior, ...]
    posteriors: tuple[Posterior, ...]
    labels: tuple[IntArray, ...]
    stacked: FusionProblem
    units: Matched
    compared: FusionProblem
    comparison: Comparison

    @classmethod
    def of(
        cls, silos: _Silos, labels: Sequence[IntArray], settings: FuseSettings, aligned: _Silos = ()
    ) -> Table:
        """Read all silos; components are compared at the settings' certainty, or at their own."""
        how = settings.pooling, settings.method.divergence
        posteriors = tuple(aligned or under_one_prior(aligned_silos(silos), *how))
        _check_any(np.concatenate(labels) >= 0)
        weights = settings.weight_array()
        stacked, units = stack_silos(posteriors, weights), matched(posteriors, labels, weights)
        if units.problem.n == stacked.n:  # one array for both
            units = replace(units, problem=stacked)
        comparison = Comparison.of(units.problem, settings).among(posteriors)
        compared = comparison.apply(units.problem)
        for known in (stacked, compared):
            _ = known.log_partition  # computed here, it is handed on
        found = stacked, units, compared, comparison
        return cls(tuple(silos), posteriors, tuple(labels), *found)

    def remember(self, fusion: Fusion) -> None:
        """Keep the table as long as the fusion lives."""
        if self.stacked.natural.size <= _MOST_KEPT:
            TABLES[fusion] = self

    @cached_property
    def clusters(self) -> Clusters:
        """Sums of the units over each global component, as they are compared."""
        return Clusters(self.compared, self.units.labels)

    @property
    def all_labels(self) -> IntArray:
        """Labels of all silos, one after the other, (n,)."""
        return np.concatenate(self.labels)

    @cached_property
    def weights(self) -> FloatArray:
        """How much each silo counts, (J,)."""
        return np.asarray(self.stacked.weights[np.cumsum([0, *map(len, self.labels[:-1])])])

    def settings_from(self, settings: FuseSettings) -> FuseSettings:
        """The settings with these silos' weights and the effective size of their comparison."""
        like, family = self.comparison.like, self.stacked.family
        certainty = None
        if like is not None and isinstance(family, Tempered):
            certainty = float(family.effective_size(like)[0])
        return replace(settings.with_weights(self.weights), certainty=certainty)

    def by_silo(self, values: _Values) -> tuple[_Values, ...]:
        """Split an array over all local components into one per silo."""
        edges = accumulate(map(len, self.labels), initial=0)
        return tuple([values[a:b] for a, b in pairwise(edges)])

    def joined(
        self,
        sent: tuple[Posterior, Posterior],
        labels: IntArray,
        own: Matched,
        own_compared: FusionProblem,
    ) -> Table:
        """With one more silo: as it was sent and as it is aligned, and its units."""
        number, weight = len(self.silos), float(own.problem.weights[0])
        (silo, posterior), silo_of_units = sent, np.full(own.problem.n, number)
        new = replace(own.problem, silo=silo_of_units)
        priors = None
        if self.units.priors is not None and own.priors is not None:
            priors = np.concatenate([self.units.priors, own.priors])
        all_labels = np.append(self.units.labels, own.labels)
        joined = self.units.problem.joined(new)
        units = Matched(joined, all_labels, priors, tied=self.units.tied)
        stacked = units.problem
        if self.stacked is not self.units.problem or new.n < len(labels):
            rows = np.full(len(labels), number), np.full(len(labels), weight)
            stacked = self.stacked.joined(FusionProblem(new.family, posterior.natural, *rows))
        if self.comparison.like is None:
            compared = self.comparison.apply(units.problem)
        else:
            compared = self.compared.joined(replace(own_compared, silo=silo_of_units))
        lists = (*self.silos, silo), (*self.posteriors, posterior), (*self.labels, labels)
        made = Table(*lists, stacked, units, compared, self.comparison)
        return made.in_columns_of(made.posteriors)

    def without(self, j: int) -> Table:
        """Without one silo; the others must be aligned as they were sent."""
        less = self._where(self.units.problem.silo != j)
        problem = _renumbered(less.units.problem, j)
        stacked, silos, posteriors = problem, _but(self.silos, j), _but(self.posteriors, j)
        if self.stacked is not self.units.problem:
            stacked = _renumbered(self.stacked.some(np.flatnonzero(self.stacked.silo != j)), j)
        priors = less.units.priors
        if priors is None:  # the silo without a prior may be the one that left
            priors = priors_of(posteriors, problem.silo)
        units, compared = replace(less.units, problem=problem, priors=priors), less.compared
        matching = _but(self.labels, j), stacked, units, _renumbered(compared, j)
        return Table(silos, posteriors, *matching, self.comparison).in_columns_of(posteriors)

    def in_columns_of(self, posteriors: _Silos) -> Table:
        """The same, compared in the columns that these silos measured."""
        comparison = self.comparison.among(posteriors)
        if np.array_equal(*(own.unmeasured for own in (comparison, self.comparison))):  # type: ignore[arg-type]
            return self
        compared = comparison.apply(self.units.problem)
        return replace(self, comparison=comparison, compared=compared)

    def with_support(self, least: int) -> Table:
        """With the global components of at least so many silos, in the order they had."""
        support = np.bincount(self.units.labels)  # a silo has at most one unit of each
        kept = enough(support, least)
        if len(kept) == len(support):
            return self
        number = numbering(kept, len(support))
        less = self._where(number[self.units.labels] >= 0)
        units = replace(less.units, labels=number[less.units.labels])
        return replace(less, labels=self.by_silo(number[self.all_labels]), units=units)

    def _where(self, kept: BoolArray) -> Table:
        """With some of the units only."""
        if kept.all():
            return self
        _check_any(kept)
        rows, units = np.flatnonzero(kept), self.units
        problem, priors = units.problem.some(rows), units.priors
        priors = None if priors is None else priors[rows]
        some = Matched(problem, units.labels[rows], priors, tied=units.tied)
        alike = self.comparison.like is not None
        compared = self.compared.some(rows) if alike else self.comparison.apply(problem)
        return replace(self, units=some, compared=compared)


@dataclass(frozen=True, eq=False)
class Comparison:
    """How components are made comparable: ``like`` (1, p) stands for all, None where none can.

    In ``unmeasured`` natural parameters (p,), those of columns, all have one ``prior`` (p,).
    """

    method: Method
    like: FloatArray | None
    variation: FloatArray | None
    unmeasured: BoolArray | None = None
    prior: FloatArray | None = None

    @classmethod
    def of(cls, problem: FusionProblem, settings: FuseSettings) -> Comparison:
        """That of a fusion, at its certainty if it has one."""
        family, method = problem.family, settings.method
        variation = settings.variation_array(family)
        some = problem.some(np.arange(min(_SOME, problem.n)))
        likes = some.natural, _typical(some)
        by_all, by_one = (method.compared(some, like).natural for like in likes)
        both = family.kl(by_all, by_all), family.kl(by_one, by_one)
        # One number does not describe the certainty of a product of families.
        alike = np.allclose(*both, rtol=_SAME, atol=_SAME)
        return cls(method, _typical(problem, settings.certainty) if alike else None, variation)

    def among(self, posteriors: _Silos) -> Comparison:
        """The same of these silos, some of which may have hardly measured a column."""
        return replace(self, unmeasured=unmeasured(posteriors), prior=posteriors[0].prior)

    def apply(self, problem: FusionProblem, like: FloatArray | None = None) -> FusionProblem:
        """A problem as the method compares it; as ``like`` is where nothing stands for all."""
        standing = self.like if self.like is not None else like
        given = [] if standing is None else [standing]
        which, prior = self.unmeasured, self.prior
        if which is not None and prior is not None:
            problem = replace(problem, natural=np.where(which, prior, problem.natural))
            given = [np.where(which, prior, own) for own in given]
        return replace(self.method.compared(problem, *given, variation=self.variation), given=None)


def kept_silos(fusion: Fusion, what: str) -> tuple[Posterior, ...]:
    """What the silos sent; ``what`` cannot be done without."""
    if fusion.silos is None:
        raise KLFusionError(
            f"cannot {what}: this fusion does not hold what its silos sent; "
            "expected one made with keep_silos=True, which memory_limit and Dask do without, and "
            "not one that klfusion share wrote: use the original, or fuse its silos again"
        )
    return fusion.silos


def _typical(problem: FusionProblem, certainty: float | None = None) -> FloatArray:
    """The average component ``(1, p)``, as certain as all are in the geometric mean."""
    family, one = problem.family, np.mean(problem.natural, axis=0, keepdims=True)
    if not isinstance(family, Tempered):
        return np.asarray(one)
    size, own = family.effective_size(problem.natural), family.effective_size(one)
    wanted = np.exp(np.log(size).mean()) if certainty is None else certainty
    return family.tempered(one, wanted / own)


def _check_any(kept: BoolArray) -> None:
    if not kept.any():
        raise KLFusionError("expected components to be left, got none")


def _renumbered(problem: FusionProblem, j: int) -> FusionProblem:
    """Silos numbered without the one that left."""
    made = replace(problem, silo=problem.silo - (problem.silo > j))
    if "log_partition" in vars(problem):
        vars(made)["log_partition"] = problem.log_partition
    return made


def _but(values: tuple[_T, ...], j: int) -> tuple[_T, ...]:
    return values[:j] + values[j + 1 :]
