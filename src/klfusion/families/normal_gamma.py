"""Normal-Gamma: a Normal-Wishart whose precision matrix is diagonal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from klfusion._utils.arrays import FloatArray
from klfusion.families.gaussian import DiagonalGaussianPosterior
from klfusion.families.parameters import geometric_mean


@final
@dataclass(frozen=True)
class NormalGamma(DiagonalGaussianPosterior):
    """In each dimension ``tau ~ Gamma(shape, rate)`` and ``mu | tau ~ N(mean, 1 / (kappa tau))``.

    A diagonal Normal-Wishart with ``dof`` and ``scale_inv`` has ``shape = dof / 2`` and
    ``rate = scale_inv / 2``. The natural parameters of a dimension are ``kappa mean``, ``kappa``,
    ``2 rate + kappa mean^2`` and ``2 shape``; each block holds all dimensions.

    Examples
    --------
    >>> import klfusion as kf
    >>> ng = kf.families.NormalGamma(dim=1)
    >>> ng.natural(mean=[2.0], kappa=[3.0], shape=[4.0], rate=[5.0])
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
