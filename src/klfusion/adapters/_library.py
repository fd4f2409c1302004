"""What the adapters of all libraries share: checks, provenance, the posterior itself."""

import sys
from collections.abc import Mapping
from typing import Any

from klfusion._utils.arrays import FloatArray
from klfusion._utils.provenance import provenance
from klfusion.errors import KLFusionError
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


def structure_and_prior(
    posterior: Posterior, expected: str, array: str | None = None
) -> tuple[Structure, FloatArray]:
    """Structure and prior of a posterior; refuse one that lacks them, or ``array``."""
    structure, prior = posterior.structure, posterior.prior
    if structure is None or prior is None or (array and array not in structure.arrays):
        raise KLFusionError(f"{posterior.name!r}: expected {expected}")
    return structure, prior
