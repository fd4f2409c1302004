"""Isotropic Normal-Gamma: a Normal-Gamma with one precision for all dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

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
from klfusion.families.parameters import check_offset, positive_dimension, rows, stack
from klfusion.families.random_effects import diagonal_variation, diagonal_varied

_LOG_2PI = np.log(2.0 * np.pi)
_TINY = np.finfo(np.float64).tiny


@final
@dataclass(frozen=True)
class IsotropicNormalGamma(
    Tempered, Centred, UncertainLocation, GaussianObservations, SiloVariation
):
    """``tau ~ Gamma(shape, rate)`` and ``mu | tau ~ N(mean, I / (kappa tau))``.

    The posterior of a spherical Gaussian: ``n`` points in ``d`` dimensions add ``n d / 2`` to
    ``shape``. The natural parameters are ``kappa mean``, ``kappa``, ``2 rate + kappa |mean|^2``
    and ``2 shape``.

    Examples
    --------
    >>> import klfusion as kf
    >>> spheres = kf.families.IsotropicNormalGamma(dim=2)
    >>> spheres.natural(mean=[[2.0, 1.0]], kappa=[3.0], shape=[4.0], rate=[5.0])
    array([[ 6.,  3.,  3., 25.,  8.]])
    """

    name: ClassVar[str] = "isotropic-normal-gamma"
    dim: int

    def __post_init__(self) -> None:
        positive_dimension(self, self.dim)

    @property
    def size(self) -> int:
        """``p = d + 3``."""
        return self.dim + 3

    def natural(self, mean: Any, kappa: Any, shape: Any, rate: Any) -> FloatArray:
        """From ``mean`` (n, d) and ``kappa``, ``shape``, ``rate`` (n,)."""
        mean = rows(mean, self.dim, "mean")
        kappa, shape, rate = (
            rows(value, 1, name)
            for name, value in (("kappa", kappa), ("shape", shape), ("rate", rate))
        )
        stack(mean, kappa, shape, rate)  # refuses batches of different length
        check_offset(mean, kappa, 2.0 * rate)
        moment = 2.0 * rate + kappa * np.square(mean).sum(axis=1, keepdims=True)
        return stack(kappa * mean, kappa, moment, 2.0 * shape)

    def _split(self, natural: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Mean (n, d); kappa, shape and rate, each (n,)."""
        shift, (kappa, moment, dof) = natural[:, : self.dim], natural[:, self.dim :].T
        mean = shift / kappa[:, None]
        return mean, kappa, 0.5 * dof, 0.5 * (moment - np.einsum("nd,nd->n", shift, mean))

    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """``mean``, ``kappa``, ``shape`` and ``rate``."""
        mean, kappa, shape, rate = self._split(natural)
        return {"mean": mean, "kappa": kappa.copy(), "shape": shape, "rate": rate}

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A(eta)``."""
        _, kappa, shape, rate = self._split(natural)
        of_mean = 0.5 * self.dim * (_LOG_2PI - np.log(kappa))
        return np.asarray(of_mean - shape * np.log(rate) + gammaln(shape))

    def mean(self, natural: FloatArray) -> FloatArray:
        """``E[tau mu], E[-tau |mu|^2 / 2], E[-tau / 2], E[log tau / 2]``."""
        mean, kappa, shape, rate = self._split(natural)
        precision = shape / rate
        square = self.dim / kappa + precision * np.einsum("nd,nd->n", mean, mean)
        log_precision = digamma(shape) - np.log(rate)
        first = precision[:, None] * mean
        return stack(first, -0.5 * square, -0.5 * precision, 0.5 * log_precision)

    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """``kappa``, ``shape`` and ``rate``."""
        _, kappa, shape, rate = self._split(natural)
        return {"kappa": kappa, "shape": shape, "rate": np.where(kappa > 0, rate, 1.0)}

    def location(self, natural: FloatArray) -> FloatArray:
        """The mean."""
        return self._split(natural)[0]

    def relocated(
        self, natural: FloatArray, location: FloatArray, covariance: FloatArray | None = None
    ) -> FloatArray:
        """Another mean; with a covariance, the ``kappa`` of its average; the rest stays."""
        _, kappa, shape, rate = self._split(natural)
        if covariance is not None:
            kappa = rate / (shape * np.einsum("nii->n", covariance) / self.dim)
        return self.natural(location, kappa, shape, rate)

    def location_covariance(self, natural: FloatArray) -> FloatArray:
        """Variances of the mean at the expected precision."""
        _, kappa, shape, rate = self._split(natural)
        return np.repeat((rate / (shape * kappa))[:, None], self.dim, axis=1)

    def observation_moments(self, natural: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means, and the variance in every dimension."""
        mean, _, shape, rate = self._split(natural)
        return mean, np.repeat((rate / shape)[:, None], self.dim, axis=1)

    def separation(self, natural: FloatArray, a: IntArray, b: IntArray) -> FloatArray:
        """Distance of the means over the deviations, ``(m,)``."""
        mean, _, shape, rate = self._split(natural)
        variance = (rate[a] + rate[b]) / (shape[a] + shape[b])
        square = ((mean[a] - mean[b]) ** 2).sum(axis=1) / variance
        return np.sqrt(np.where(square >= 0, square, np.nan))

    def centred(self, natural: FloatArray, like: FloatArray | None = None) -> FloatArray:
        """Means minus their average."""
        mean, kappa, shape, rate = self._split(natural)
        origin = (mean if like is None else self._split(like)[0]).mean(axis=0)
        return self.natural(mean - origin, kappa, shape, rate)

    @property
    def least_count(self) -> float:
        """Enough to tell a variance: two points."""
        return 2.0

    def effective_size(self, natural: FloatArray) -> FloatArray:
        """``kappa``: the data, plus the prior's pseudo-data."""
        return natural[:, self.dim]

    def n_parameters(self, natural: FloatArray) -> FloatArray:
        """A mean and one variance."""
        return np.full(len(natural), self.dim + 1.0)

    @property
    def variation_size(self) -> int:
        """Variances and reliabilities of means and of variances, and usual variances."""
        return 4 + 1

    def variation(self, natural: FloatArray, labels: IntArray) -> FloatArray:
        """See `klfusion.families.random_effects.diagonal_variation`."""
        mean, kappa, shape, rate = self._split(natural)
        kappa, shape, rate = kappa[:, None], shape[:, None], rate[:, None]
        return diagonal_variation(mean, kappa, rate / shape, shape, labels)

    def varied(self, natural: FloatArray, variation: FloatArray) -> FloatArray:
        """Less certain means and variances; means count, and variances differ, as reliable."""
        mean, kappa, shape, rate = self._split(natural)
        kappa, variance, shape = diagonal_varied(kappa, rate / shape, shape, variation)
        return self.natural(mean, kappa, shape, variance * shape)
