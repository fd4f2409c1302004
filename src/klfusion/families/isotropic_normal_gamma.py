"""Isotropic Normal-Gamma: a Normal-Gamma with one precision for all dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.families.gaussian import DiagonalGaussianPosterior


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
