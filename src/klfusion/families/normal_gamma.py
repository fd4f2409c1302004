"""Normal-Gamma: a Normal-Wishart whose precision matrix is diagonal."""

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
class NormalGamma(Tempered, Centred, UncertainLocation, GaussianObservations, SiloVariation):
    """In each dimension ``tau ~ Gamma(shape, rate)`` and ``mu | tau ~ N(mean, 1 / (kappa tau))``.

    A diagonal Normal-Wishart with ``dof`` and ``scale_inv`` has ``shape = dof / 2`` and
    ``rate = scale_inv / 2``. The natural parameters of a dimension are ``kappa mean``, ``kappa``,
    ``2 rate + kappa mean^2`` and ``2 shape``, each block stored for all dimensions in turn.

    Examples
    --------
    >>> import klfusion as kf
    >>> ng = kf.families.NormalGamma(dim=1)
    >>> ng.natural(mean=[2.0], kappa=[3.0], shape=[4.0], rate=[5.0])
    array([[ 6.,  3., 22.,  8.]])
    """

    name: ClassVar[str] = "normal-gamma"
    dim: int

    def __post_init__(self) -> None:
        positive_dimension(self, self.dim)

    @property
    def size(self) -> int:
        """``p = 4 d``."""
        return 4 * self.dim

    def natural(self, mean: Any, kappa: Any, shape: Any, rate: Any) -> FloatArray:
        """From (n, d) arrays; ``kappa`` and ``shape`` may be (n,), the same in all dimensions."""
        d = self.dim
        mean, kappa = rows(mean, d, "mean"), rows(kappa, d, "kappa", shared=True)
        shape, rate = rows(shape, d, "shape", shared=True), rows(rate, d, "rate")
        stack(mean, kappa, shape, rate)  # refuses batches of different length
        check_offset(mean, kappa, 2.0 * rate)
        return stack(kappa * mean, kappa, 2.0 * rate + kappa * mean**2, 2.0 * shape)

    def _split(self, natural: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Mean, kappa, shape and rate, each (n, d)."""
        shift, kappa, moment, dof = np.split(natural, 4, axis=1)
        mean = shift / kappa
        return mean, kappa, 0.5 * dof, 0.5 * (moment - shift * mean)

    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """``mean``, ``kappa``, ``shape`` and ``rate``."""
        mean, kappa, shape, rate = self._split(natural)
        return {"mean": mean, "kappa": kappa.copy(), "shape": shape, "rate": rate}

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A(eta)``."""
        _, kappa, shape, rate = self._split(natural)
        terms = 0.5 * (_LOG_2PI - np.log(kappa)) - shape * np.log(rate) + gammaln(shape)
        return np.asarray(terms.sum(axis=1))

    def mean(self, natural: FloatArray) -> FloatArray:
        """``E[tau mu], E[-tau mu^2 / 2], E[-tau / 2], E[log tau / 2]``."""
        mean, kappa, shape, rate = self._split(natural)
        precision = shape / rate
        square = 1.0 / kappa + precision * mean**2
        log_precision = digamma(shape) - np.log(rate)
        return stack(precision * mean, -0.5 * square, -0.5 * precision, 0.5 * log_precision)

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
        """Another mean; with a covariance, another ``kappa``; the rest unchanged."""
        _, kappa, shape, rate = self._split(natural)
        if covariance is not None:
            kappa = rate / (shape * np.einsum("nii->ni", covariance))
        return self.natural(location, kappa, shape, rate)

    def location_covariance(self, natural: FloatArray) -> FloatArray:
        """Variances of the means at the expected precision."""
        _, kappa, shape, rate = self._split(natural)
        return rate / (shape * kappa)

    def observation_moments(self, natural: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means, and variances as the precisions' expectations tell them."""
        mean, _, shape, rate = self._split(natural)
        return mean, rate / shape

    def separation(self, natural: FloatArray, a: IntArray, b: IntArray) -> FloatArray:
        """Distance of the means over the deviations, ``(m,)``."""
        mean, _, shape, rate = self._split(natural)
        variance = (rate[a] + rate[b]) / (shape[a] + shape[b])
        square = ((mean[a] - mean[b]) ** 2 / variance).sum(axis=1)
        return np.sqrt(np.where(square >= 0, square, np.nan))

    def centred(self, natural: FloatArray, like: FloatArray | None = None) -> FloatArray:
        """Means minus their average."""
        mean, kappa, shape, rate = self._split(natural)
        origin = (mean if like is None else self._split(like)[0]).mean(axis=0)
        return self.natural(mean - origin, kappa, shape, rate)

    def effective_size(self, natural: FloatArray) -> FloatArray:
        """``kappa``, its geometric mean over dimensions."""
        kappa = natural[:, self.dim : 2 * self.dim]
        return np.asarray(np.exp(np.log(kappa).mean(axis=1)))

    def n_parameters(self, natural: FloatArray) -> FloatArray:
        """A mean and a variance for each dimension."""
        return np.full(len(natural), 2.0 * self.dim)

    @property
    def variation_size(self) -> int:
        """Variances and reliabilities of means and of variances, and usual variances."""
        return 4 + self.dim

    def variation(self, natural: FloatArray, labels: IntArray) -> FloatArray:
        """See `klfusion.families.random_effects.diagonal_variation`."""
        mean, kappa, shape, rate = self._split(natural)
        return diagonal_variation(mean, kappa, rate / shape, shape, labels)

    def varied(self, natural: FloatArray, variation: FloatArray) -> FloatArray:
        """Less certain means and variances; means count, and variances differ, as reliable."""
        mean, kappa, shape, rate = self._split(natural)
        kappa, variance, shape = diagonal_varied(kappa, rate / shape, shape, variation)
        return self.natural(mean, kappa, shape, variance * shape)
