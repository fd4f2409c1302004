"""Independent Normals: the mean-field posterior of weights, means or coefficients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.families.capabilities import Centred, UncertainLocation
from klfusion.families.parameters import positive_dimension, rows, stack

_LOG_2PI = np.log(2.0 * np.pi)


@final
@dataclass(frozen=True)
class DiagonalNormal(Centred, UncertainLocation):
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
    dim: int

    def __post_init__(self) -> None:
        positive_dimension(self, self.dim)

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

    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """``mean`` and ``variance``."""
        shift, precision = natural[:, : self.dim], natural[:, self.dim :]
        return {"mean": shift / precision, "variance": 1.0 / precision}

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A(eta)``."""
        shift, precision = natural[:, : self.dim], natural[:, self.dim :]
        total = np.einsum("nd,nd->n", shift, shift / precision) - np.log(precision).sum(axis=1)
        return np.asarray(0.5 * (total + self.dim * _LOG_2PI))

    def log_partition_of_average(self, sums: FloatArray, mass: FloatArray) -> FloatArray:
        """``A(sums / mass)``, without dividing so many numbers."""
        shift, precision = sums[:, : self.dim], sums[:, self.dim :]
        room = shift / precision
        squares = _dots(shift, room) / mass
        logs = np.log(precision, out=room).sum(axis=1) - self.dim * np.log(mass)
        return np.asarray(0.5 * (squares - logs + self.dim * _LOG_2PI))

    def mean(self, natural: FloatArray) -> FloatArray:
        """``E[x], E[-x^2 / 2]``."""
        shift, precision = natural[:, : self.dim], natural[:, self.dim :]
        mean = shift / precision
        return stack(mean, -0.5 * (mean**2 + 1.0 / precision))

    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """The precisions."""
        return {"1 / variance": natural[:, self.dim :]}

    def location(self, natural: FloatArray) -> FloatArray:
        """The mean."""
        return natural[:, : self.dim] / natural[:, self.dim :]

    def relocated(
        self, natural: FloatArray, location: FloatArray, covariance: FloatArray | None = None
    ) -> FloatArray:
        """Another mean, the same variance or the one given."""
        precision = natural[:, self.dim :]
        if covariance is not None:
            precision = 1.0 / np.einsum("nii->ni", covariance)
        return stack(location * precision, precision)

    def location_covariance(self, natural: FloatArray) -> FloatArray:
        """The variances."""
        return 1.0 / natural[:, self.dim :]

    def centred(self, natural: FloatArray, like: FloatArray | None = None) -> FloatArray:
        """Means minus their average."""
        shift, precision = natural[:, : self.dim], natural[:, self.dim :]
        origin = self.location(natural if like is None else like).mean(axis=0)
        return stack(shift - precision * origin, precision)


def _dots(a: FloatArray, b: FloatArray) -> FloatArray:
    """Products of rows, (n,); einsum takes twice as long, and there are as many as pairs."""
    return np.asarray(np.matmul(a[:, None, :], b[:, :, None])[:, 0, 0])
