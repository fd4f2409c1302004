"""Normal-Wisharts with a diagonal precision matrix, or one precision for all dimensions."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from scipy.special import digamma, gammaln

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.families.capabilities import group_means, reliability, variance_between_silos
from klfusion.families.family import check_offset, geometric_mean, rows, stack
from klfusion.families.gaussian import LOG_2PI, GaussianPosterior, diagonal_of


class DiagonalGaussianPosterior(GaussianPosterior):
    """``tau ~ Gamma(shape, rate)``, one or ``d`` of them, and ``mu ~ N(mean, 1 / (kappa tau))``."""

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
        """From ``mean`` (n, d) and arrays (n, k); ``kappa`` and ``shape`` may be (n,)."""
        k = self.n_precisions
        mean, rate = rows(mean, self.dim, "mean"), rows(rate, k, "rate")
        kappa, shape = rows(kappa, k, "kappa", shared=True), rows(shape, k, "shape", shared=True)
        stack(mean, kappa, shape, rate)  # refuses batches of different length
        check_offset(mean, kappa, 2.0 * rate)
        return self._joined(mean, kappa, rate, shape)

    def _split(self, natural: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Mean (n, d); kappa, rate and shape, each (n, k)."""
        d, k = self.dim, self.n_precisions
        shift, kappa, moment, dof = np.split(natural, [d, d + k, d + 2 * k], axis=1)
        mean = shift / kappa
        return mean, kappa, 0.5 * (moment - self._products(shift, mean)), 0.5 * dof

    def _joined(
        self, mean: FloatArray, kappa: FloatArray, scatter: FloatArray, weight: FloatArray
    ) -> FloatArray:
        moment = 2.0 * scatter + kappa * self._products(mean, mean)
        return stack(kappa * mean, kappa, moment, 2.0 * weight)

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

    def observed(self, mean: FloatArray, covariance: FloatArray, n: FloatArray) -> FloatArray:
        """The moments times ``n``; variances are summed over dimensions of one precision."""
        variance = diagonal_of(covariance).reshape(len(n), self.n_precisions, -1)
        counts = np.repeat(n[:, None], self.n_precisions, axis=1)
        shape = 0.5 * counts * variance.shape[2]
        return self._joined(mean, counts, 0.5 * counts * variance.sum(axis=2), shape)

    def _kappa(self, observed: FloatArray, covariance: FloatArray) -> FloatArray:
        """By the average variance in the dimensions of one precision."""
        n, k = observed.shape
        variance = diagonal_of(covariance).reshape(n, k, -1)
        return np.asarray(observed / variance.mean(axis=2))

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
        """``1 / kappa`` and ``1 / shape`` of the variation, reliabilities, geometric means."""
        mean, kappa, rate, shape = self._split(natural)
        variance = rate / shape
        reference = np.exp(np.log(variance).mean(axis=0))
        in_group = group_means(variance, labels)
        of_means = (np.square(mean - group_means(mean, labels)) / in_group).mean(axis=1)
        of_shapes = np.square(variance / in_group - 1.0).mean(axis=1)
        numbers = [
            variance_between_silos(of_means, (1.0 / kappa).mean(axis=1), labels),
            variance_between_silos(of_shapes, (1.0 / shape).mean(axis=1), labels),
            reliability(mean / np.sqrt(reference), labels),
            reliability(np.log(variance / reference), labels),
        ]
        return np.concatenate([numbers, reference])

    def varied(self, natural: FloatArray, variation: FloatArray) -> FloatArray:
        """Less certain means and variances, each weighted by its reliability."""
        of_means, of_shapes, means_reliable, shapes_reliable = variation[:4]
        reference = variation[4:]
        mean, kappa, rate, shape = self._split(natural)
        variance = reference * (rate / shape / reference) ** shapes_reliable
        shape = 1.0 / (1.0 / shape + of_shapes)
        kappa = means_reliable / (1.0 / kappa + of_means)
        return self.natural(mean, kappa, shape, variance * shape)


@final
@dataclass(frozen=True)
class NormalGamma(DiagonalGaussianPosterior):
    """In each dimension ``tau ~ Gamma(shape, rate)`` and ``mu | tau ~ N(mean, 1 / (kappa tau))``.

    The natural parameters of a dimension are ``kappa mean``, ``kappa``, ``2 rate + kappa mean^2``
    and ``2 shape``; each block holds all dimensions.

    Examples
    --------
    >>> import klfusion as kf
    >>> kf.families.NormalGamma(dim=1).natural(mean=[2.0], kappa=[3.0], shape=[4.0], rate=[5.0])
    array([[ 6.,  3., 22.,  8.]])
    """

    name: ClassVar[str] = "normal-gamma"

    @property
    def n_precisions(self) -> int:
        """One per dimension."""
        return self.dim

    def _products(self, a: FloatArray, b: FloatArray) -> FloatArray:
        return a * b

    def effective_size(self, natural: FloatArray) -> FloatArray:
        """``kappa``, its geometric mean over dimensions."""
        return geometric_mean(natural[:, self.dim : 2 * self.dim])


@final
@dataclass(frozen=True)
class IsotropicNormalGamma(DiagonalGaussianPosterior):
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

    @property
    def n_precisions(self) -> int:
        """One for all dimensions."""
        return 1

    def _products(self, a: FloatArray, b: FloatArray) -> FloatArray:
        return np.asarray(np.einsum("nd,nd->n", a, b)[:, None])

    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """``mean`` (n, d); ``kappa``, ``shape`` and ``rate``, each (n,)."""
        mean, *others = super().params(natural).items()
        return dict([mean, *((key, value[:, 0]) for key, value in others)])
