"""Conjugate families of the columns of a table: statistics, predictions, and their layout.

Columns of one kind are computed at once, as a `Part`. A posterior that a site sends has one factor
per column instead; both hold the same numbers in another order. With ``T(x)`` the statistics of a
row, ``E[log p(x | theta)] = <T(x), mean(eta)> + log h(x)``. The statistics of a missing cell are
zero, which integrates it out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.special import digamma, gammaln, polygamma

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.families import Gamma, NormalGamma
from klfusion.families.gaussian import LOG_2PI
from klfusion.learners.column import ORDERED, Column

_RATES = 200  # counts beyond the mean, in steps, over which a log-density is averaged
_HALF = 0.5  # of the probability: a median
_Moments = tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class PriorStrength:
    """What priors are worth, in observations; sites must agree on it."""

    mean: float  # of a continuous column's mean; its prior deviation is scale / sqrt(mean)
    variance: float  # of its variance
    rate: float  # events, of the rate of a column of counts
    category: float  # per category


@dataclass(frozen=True, eq=False)
class Part(ABC):
    """Columns of one kind."""

    columns: tuple[Column, ...]
    places: IntArray  # of the columns in the schema, (c,)
    first: IntArray  # of each column in a posterior's natural parameters, (c,)
    width: ClassVar[int] = 0  # natural parameters per column, where all have as many

    @property
    def index(self) -> IntArray:
        """Where in a posterior's natural parameters those of this part are, in its order."""
        return (self.first + np.arange(self.width)[:, None]).ravel()

    @abstractmethod
    def prior(self, strength: PriorStrength) -> FloatArray:
        """Natural parameters, (p,), of standardised columns."""

    @abstractmethod
    def mean(self, natural: FloatArray) -> FloatArray:
        """Mean parameters, (K, p) -> (K, p)."""

    @abstractmethod
    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A``, (K, p) -> (K,)."""

    @abstractmethod
    def statistics(self, values: FloatArray) -> list[FloatArray]:
        """``p`` columns (n,) of ``T(x)``."""

    @abstractmethod
    def measured(self, sums: FloatArray) -> FloatArray:
        """Measured cells (K, c) from sums of statistics (K, p)."""

    @abstractmethod
    def log_base(self, values: FloatArray) -> float:
        """The sum of ``log h(x)`` over measured cells, in the units of the data."""

    @abstractmethod
    def log_predictive(self, natural: FloatArray, prior: FloatArray, values: FloatArray) -> Any:
        """Log-density of each row in each component, (n, K), of measured cells."""

    @abstractmethod
    def typical(self, natural: FloatArray, prior: FloatArray, there: FloatArray) -> _Moments:
        """Mean and variance of the log-density of cells ``there`` (n, c), each (n, K)."""

    @abstractmethod
    def imputed(self, natural: FloatArray, share: FloatArray, values: FloatArray) -> FloatArray:
        """Expected values, or the most probable categories, (n, c), of shares (n, K)."""

    def standardised(self, values: FloatArray) -> FloatArray:
        """Values as the fit has them."""
        return values

    def in_units(self, natural: FloatArray) -> FloatArray:
        """Natural parameters of the columns in their units, from those of standardised ones."""
        return natural

    def from_units(self, natural: FloatArray) -> FloatArray:
        """The inverse of `in_units`."""
        return natural


class Independent(Part):
    """Columns that are independent within a component."""

    def typical(self, natural: FloatArray, prior: FloatArray, there: FloatArray) -> _Moments:
        """Sums over the columns that are there."""
        mean, variance = self.by_column(natural, prior)
        return there @ mean.T, there @ variance.T

    @abstractmethod
    def by_column(self, natural: FloatArray, prior: FloatArray) -> _Moments:
        """Mean and variance of a column's log-density in a component, each (K, c)."""


