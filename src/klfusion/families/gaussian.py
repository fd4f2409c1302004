"""What Gaussian families share: those of a mean and a precision, and plain Normals."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import digamma, gammaln

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.families.capabilities import (
    Centred,
    GaussianObservations,
    SiloVariation,
    Tempered,
    UncertainLocation,
)
from klfusion.families.family import DimensionalFamily
from klfusion.families.parameters import check_offset, rows, stack
from klfusion.families.random_effects import diagonal_variation, diagonal_varied

LOG_2PI = np.log(2.0 * np.pi)
_RIDGE = 1e-9  # of the trace: a constant column has no variance


def deviations_between(difference: FloatArray, covariance: FloatArray) -> FloatArray:
    """Mahalanobis length of differences ``(m, d)``; NaN where a variance is negative.

    Covariances are ``(m, d, d)``, or ``(m, d)`` for diagonal matrices, or ``(m, 1)`` for spheres.
    """
    if covariance.ndim == 2:
        square = (difference**2 / covariance).sum(axis=1)
    else:
        ridge = _RIDGE * np.einsum("nii->n", covariance)[:, None, None]
        covariance = covariance + ridge * np.eye(covariance.shape[1])
        scaled = np.linalg.solve(covariance, difference[:, :, None])[:, :, 0]
        square = np.einsum("nd,nd->n", difference, scaled)
    return np.sqrt(np.where(square >= 0, square, np.nan))


class GaussianPosterior(
    DimensionalFamily, Tempered, Centred, UncertainLocation, GaussianObservations, SiloVariation
):
    """Posterior of the mean and the precision of a Gaussian: ``N(mean, covariance / kappa)``.

    Natural parameters begin with ``kappa mean`` and ``kappa``. A family defines `_split` and
    `_joined`, in terms of a mean, ``kappa``, a scatter and its weight; the expected covariance of
    an observation is scatter over weight.
    """

    @abstractmethod
    def _split(self, natural: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Mean ``(n, d)``, kappa, scatter and its weight."""

    @abstractmethod
    def _joined(
        self, mean: FloatArray, kappa: FloatArray, scatter: FloatArray, weight: FloatArray
    ) -> FloatArray:
        """Natural parameters; undoes `_split`."""

    @abstractmethod
    def _kappa(self, observed: FloatArray, covariance: FloatArray) -> FloatArray:
        """The ``kappa`` that best gives the mean a covariance, ``(n, d, d)``.

        ``observed`` is the covariance of an observation, scatter over weight.
        """

    def location(self, natural: FloatArray) -> FloatArray:
        """The mean."""
        return self._split(natural)[0]

    def relocated(
        self, natural: FloatArray, location: FloatArray, covariance: FloatArray | None = None
    ) -> FloatArray:
        """Another mean; with a covariance, another ``kappa``; the rest stays."""
        _, kappa, scatter, weight = self._split(natural)
        if covariance is not None:
            kappa = self._kappa(scatter / _like(weight, scatter), covariance)
        return self._joined(location, kappa, scatter, weight)

    def location_covariance(self, natural: FloatArray) -> FloatArray:
        """Covariance of the mean at the expected precision."""
        _, kappa, scatter, weight = self._split(natural)
        return self._per_dimension(scatter / _like(kappa * weight, scatter))

    def observation_moments(self, natural: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means, and covariances at the expected precision."""
        mean, _, scatter, weight = self._split(natural)
        return mean, self._per_dimension(scatter / _like(weight, scatter))

    def _per_dimension(self, covariance: FloatArray) -> FloatArray:
        """One variance for all dimensions, ``(n, 1)``, as one for each."""
        if covariance.ndim == 3:
            return covariance
        return np.repeat(covariance, self.dim // covariance.shape[1], axis=1)

    def separation(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Mahalanobis distance of the means by the pooled covariance of observations, ``(m,)``."""
        mean, _, scatter, weight = self._split(first)
        other, _, other_scatter, other_weight = self._split(second)
        pooled = scatter + other_scatter
        return deviations_between(mean - other, pooled / _like(weight + other_weight, pooled))

    def centred(self, natural: FloatArray, like: FloatArray | None = None) -> FloatArray:
        """Means minus their average."""
        mean, *rest = self._split(natural)
        origin = (mean if like is None else self.location(like)).mean(axis=0)
        return self._joined(mean - origin, *rest)

    def effective_size(self, natural: FloatArray) -> FloatArray:
        """``kappa``: the data, plus the prior's pseudo-data."""
        return natural[:, self.dim]


def _like(values: FloatArray, array: FloatArray) -> FloatArray:
    """The values with as many axes as the array has."""
    return values.reshape(values.shape + (1,) * (array.ndim - values.ndim))


class DiagonalGaussianPosterior(GaussianPosterior):
    """``tau ~ Gamma(shape, rate)`` and ``mu | tau ~ N(mean, 1 / (kappa tau))``.

    There are ``n_precisions`` precisions: one per dimension, or one for all.
    """

    @property
    @abstractmethod
    def n_precisions(self) -> int:
        """Number ``k`` of precisions of one component."""

    @abstractmethod
    def _products(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """``a b`` ``(n, k)`` of ``(n, d)`` arrays, summed over dimensions of one precision."""

    @property
    def size(self) -> int:
        """``p = d + 3 k``."""
        return self.dim + 3 * self.n_precisions

    def natural(self, mean: Any, kappa: Any, shape: Any, rate: Any) -> FloatArray:
        """From ``mean`` (n, d) and arrays (n, k).

        ``kappa`` and ``shape`` may be (n,), the same in all dimensions.
        """
        k = self.n_precisions
        mean, rate = rows(mean, self.dim, "mean"), rows(rate, k, "rate")
        kappa, shape = rows(kappa, k, "kappa", shared=True), rows(shape, k, "shape", shared=True)
        stack(mean, kappa, shape, rate)  # refuses batches of different length
        check_offset(mean, kappa, 2.0 * rate)
        moment = 2.0 * rate + kappa * self._products(mean, mean)
        return stack(kappa * mean, kappa, moment, 2.0 * shape)

    def _split(self, natural: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Mean (n, d); kappa, rate and shape, each (n, k)."""
        d, k = self.dim, self.n_precisions
        shift, kappa, moment, dof = np.split(natural, [d, d + k, d + 2 * k], axis=1)
        mean = shift / kappa
        return mean, kappa, 0.5 * (moment - self._products(shift, mean)), 0.5 * dof

    def _joined(
        self, mean: FloatArray, kappa: FloatArray, scatter: FloatArray, weight: FloatArray
    ) -> FloatArray:
        return self.natural(mean, kappa, shape=weight, rate=scatter)

    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """``mean``, ``kappa``, ``shape`` and ``rate``."""
        mean, kappa, rate, shape = self._split(natural)
        return {"mean": mean, "kappa": kappa.copy(), "shape": shape, "rate": rate}

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A(eta)``."""
        _, kappa, rate, shape = self._split(natural)
        each = self.dim // self.n_precisions
        terms = 0.5 * each * (LOG_2PI - np.log(kappa)) - shape * np.log(rate) + gammaln(shape)
        return np.asarray(terms.sum(axis=1))

    def mean(self, natural: FloatArray) -> FloatArray:
        """``E[tau mu], E[-tau mu^2 / 2], E[-tau / 2], E[log tau / 2]``."""
        mean, kappa, rate, shape = self._split(natural)
        precision, each = shape / rate, self.dim // self.n_precisions
        square = each / kappa + precision * self._products(mean, mean)
        log_precision = digamma(shape) - np.log(rate)
        return stack(precision * mean, -0.5 * square, -0.5 * precision, 0.5 * log_precision)

    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """``kappa``, ``shape`` and ``rate``."""
        _, kappa, rate, shape = self._split(natural)
        return {"kappa": kappa, "shape": shape, "rate": np.where(kappa > 0, rate, 1.0)}

    def _kappa(self, observed: FloatArray, covariance: FloatArray) -> FloatArray:
        """By the average variance in the dimensions of one precision."""
        variance = np.einsum("nii->ni", covariance)
        n, k = observed.shape
        return np.asarray(observed / variance.reshape(n, k, -1).mean(axis=2))

    @property
    def least_count(self) -> float:
        """A variance takes two points."""
        return 2.0

    def n_parameters(self, natural: FloatArray) -> FloatArray:
        """A mean and its variances."""
        return np.full(len(natural), float(self.dim + self.n_precisions))

    @property
    def variation_size(self) -> int:
        """Variances and reliabilities of means and of variances, and reference variances."""
        return 4 + self.n_precisions

    def variation(self, natural: FloatArray, labels: IntArray) -> FloatArray:
        """See `klfusion.families.random_effects.diagonal_variation`."""
        mean, kappa, rate, shape = self._split(natural)
        return diagonal_variation(mean, kappa, rate / shape, shape, labels)

    def varied(self, natural: FloatArray, variation: FloatArray) -> FloatArray:
        """Less certain means and variances, each weighted by its reliability."""
        mean, kappa, rate, shape = self._split(natural)
        kappa, variance, shape = diagonal_varied(kappa, rate / shape, shape, variation)
        return self.natural(mean, kappa, shape, variance * shape)


class NormalDistribution(DimensionalFamily, Centred, UncertainLocation):
    """A plain Normal; natural parameters are ``precision mean`` and ``precision``."""

    @abstractmethod
    def _moments(self, natural: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance: ``(n, d, d)``, or ``(n, d)`` for a diagonal matrix."""

    @abstractmethod
    def _times_precision(self, natural: FloatArray, vector: FloatArray) -> FloatArray:
        """Precision times ``vector``, ``(n, d)`` or ``(d,)``."""

    @abstractmethod
    def _from_moments(self, mean: FloatArray, covariance: FloatArray) -> FloatArray:
        """Natural parameters from means and full covariances, ``(n, d, d)``."""

    def location(self, natural: FloatArray) -> FloatArray:
        """The mean."""
        return self._moments(natural)[0]

    def location_covariance(self, natural: FloatArray) -> FloatArray:
        """The covariance."""
        return self._moments(natural)[1]

    def relocated(
        self, natural: FloatArray, location: FloatArray, covariance: FloatArray | None = None
    ) -> FloatArray:
        """Another mean, the same covariance or the one given."""
        if covariance is not None:
            return self._from_moments(location, covariance)
        return stack(self._times_precision(natural, location), natural[:, self.dim :])

    def separation(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Mahalanobis distance of the means by the average covariance, ``(m,)``."""
        (mean, covariance), (other, other_covariance) = map(self._moments, (first, second))
        return deviations_between(mean - other, 0.5 * (covariance + other_covariance))

    def centred(self, natural: FloatArray, like: FloatArray | None = None) -> FloatArray:
        """Means minus their average."""
        origin = self.location(natural if like is None else like).mean(axis=0)
        shift = natural[:, : self.dim] - self._times_precision(natural, origin)
        return stack(shift, natural[:, self.dim :])
