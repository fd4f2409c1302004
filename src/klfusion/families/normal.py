"""Multivariate Normal with a full covariance matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.errors import InvalidPosteriorError
from klfusion.families.gaussian import LOG_2PI, NormalDistribution
from klfusion.families.numerics import symmetric as sym
from klfusion.families.parameters import rows, stack


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

    def _from_moments(self, mean: FloatArray, covariance: FloatArray) -> FloatArray:
        return self.natural(mean, covariance)

    def _precision(self, natural: FloatArray) -> FloatArray:
        return sym.unpack(natural[:, self.dim :], self.dim)

    def _times_precision(self, natural: FloatArray, vector: FloatArray) -> FloatArray:
        return np.asarray((self._precision(natural) @ vector[..., None])[..., 0])

    def _moments(self, natural: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean (n, d) and covariance (n, d, d)."""
        covariance = np.linalg.inv(self._precision(natural))
        covariance = 0.5 * (covariance + covariance.swapaxes(1, 2))
        return np.einsum("nij,nj->ni", covariance, natural[:, : self.dim]), covariance

    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """``mean`` and ``covariance``."""
        mean, covariance = self._moments(natural)
        return {"mean": mean, "covariance": covariance}

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A(eta)``."""
        shift, precision = natural[:, : self.dim], self._precision(natural)
        mean = np.linalg.solve(precision, shift[..., None])[..., 0]
        square = np.einsum("ni,ni->n", shift, mean)
        return np.asarray(0.5 * (square - sym.log_det(precision) + self.dim * LOG_2PI))

    def mean(self, natural: FloatArray) -> FloatArray:
        """``E[x], E[-x x' / 2]``."""
        mean, covariance = self._moments(natural)
        return stack(mean, -0.5 * sym.pack(covariance + sym.outer(mean)))

    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """The pivots of the precision matrix."""
        pivot = sym.smallest_pivot(self._precision(natural))
        return {"smallest eigenvalue of the precision": pivot}
