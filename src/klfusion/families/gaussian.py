"""What the posteriors of a Gaussian's parameters share."""

from abc import abstractmethod

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.families import capabilities as can
from klfusion.families.family import DimensionalFamily

LOG_2PI = np.log(2.0 * np.pi)
_RIDGE = 1e-9  # of the trace: a constant column has no variance


def diagonal_of(covariance: FloatArray) -> FloatArray:
    """Variances ``(n, d)`` of covariances ``(n, d, d)``, or of those that are diagonal already."""
    return covariance if covariance.ndim == 2 else np.einsum("nii->ni", covariance)


def deviations_between(difference: FloatArray, covariance: FloatArray) -> FloatArray:
    """Mahalanobis length of differences ``(m, d)``; NaN where a variance is negative."""
    if covariance.ndim == 2:
        square = (difference**2 / covariance).sum(axis=1)
    else:
        ridge = _RIDGE * np.einsum("nii->n", covariance)[:, None, None]
        covariance = covariance + ridge * np.eye(covariance.shape[1])
        scaled = np.linalg.solve(covariance, difference[:, :, None])[:, :, 0]
        square = np.einsum("nd,nd->n", difference, scaled)
    return np.sqrt(np.where(square >= 0, square, np.nan))


class GaussianPosterior(
    DimensionalFamily,
    can.Tempered,
    can.Centred,
    can.UncertainLocation,
    can.GaussianObservations,
    can.SiloVariation,
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
        """The ``kappa`` that best gives the mean a covariance; ``observed`` is scatter / weight."""

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

    def location_covariance(
        self, natural: FloatArray, like: FloatArray | None = None
    ) -> FloatArray:
        """Covariance of the mean at the expected precision, that of ``like`` where it is given."""
        _, kappa, scatter, weight = self._split(natural)
        if like is not None:
            _, _, scatter, weight = self._split(like)
        return self._per_dimension(scatter / _like(kappa * weight, scatter))

    def observation_moments(self, natural: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means, and covariances at the expected precision."""
        mean, _, scatter, weight = self._split(natural)
        return mean, self._per_dimension(scatter / _like(weight, scatter))

    @abstractmethod
    def observed(self, mean: FloatArray, covariance: FloatArray, n: FloatArray) -> FloatArray:
        """What ``n`` ``(m,)`` observations of these `observation_moments` add to a prior."""

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
