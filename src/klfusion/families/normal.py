"""Normals with a full or with a diagonal covariance matrix."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from klfusion._utils.arrays import TINY, FloatArray, in_blocks
from klfusion.errors import InvalidPosteriorError
from klfusion.families.capabilities import Centred, UncertainLocation
from klfusion.families.family import DimensionalFamily, rows, stack
from klfusion.families.gaussian import LOG_2PI, deviations_between, diagonal_of, matrices
from klfusion.families.positive_definite import log_det, smallest_pivot
from klfusion.families.triangles import pack, packed_size, unpack

_ROUNDED = 1e-10  # of squares, more than rounding can add to a distance


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
        """Natural parameters from means and covariances, ``(n, d, d)`` or diagonal ``(n, d)``."""

    def location(self, natural: FloatArray) -> FloatArray:
        """The mean."""
        return self._moments(natural)[0]

    def location_covariance(
        self, natural: FloatArray, like: FloatArray | None = None
    ) -> FloatArray:
        """The covariance."""
        del like  # it is known
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

        def moved(own: FloatArray) -> FloatArray:
            shift = own[:, : self.dim] - self._times_precision(own, origin)
            return stack(shift, own[:, self.dim :])

        return in_blocks(moved, natural)


@final
@dataclass(frozen=True)
class Normal(NormalDistribution):
    """``x ~ N(mean, covariance)``; natural parameters ``precision mean`` and ``precision``.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> normal = kf.families.Normal(dim=2)
    >>> eta = normal.natural(mean=[[0, 0], [1, 0]], covariance=np.stack([np.eye(2)] * 2))
    >>> normal.kl(eta[:1], eta)
    array([[0. , 0.5]])
    """

    name: ClassVar[str] = "normal"

    @property
    def size(self) -> int:
        """``p = d + d (d + 1) / 2``."""
        return self.dim + packed_size(self.dim)

    def natural(self, mean: Any, covariance: Any) -> FloatArray:
        """From ``mean`` (n, d) and ``covariance`` (n, d, d)."""
        mean = rows(mean, self.dim, "mean")
        covariance = matrices(covariance, self.dim, "covariance")
        stack(mean, covariance)  # refuses batches of different length
        if np.isfinite(covariance).all():
            pivot = smallest_pivot(covariance)
            bad = np.flatnonzero(~(pivot > 0))
            if len(bad):
                raise InvalidPosteriorError(
                    f"component {bad[0]}: expected a positive definite covariance, "
                    f"got smallest eigenvalue {pivot[bad[0]]:.6g}"
                )
            precision = np.linalg.inv(covariance)
        else:  # let the check at the boundary name the silo
            precision = np.where(np.isfinite(covariance), covariance, np.nan)
        precision = 0.5 * (precision + precision.swapaxes(1, 2))
        return stack(np.einsum("nij,nj->ni", precision, mean), pack(precision))

    def _from_moments(self, mean: FloatArray, covariance: FloatArray) -> FloatArray:
        return self.natural(mean, covariance)

    def _precision(self, natural: FloatArray) -> FloatArray:
        return unpack(natural[:, self.dim :], self.dim)

    def _times_precision(self, natural: FloatArray, vector: FloatArray) -> FloatArray:
        return np.asarray((self._precision(natural) @ vector[..., None])[..., 0])

    def _moments(self, natural: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean (n, d) and covariance (n, d, d)."""
        covariance = np.linalg.inv(self._precision(natural))
        covariance = 0.5 * (covariance + covariance.swapaxes(1, 2))
        return np.einsum("nij,nj->ni", covariance, natural[:, : self.dim]), covariance

    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """``mean`` and ``covariance``."""
        return dict(zip(("mean", "covariance"), self._moments(natural), strict=True))

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A(eta)``."""
        shift, precision = natural[:, : self.dim], self._precision(natural)
        mean = np.linalg.solve(precision, shift[..., None])[..., 0]
        square = np.einsum("ni,ni->n", shift, mean)
        return np.asarray(0.5 * (square - log_det(precision) + self.dim * LOG_2PI))

    def mean(self, natural: FloatArray) -> FloatArray:
        """``E[x], E[-x x' / 2]``."""
        mean, covariance = self._moments(natural)
        return stack(mean, -0.5 * pack(covariance + mean[:, :, None] * mean[:, None, :]))

    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """The pivots of the precision matrix."""
        return {"smallest eigenvalue of the precision": smallest_pivot(self._precision(natural))}


@final
@dataclass(frozen=True)
class DiagonalNormal(NormalDistribution):
    """``x_k ~ N(mean_k, variance_k)``; natural parameters ``mean / variance``, ``1 / variance``.

    Examples
    --------
    >>> import klfusion as kf
    >>> normal = kf.families.DiagonalNormal(dim=2)
    >>> eta = normal.natural(mean=[[0, 0], [2, 0]], variance=[[1, 1], [1, 1]])
    >>> normal.params(normal.barycenter(eta)[None])["mean"]
    array([[1., 0.]])
    """

    name: ClassVar[str] = "diagonal-normal"

    @property
    def size(self) -> int:
        """``p = 2 d``."""
        return 2 * self.dim

    def natural(self, mean: Any, variance: Any) -> FloatArray:
        """From ``mean`` (n, d) and ``variance`` (n, d)."""
        mean, variance = rows(mean, self.dim, "mean"), rows(variance, self.dim, "variance")
        stack(mean, variance)  # refuses batches of different length
        with np.errstate(divide="ignore", invalid="ignore"):
            return stack(mean / variance, 1.0 / variance)

    def _from_moments(self, mean: FloatArray, covariance: FloatArray) -> FloatArray:
        return self.natural(mean, diagonal_of(covariance))

    def _times_precision(self, natural: FloatArray, vector: FloatArray) -> FloatArray:
        return natural[:, self.dim :] * vector

    def _moments(self, natural: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance, each (n, d)."""
        shift, precision = natural[:, : self.dim], natural[:, self.dim :]
        return shift / precision, 1.0 / precision

    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """``mean`` and ``variance``."""
        return dict(zip(("mean", "variance"), self._moments(natural), strict=True))

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A(eta)``."""
        shift, precision = natural[:, : self.dim], natural[:, self.dim :]
        total = np.einsum("nd,nd->n", shift, shift / precision) - np.log(precision).sum(axis=1)
        return np.asarray(0.5 * (total + self.dim * LOG_2PI))

    def log_partition_of_average(self, sums: FloatArray, mass: FloatArray) -> FloatArray:
        """``A(sums / mass)``, without dividing so many numbers."""
        shift, precision = sums[:, : self.dim], sums[:, self.dim :]
        room = shift / precision
        # Inner products of rows, in half the time of einsum, on a path that all pairs take.
        squares = np.matmul(shift[:, None, :], room[:, :, None])[:, 0, 0] / mass
        logs = sum_log(precision) - self.dim * np.log(mass)
        return np.asarray(0.5 * (squares - logs + self.dim * LOG_2PI))

    def least_gaps(self, natural: FloatArray, weights: FloatArray) -> FloatArray:
        """Those of the means at the least precisions, as multiples of their geometric means.

        Of precisions ``r, s`` the gap of the means is ``r s / (r + s)`` times half their squared
        distance, which grows with either. The gap of the precisions is never negative.
        """
        mean, variance = self._moments(natural)
        common = np.exp(-np.log(variance).mean(axis=0))
        least = weights / (common * variance).max(axis=1)
        scaled = mean * np.sqrt(common)
        squares = np.einsum("nd,nd->n", scaled, scaled)
        both = squares[:, None] + squares
        gaps = (1.0 - _ROUNDED) * both - 2.0 * (scaled @ scaled.T)
        gaps *= 0.5 * least[:, None] * least / (least[:, None] + least)
        return np.asarray(np.maximum(gaps, 0.0, out=gaps))

    def mean(self, natural: FloatArray) -> FloatArray:
        """``E[x], E[-x^2 / 2]``."""
        mean, variance = self._moments(natural)
        return stack(mean, -0.5 * (mean**2 + variance))

    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """The precisions."""
        return {"1 / variance": natural[:, self.dim :]}


def sum_log(x: FloatArray) -> FloatArray:
    """``sum_k log x[i, k]`` of positive numbers, ``(n, p) -> (n,)``.

    Logarithms of products of four take a third of the time, unless a product is too large or small.
    """
    quarter = x.shape[1] // 4
    with np.errstate(over="ignore", under="ignore"):
        products = x[:, :quarter] * x[:, quarter : 2 * quarter]
        products *= x[:, 2 * quarter : 3 * quarter]
        products *= x[:, 3 * quarter : 4 * quarter]
    if products.min(initial=1.0) > TINY and products.max(initial=1.0) < np.inf:
        rest = np.log(x[:, 4 * quarter :]).sum(axis=1)
        return np.asarray(np.log(products, out=products).sum(axis=1) + rest)
    return np.asarray(np.log(x).sum(axis=1))
