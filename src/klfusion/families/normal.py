"""Multivariate Normal with a full covariance matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.errors import InvalidPosteriorError
from klfusion.families.capabilities import Centred, UncertainLocation
from klfusion.families.numerics import symmetric as sym
from klfusion.families.parameters import positive_dimension, rows, stack

_LOG_2PI = np.log(2.0 * np.pi)


@final
@dataclass(frozen=True)
class Normal(Centred, UncertainLocation):
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
    dim: int

    def __post_init__(self) -> None:
        positive_dimension(self, self.dim)

    @property
    def size(self) -> int:
        """``p = d + d (d + 1) / 2``."""
        return self.dim + sym.packed_size(self.dim)

    def natural(self, mean: Any, covariance: Any) -> FloatArray:
        """From ``mean`` (n, d) and ``covariance`` (n, d, d)."""
        mean = rows(mean, self.dim, "mean")
        covariance = sym.matrices(covariance, self.dim, "covariance")
        stack(mean, covariance)  # refuses batches of different length
        if np.isfinite(covariance).all():
            pivot = sym.smallest_pivot(covariance)
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
        return stack(np.einsum("nij,nj->ni", precision, mean), sym.pack(precision))

    def _moments(self, natural: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean (n, d) and covariance (n, d, d)."""
        precision = sym.unpack(natural[:, self.dim :], self.dim)
        covariance = np.linalg.inv(precision)
        covariance = 0.5 * (covariance + covariance.swapaxes(1, 2))
        return np.einsum("nij,nj->ni", covariance, natural[:, : self.dim]), covariance

    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """``mean`` and ``covariance``."""
        mean, covariance = self._moments(natural)
        return {"mean": mean, "covariance": covariance}

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A(eta)``."""
        shift, precision = natural[:, : self.dim], sym.unpack(natural[:, self.dim :], self.dim)
        mean = np.linalg.solve(precision, shift[..., None])[..., 0]
        square = np.einsum("ni,ni->n", shift, mean)
        return np.asarray(0.5 * (square - sym.log_det(precision) + self.dim * _LOG_2PI))

    def mean(self, natural: FloatArray) -> FloatArray:
        """``E[x], E[-x x' / 2]``."""
        mean, covariance = self._moments(natural)
        return stack(mean, -0.5 * sym.pack(covariance + sym.outer(mean)))

    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """The pivots of the precision matrix."""
        precision = sym.unpack(natural[:, self.dim :], self.dim)
        return {"smallest eigenvalue of the precision": sym.smallest_pivot(precision)}

    def location(self, natural: FloatArray) -> FloatArray:
        """The mean."""
        return self._moments(natural)[0]

    def relocated(
        self, natural: FloatArray, location: FloatArray, covariance: FloatArray | None = None
    ) -> FloatArray:
        """Another mean, the same covariance or the one given."""
        if covariance is not None:
            return self.natural(location, covariance)
        precision = sym.unpack(natural[:, self.dim :], self.dim)
        return stack(np.einsum("nij,nj->ni", precision, location), natural[:, self.dim :])

    def location_covariance(self, natural: FloatArray) -> FloatArray:
        """The covariance."""
        return self._moments(natural)[1]

    def centred(self, natural: FloatArray, like: FloatArray | None = None) -> FloatArray:
        """Means minus their average."""
        origin = self._moments(natural if like is None else like)[0].mean(axis=0)
        precision = sym.unpack(natural[:, self.dim :], self.dim)
        return stack(natural[:, : self.dim] - precision @ origin, natural[:, self.dim :])