class Gaussians(Independent):
    """Continuous columns."""

    width = 4

    @cached_property
    def family(self) -> NormalGamma:
        """Of all columns at once."""
        return NormalGamma(len(self.columns))

    @cached_property
    def units(self) -> tuple[FloatArray, FloatArray]:
        """Centre and scale of each column."""
        centre, scale = ([getattr(c, key) for c in self.columns] for key in ("centre", "scale"))
        return np.array(centre), np.array(scale)

    def prior(self, strength: PriorStrength) -> FloatArray:
        none, one = np.zeros((1, len(self.columns))), np.ones((1, len(self.columns)))
        half = 0.5 * strength.variance * one
        return np.asarray(self.family.natural(none, strength.mean * one, half, half)[0])

    def mean(self, natural: FloatArray) -> FloatArray:
        return self.family.mean(natural)

    def log_partition(self, natural: FloatArray) -> FloatArray:
        return self.family.log_partition(natural)

    def standardised(self, values: FloatArray) -> FloatArray:
        centre, scale = self.units
        return np.asarray((values - centre) / scale)

    def in_units(self, natural: FloatArray) -> FloatArray:
        centre, scale = self.units
        p = self.family.params(natural)
        mean, rate = centre + scale * p["mean"], scale**2 * p["rate"]
        return self.family.natural(mean, p["kappa"], p["shape"], rate)

    def from_units(self, natural: FloatArray) -> FloatArray:
        centre, scale = self.units
        p = self.family.params(natural)
        mean, rate = (p["mean"] - centre) / scale, p["rate"] / scale**2
        return self.family.natural(mean, p["kappa"], p["shape"], rate)

    def statistics(self, values: FloatArray) -> list[FloatArray]:
        there, x = ~np.isnan(values), np.nan_to_num(values)
        one = there.astype(np.float64)
        return [*x.T, *one.T, *np.square(x).T, *one.T]

    def measured(self, sums: FloatArray) -> FloatArray:
        return sums[:, 3 * len(self.columns) :]

    def log_base(self, values: FloatArray) -> float:
        counts = np.count_nonzero(~np.isnan(values), axis=0)
        return -float(counts @ (0.5 * LOG_2PI + np.log(self.units[1]))) - log_volume(values, self)

    def _students(self, natural: FloatArray, prior: FloatArray) -> tuple[FloatArray, ...]:
        """Mean, scale and degrees of freedom of Student's t, each (K, c).

        ``kappa`` is that of the observations: that of a fused mean also expresses its variation
        between sites, which the variance of the observations has already.
        """
        p, before = self.family.params(natural), self.family.params(prior[None])
        kappa = before["kappa"] + 2.0 * (p["shape"] - before["shape"])
        variance = p["rate"] / p["shape"] * (1.0 + 1.0 / kappa)
        return p["mean"], np.sqrt(variance), 2.0 * p["shape"]

    def log_predictive(self, natural: FloatArray, prior: FloatArray, values: FloatArray) -> Any:
        mean, scale, dof = self._students(natural, prior)
        at_mean = _log_t(dof) - np.log(scale)
        out = np.empty((len(values), len(natural)))
        for k in range(len(natural)):
            z = (values - mean[k]) / scale[k]
            log_density = at_mean[k] - 0.5 * (dof[k] + 1.0) * np.log1p(z**2 / dof[k])
            out[:, k] = np.nansum(log_density, axis=1)
        return out

    def by_column(self, natural: FloatArray, prior: FloatArray) -> _Moments:
        _, scale, dof = self._students(natural, prior)
        # log(1 + z^2 / dof) is minus the logarithm of a Beta(dof / 2, 1 / 2) variate.
        a, b = 0.5 * dof, 0.5 * (dof + 1.0)
        average = _log_t(dof) - np.log(scale) - b * (digamma(b) - digamma(a))
        return average, b**2 * (polygamma(1, a) - polygamma(1, b))

    def imputed(self, natural: FloatArray, share: FloatArray, values: FloatArray) -> FloatArray:
        return np.asarray(share @ self.family.params(natural)["mean"])


def log_volume(values: FloatArray, part: Part) -> float:
    """The sum of logarithms of values whose logarithm is fitted: a density is per unit of them."""
    return float(np.nansum(values[:, [column.log for column in part.columns]]))


def _log_t(dof: FloatArray) -> FloatArray:
    """Log-density of a standard Student's t at zero."""
    return np.asarray(gammaln(0.5 * (dof + 1.0)) - gammaln(0.5 * dof) - 0.5 * np.log(dof * np.pi))


