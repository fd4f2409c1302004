"""What adapters share: checks, provenance, and Gaussians of four covariance types.

scikit-learn and hmmlearn hold per component a mean, its precision ``kappa``, degrees of freedom and
a scatter, which is the covariance times ``dof``. A Gamma has half of ``dof`` and scatter per
dimension it is for.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion._utils.package import provenance
from klfusion.errors import KLFusionError
from klfusion.families import Family, IsotropicNormalGamma, NormalGamma, NormalWishart
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import Structure


def origin(
    package: str, cls: str, kind: str, arrays: Mapping[str, Any], info: Mapping[str, Any]
) -> tuple[Structure, dict[str, Any]]:
    """Structure and provenance by which `rebuild` finds the package and class of a model."""
    structure = Structure(kind, arrays, {"package": package, "class": cls, **info})
    return structure, provenance(**versions(package))


def versions(package: str) -> dict[str, str]:
    """The version of a loaded library, by name."""
    version = getattr(sys.modules.get(package), "__version__", None)
    return {} if version is None else {package: str(version)}


def check_fitted(model: Any, attributes: str | list[str] | None = None) -> None:
    """Refuse an estimator that is not fitted."""
    from sklearn.exceptions import NotFittedError  # noqa: PLC0415 (slow to import)
    from sklearn.utils.validation import check_is_fitted  # noqa: PLC0415

    try:
        check_is_fitted(model, attributes)
    except NotFittedError as error:
        raise KLFusionError(f"expected a fitted {type(model).__name__}; call fit first") from error


def feature_names(model: Any) -> list[str] | None:
    """Names of the columns, if the model was fitted to a data frame."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def class_names(classes: Any) -> tuple[list[str], str]:
    """The names of classes, and the type of their labels."""
    labels = np.asarray(classes).tolist()
    kind = type(labels[0]).__name__
    if kind not in _TYPES:
        raise KLFusionError(f"expected classes that are numbers, text or booleans, got {kind}")
    return [str(label) for label in labels], kind


def classes_of(info: Mapping[str, Any]) -> Any:
    """The labels of classes from their names and type."""
    return np.array([_TYPES[info["type"]](text) for text in info["components"]])


def structure_and_prior(
    posterior: Posterior, expected: str, array: str | None = None
) -> tuple[Structure, FloatArray]:
    """Structure and prior of a posterior; refuse one that lacks them, or ``array``."""
    structure, prior = posterior.structure, posterior.prior
    if structure is None or prior is None or (array and array not in structure.arrays):
        raise KLFusionError(f"{posterior.name!r}: expected {expected}")
    return structure, prior


_TYPES: dict[str, Callable[[str], Any]] = {
    "int": int, "float": float, "str": str, "bool": lambda text: text == "True",
}  # fmt: skip
_ASYMMETRY = 1e-3  # largest relative difference across the diagonal that rounding explains
_FAMILIES: dict[str, Callable[[int], Family]] = {
    "full": NormalWishart,  # scatter (n, d, d)
    "tied": NormalWishart,  # (d, d), one for all components
    "diag": NormalGamma,  # (n, d)
    "spherical": IsotropicNormalGamma,  # (n,), a mean over dimensions
}


class Gaussians(NamedTuple):
    """Parameters of ``n`` components, or of ``n`` copies of their prior."""

    mean: FloatArray  # (n, d)
    kappa: FloatArray  # (n,)
    dof: FloatArray  # (n,); () if tied
    scatter: FloatArray  # of the shape in `_FAMILIES`

    @property
    def covariance(self) -> FloatArray:
        """The scatter divided by the degrees of freedom."""
        return self.scatter / _aligned(self.dof, self.scatter)


def family_of(given: str, dim: int) -> Family:
    """The family of a covariance type."""
    if given not in _FAMILIES:
        known = ", ".join(_FAMILIES)
        raise KLFusionError(f"expected covariance_type to be one of {known}, got {given!r}")
    return _FAMILIES[given](dim)


def natural_of(family: Family, mean: Any, kappa: Any, dof: Any, scatter: Any) -> FloatArray:
    """Natural parameters (n, p); those that a tied model shares are repeated."""
    n = len(mean)
    if isinstance(family, NormalWishart):
        scatter = np.broadcast_to(scatter, (n, family.dim, family.dim))
        return family.natural(mean, kappa, _symmetric(scatter), np.broadcast_to(dof, n))
    factor = _gamma_factor(family)
    return family.natural(mean, kappa, factor * np.asarray(dof), factor * np.asarray(scatter))


def _symmetric(scatter: FloatArray) -> FloatArray:
    """Remove asymmetry from rounding; refuse a larger one."""
    difference = np.abs(scatter - scatter.swapaxes(1, 2)).max(axis=(1, 2))
    bad = np.flatnonzero(difference > _ASYMMETRY * np.abs(scatter).max(axis=(1, 2)))
    if len(bad):
        raise KLFusionError(
            f"component {bad[0]}: expected a symmetric covariance matrix, got entries that differ "
            "from those across the diagonal"
        )
    return 0.5 * (scatter + scatter.swapaxes(1, 2))


def predicting(now: Gaussians, before: Gaussians, counts: FloatArray) -> Gaussians:
    """With ``kappa`` of the prior plus ``counts`` (n,), as the libraries' M-steps have it.

    That of a fused posterior also expresses how much means vary between silos. In densities that
    would count twice, because the scatter has it already.
    """
    return now._replace(kappa=before.kappa + counts)


def gaussians_of(family: Family, natural: FloatArray, *, tied: bool = False) -> Gaussians:
    """The inverse of `natural_of`; the scatter of ``tied`` components is the average."""
    p = family.params(natural)
    if isinstance(family, NormalWishart):
        dof, scatter = p["dof"], p["scale_inv"]
        if tied:
            dof, scatter = dof.mean(), scatter.mean(axis=0)
        return Gaussians(p["mean"], p["kappa"], dof, scatter)
    kappa, shape, rate = p["kappa"], p["shape"], p["rate"]
    if isinstance(family, NormalGamma):  # the libraries have one value for all dimensions
        kappa, shape = kappa[:, 0], shape[:, 0]
    factor = _gamma_factor(family)
    return Gaussians(p["mean"], kappa, shape / factor, rate / factor)


def scatter_of(covariance: Any, dof: Any) -> FloatArray:
    """The scatter of covariances of any type."""
    return np.asarray(covariance * _aligned(np.asarray(dof), np.asarray(covariance)))


def _gamma_factor(family: Family) -> float:
    """Gamma shape per degree of freedom: one half, times the dimensions that share a precision."""
    return 0.5 * family.dim if isinstance(family, IsotropicNormalGamma) else 0.5


def _aligned(dof: FloatArray, scatter: FloatArray) -> FloatArray:
    """``dof`` in a shape that broadcasts over the components of a scatter."""
    return dof if dof.ndim == 0 else dof.reshape(-1, *[1] * (scatter.ndim - 1))
