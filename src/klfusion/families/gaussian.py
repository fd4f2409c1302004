"""What the posteriors of a Gaussian's parameters share."""

from abc import abstractmethod
from typing import Any

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray, in_blocks
from klfusion.errors import KLFusionError
from klfusion.families import capabilities as can
from klfusion.families.family import DimensionalFamily, numbers

LOG_2PI = np.log(2.0 * np.pi)
_RIDGE = 1e-9  # of the trace: a constant column has no variance


def diagonal_of(covariance: FloatArray) -> FloatArray:
    """Variances ``(n, d)`` of covariances ``(n, d, d)``, or of those that are diagonal already."""
    return covariance if covariance.ndim == 2 else np.einsum("nii->ni", covariance)


def matrices(value: Any, dim: int, name: str) -> FloatArray:
    """A parameter given as ``(n, d, d)``, checked to be symmetric."""
    array = numbers(value, name)
    if array.ndim != 3 or array.shape[1:] != (dim, dim):
        raise KLFusionError(f"{name}: expected shape (n, {dim}, {dim}), got {array.shape}")
    with np.errstate(invalid="ignore"):  # inf - inf; the check at the boundary names the silo
        asymmetry = np.abs(array - array.swapaxes(1, 2)).max(axis=(1, 2), initial=0.0)
    size = np.abs(array).max(axis=(1, 2), initial=0.0)
    bad = np.flatnonzero(asymmetry > 1e-6 * size)
    if len(bad):
        raise KLFusionError(
            f"{name}, component {bad[0]}: expected a symmetric matrix, "
            f"got entries that differ by {asymmetry[bad[0]]:.3g}"
        )
    return 0.5 * (array + array.swapaxes(1, 2))


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
    can.EmpiricalPrior,
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

    def of_points(self, points: FloatArray) -> FloatArray:
        """What each observation (m, d) adds to a prior."""
        return self.observed(points, np.zeros_like(points), np.ones(len(points)))

    def as_observed(
        self, natural: FloatArray, prior: FloatArray, share: FloatArray | None = None
    ) -> FloatArray:
        """With the ``kappa`` of a prior ``(p,)`` plus one per observation of the precision.

        That of a fused posterior also expresses how much its mean varies between silos. Components
        that share their covariance have this ``share`` ``(n,)`` of all observations.
        """
        mean, _, scatter, weight = self._split(natural)
        _, before, _, before_weight = self._split(prior[None])
        _, one, _, one_weight = self._split(self.of_points(mean))
        n = (weight - before_weight) / one_weight
        if share is not None:
            n = np.multiply.outer(share, n.sum(axis=0))
        return self._joined(mean, before + n * one, scatter, weight)

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

    def with_empirical_prior(
        self, natural: FloatArray, prior: FloatArray, silo: IntArray, tied: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        """By the covariance of observations within components, and of means between them.

        Where a posterior has other parameters than its observations add to the prior, its own
        moments stand for those of as many observations. Components of a tied mixture share their
        covariance.
        """
        out, new = natural.copy(), prior.copy()
        with np.errstate(all="ignore"):  # what falls outside of the family is not used
            added = natural - prior[silo]
            mean, covariance = self.observation_moments(natural)
            moments = self.observed(mean, covariance, added[:, self.dim])
            for observed, some in ((moments, np.full(len(prior), True)), (added, ~tied)):
                learned = self._empirical_prior(observed, prior, silo, tied)
                moved = observed + learned[silo]
                outside = np.bincount(silo, ~self.inside(moved), len(prior)) > 0
                good = some & self.inside(learned) & ~outside
                new[good], out[good[silo]] = learned[good], moved[good[silo]]
        return out, new

    def _empirical_prior(
        self, observed: FloatArray, prior: FloatArray, silo: IntArray, tied: BoolArray
    ) -> FloatArray:
        """Of the weight of each prior, which counts as one component more, (J, p).

        The covariance of ``tied`` components, (J,), has the weight of all their observations.
        """
        first = np.searchsorted(silo, np.arange(len(prior)))
        mean, _, scatter, weight = self._split(observed)
        _, kappa, own_scatter, own_weight = self._split(prior)
        total = np.add.reduceat(weight, first) + own_weight
        within = np.add.reduceat(scatter, first) + own_scatter
        within /= _like(total, within)
        n = np.bincount(silo)[:, None].astype(np.float64)
        centre, between = np.add.reduceat(mean, first) / n, self.location_covariance(prior)
        residual = mean - centre[silo]
        full = between.ndim == 3
        squares = residual[:, :, None] * residual[:, None, :] if full else residual**2
        between = (np.add.reduceat(squares, first) + between) / (_like(n, between) + 1.0)
        own_weight = np.where(tied.reshape(-1, *[1] * (total.ndim - 1)), total, own_weight)
        out = self._joined(centre, kappa, within * _like(own_weight, within), own_weight)
        good = np.flatnonzero(self.inside(out))
        if len(good):  # covariances that have an inverse
            kappa = self._kappa(within[good], between[good])
            scatter = within[good] * _like(own_weight[good], within)
            out[good] = self._joined(centre[good], kappa, scatter, own_weight[good])
        return out

    def typical_prior(self, prior: FloatArray) -> FloatArray:
        """By the average covariance within components, and that of means in and between silos.

        An average of natural parameters would take the distance of silos' centres for covariance
        within components: more so where a silo has few components, which lie in one place.
        """
        mean, _, scatter, weight = self._split(prior)
        within = (scatter / _like(weight, scatter)).mean(axis=0, keepdims=True)
        centre, between = mean.mean(axis=0, keepdims=True), self.location_covariance(prior)
        apart = mean - centre
        squares = apart[:, :, None] * apart[:, None, :] if between.ndim == 3 else apart**2
        kappa = self._kappa(within, (between + squares).mean(axis=0, keepdims=True))
        weight = weight.mean(axis=0, keepdims=True)
        return np.asarray(self._joined(centre, kappa, within * _like(weight, within), weight)[0])

    def likelier_prior(self, natural: FloatArray, prior: FloatArray) -> FloatArray:
        """A prior ``(p,)`` of the same weight under which components ``(n, p)`` are likelier.

        It is one step of expectation maximisation of the marginal likelihood, from the ``prior``
        that they have. That counts as one component more, so few components change it little.
        Precisions are averaged, not covariances: one wide component makes no wide prior.
        """
        mean, kappa, scatter, weight = self._split(np.vstack([prior, natural]))
        covariance = scatter / _like(weight, scatter)
        if covariance.ndim == 3:
            precision = np.linalg.inv(covariance)
            sums = np.einsum("nij,nj->i", precision, mean)
            centre = np.linalg.solve(precision.sum(axis=0), sums)
            residual = mean - centre
            square = np.einsum("ni,nij,nj->n", residual, precision, residual) / self.dim
            typical = np.linalg.inv(precision.mean(axis=0))
        else:
            precision = self._per_dimension(1.0 / covariance)
            centre = (precision * mean).sum(axis=0) / precision.sum(axis=0)
            square = (precision * (mean - centre) ** 2).reshape(*covariance.shape, -1).mean(axis=2)
            typical = 1.0 / (1.0 / covariance).mean(axis=0)
        own = weight[:1]
        kappa = np.reshape(1.0 / (square + 1.0 / kappa).mean(axis=0), own.shape)
        found = self._joined(centre[None], kappa, typical * _like(own, scatter), own)
        return np.asarray(found[0])

    def centred(self, natural: FloatArray, like: FloatArray | None = None) -> FloatArray:
        """Means minus their average."""
        origin = self.location(natural if like is None else like).mean(axis=0)

        def moved(own: FloatArray) -> FloatArray:
            mean, *rest = self._split(own)
            return self._joined(mean - origin, *rest)

        return in_blocks(moved, natural)

    def effective_size(self, natural: FloatArray) -> FloatArray:
        """``kappa``: the data, plus the prior's pseudo-data."""
        return natural[:, self.dim]


def _like(values: FloatArray, array: FloatArray) -> FloatArray:
    """The values with as many axes as the array has."""
    return values.reshape(values.shape + (1,) * (array.ndim - values.ndim))