class Rates(Independent):
    """Columns of counts: Poisson with a Gamma rate."""

    width = 2

    @cached_property
    def family(self) -> Gamma:
        """Of all columns at once."""
        return Gamma(len(self.columns))

    def prior(self, strength: PriorStrength) -> FloatArray:
        shape = np.full(len(self.columns), strength.rate)
        return np.concatenate([shape, shape / np.array([c.centre for c in self.columns])])

    def mean(self, natural: FloatArray) -> FloatArray:
        return self.family.mean(natural)

    def log_partition(self, natural: FloatArray) -> FloatArray:
        return self.family.log_partition(natural)

    def statistics(self, values: FloatArray) -> list[FloatArray]:
        return [*np.nan_to_num(values).T, *(~np.isnan(values)).astype(np.float64).T]

    def measured(self, sums: FloatArray) -> FloatArray:
        return sums[:, len(self.columns) :]

    def log_base(self, values: FloatArray) -> float:
        return -float(np.nansum(gammaln(values + 1.0)))

    def log_predictive(self, natural: FloatArray, prior: FloatArray, values: FloatArray) -> Any:
        shape, rate = np.split(natural, 2, axis=1)
        out = np.empty((len(values), len(natural)))
        for k in range(len(natural)):
            out[:, k] = np.nansum(_negative_binomial(values, shape[k], rate[k]), axis=1)
        return out

    def by_column(self, natural: FloatArray, prior: FloatArray) -> _Moments:
        shape, rate = np.split(natural, 2, axis=1)
        expected = shape / rate
        deviation = np.sqrt(expected * (1.0 + 1.0 / rate))
        # Ten deviations hold all but a negligible part.
        steps = np.maximum(1.0, np.ceil((expected + 10.0 * deviation) / _RATES))
        values = np.arange(_RATES + 1.0)[:, None, None] * steps
        log_density = _negative_binomial(values, shape, rate)
        weight = np.exp(log_density)
        weight /= weight.sum(axis=0)
        average = (weight * log_density).sum(axis=0)
        return average, (weight * (log_density - average) ** 2).sum(axis=0)

    def imputed(self, natural: FloatArray, share: FloatArray, values: FloatArray) -> FloatArray:
        shape, rate = np.split(natural, 2, axis=1)
        return np.asarray(np.rint(share @ (shape / rate)))


def _negative_binomial(values: FloatArray, shape: FloatArray, rate: FloatArray) -> FloatArray:
    log_density = gammaln(shape + values) - gammaln(shape) - gammaln(values + 1.0)
    log_density += shape * np.log(rate / (rate + 1.0)) - values * np.log1p(rate)
    return np.asarray(log_density)


class Tables(Independent):
    """Binary, categorical and ordered columns, each a Dirichlet over its categories."""

    @cached_property
    def _sizes(self) -> IntArray:
        return np.array([len(column.categories) for column in self.columns])

    @cached_property
    def _starts(self) -> IntArray:
        """The first category of each column, among all."""
        return np.concatenate([[0], np.cumsum(self._sizes)[:-1]])

    @property
    def index(self) -> IntArray:
        within = np.arange(self._sizes.sum()) - np.repeat(self._starts, self._sizes)
        return np.asarray(np.repeat(self.first, self._sizes) + within)

    def prior(self, strength: PriorStrength) -> FloatArray:
        return np.full(int(self._sizes.sum()), strength.category)

    def _totals(self, natural: FloatArray) -> FloatArray:
        return np.add.reduceat(natural, self._starts, axis=1)

    def mean(self, natural: FloatArray) -> FloatArray:
        totals = digamma(self._totals(natural))
        return np.asarray(digamma(natural) - np.repeat(totals, self._sizes, axis=1))

    def log_partition(self, natural: FloatArray) -> FloatArray:
        totals = gammaln(self._totals(natural)).sum(axis=1)
        return np.asarray(gammaln(natural).sum(axis=1) - totals)

    def statistics(self, values: FloatArray) -> list[FloatArray]:
        return [
            (own == k).astype(np.float64)
            for own, size in zip(values.T, self._sizes, strict=True)
            for k in range(size)
        ]

    def measured(self, sums: FloatArray) -> FloatArray:
        return self._totals(sums)

    def log_base(self, values: FloatArray) -> float:
        return 0.0

    def _shares(self, natural: FloatArray) -> FloatArray:
        """Expected probabilities, (K, p)."""
        return np.asarray(natural / np.repeat(self._totals(natural), self._sizes, axis=1))

    def log_predictive(self, natural: FloatArray, prior: FloatArray, values: FloatArray) -> Any:
        log_shares = np.log(self._shares(natural))
        out = np.zeros((len(values), len(natural)))
        for own, start in zip(values.T, self._starts, strict=True):
            there = np.flatnonzero(~np.isnan(own))
            out[there] += log_shares[:, start + own[there].astype(int)].T
        return out

    def by_column(self, natural: FloatArray, prior: FloatArray) -> _Moments:
        shares = self._shares(natural)
        log_shares = np.log(shares)
        average = np.add.reduceat(shares * log_shares, self._starts, axis=1)
        square = np.add.reduceat(shares * log_shares**2, self._starts, axis=1)
        return average, np.maximum(square - average**2, 0.0)

    def imputed(self, natural: FloatArray, share: FloatArray, values: FloatArray) -> FloatArray:
        expected = share @ self._shares(natural)
        out = np.empty((len(share), len(self.columns)))
        bounds = zip(self.columns, self._starts, self._sizes, strict=True)
        for k, (column, start, size) in enumerate(bounds):
            own = expected[:, start : start + size]
            if column.kind == ORDERED:  # the median
                out[:, k] = (np.cumsum(own, axis=1) >= _HALF * own.sum(axis=1)[:, None]).argmax(1)
            else:
                out[:, k] = own.argmax(axis=1)
        return out
