"""Gaussians of the four covariance types that scikit-learn and hmmlearn share.

Both libraries hold, of each component, a mean, ``kappa`` (the precision of the mean), degrees of
freedom and a scatter (their covariance times ``dof``), and add the same to them for each
observation. What that is the posterior of depends on the covariance type:

=========  ==================  ====================  =================
type       scatter             family                its parameters
=========  ==================  ====================  =================
full       (n, d, d)           NormalWishart         scatter, dof
tied       (d, d), one for     NormalWishart         scatter, dof: the
           all components                            same in each
diag       (n, d)              NormalGamma           half of each
spherical  (n,), a mean over   IsotropicNormalGamma  d / 2 of each
           dimensions
=========  ==================  ====================  =================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.errors import KLFusionError
from klfusion.families import Family, IsotropicNormalGamma, NormalGamma, NormalWishart

_ROUNDING = 1e-3  # of covariances, as large as it gets where means are as far off as is allowed
_FAMILIES: dict[str, Callable[[int], Family]] = {
    "full": NormalWishart,
    "tied": NormalWishart,
    "diag": NormalGamma,
    "spherical": IsotropicNormalGamma,
}


class Gaussians(NamedTuple):
    """The libraries' parameters of ``n`` components, or of ``n`` copies of their prior."""

    mean: FloatArray  # (n, d)
    kappa: FloatArray  # (n,)
    dof: FloatArray  # (n,); () if tied
    scatter: FloatArray  # see above

    @property
    def covariance(self) -> FloatArray:
        """The scatter over the degrees of freedom."""
        return self.scatter / _beside(self.dof, self.scatter)


def family_of(covariance_type: str, dim: int, name: str) -> Family:
    """The family of the components of a covariance type; ``name`` is the silo's."""
    if covariance_type not in _FAMILIES:
        raise KLFusionError(
            f"silo {name!r}: expected covariance_type to be one of {', '.join(_FAMILIES)}, "
            f"got {covariance_type!r}"
        )
    return _FAMILIES[covariance_type](dim)


def natural_of(family: Family, mean: Any, kappa: Any, dof: Any, scatter: Any) -> FloatArray:
    """Natural parameters (n, p); what a tied model shares is repeated for each component."""
    n = len(mean)
    if isinstance(family, NormalWishart):
        dof = np.broadcast_to(dof, n)
        scatter = np.broadcast_to(scatter, (n, family.dim, family.dim))
        scatter = _symmetric(scatter)
        return family.natural(mean, kappa, scatter, dof)
    share = _share(family)
    return family.natural(mean, kappa, share * np.asarray(dof), share * np.asarray(scatter))


def _symmetric(scatter: FloatArray) -> FloatArray:
    """Covariances as they are meant: the libraries round either side apart, and no more."""
    difference = np.abs(scatter - scatter.swapaxes(1, 2)).max(axis=(1, 2))
    bad = np.flatnonzero(difference > _ROUNDING * np.abs(scatter).max(axis=(1, 2)))
    if len(bad):
        raise KLFusionError(
            f"component {bad[0]}: expected a symmetric covariance matrix, got entries that differ "
            "from those across the diagonal"
        )
    return 0.5 * (scatter + scatter.swapaxes(1, 2))


def gaussians_of(family: Family, natural: FloatArray, tied_by: FloatArray | None) -> Gaussians:
    """What `natural_of` was given; ``tied_by`` (n,) weighs components into the one scatter."""
    p = family.params(natural)
    if isinstance(family, NormalWishart):
        dof, scatter = p["dof"], p["scale_inv"]
        if tied_by is not None:
            weights = tied_by / tied_by.sum() if tied_by.sum() > 0 else 1.0 / len(dof) + 0 * dof
            dof, scatter = weights @ dof, np.einsum("n,nij->ij", weights, scatter)
        return Gaussians(p["mean"], p["kappa"], dof, scatter)
    kappa, shape, rate = p["kappa"], p["shape"], p["rate"]
    if isinstance(family, NormalGamma):  # the libraries share these between dimensions
        kappa, shape = kappa[:, 0], shape[:, 0]
    return Gaussians(p["mean"], kappa, shape / _share(family), rate / _share(family))


def scatter_of(covariance: Any, dof: Any) -> FloatArray:
    """The scatter behind covariances of any of the shapes above."""
    return np.asarray(covariance * _beside(np.asarray(dof), np.asarray(covariance)))


def _share(family: Family) -> float:
    """Gamma parameters to a degree of freedom: half a dimension's, times those that share it."""
    return 0.5 * family.dim if isinstance(family, IsotropicNormalGamma) else 0.5


def _beside(dof: FloatArray, scatter: FloatArray) -> FloatArray:
    """``dof`` shaped to multiply a scatter, whose components come first."""
    return dof if dof.ndim == 0 else dof.reshape(-1, *[1] * (scatter.ndim - 1))
