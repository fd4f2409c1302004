"""Which adapter serves a model: told from the names of its classes, so that nothing is imported."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from klfusion.errors import KLFusionError
from klfusion.posterior import Posterior

# (top-level package, class) -> adapter module with `extract(model, name)` and `rebuild(posterior)`.
_ADAPTERS = {
    ("sklearn", "BayesianGaussianMixture"): "klfusion.adapters.sklearn_mixture",
}


def extract(model: Any, name: str) -> Posterior:
    """The posterior of a fitted model: what a silo sends.

    Parameters
    ----------
    model : fitted model
        A scikit-learn ``BayesianGaussianMixture``.
    name : str
        The silo's name.

    Returns
    -------
    Posterior

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> from sklearn.mixture import BayesianGaussianMixture
    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> kf.extract(BayesianGaussianMixture(n_components=1).fit(x), name="hospital-a")
    Posterior('hospital-a', 1 component, NormalWishart(dim=2))
    """
    for cls in type(model).__mro__:
        module = _ADAPTERS.get((cls.__module__.partition(".")[0], cls.__name__))
        if module is not None:
            extracted: Posterior = import_module(module).extract(model, name)
            return extracted
    raise KLFusionError(
        f"silo {name!r}: cannot read a posterior from {type(model).__name__}; supported: "
        f"{', '.join(sorted(f'{package} {cls}' for package, cls in _ADAPTERS))}, "
        "klfusion.Posterior, or the path of a saved one"
    )


def rebuild(posterior: Posterior) -> Any:
    """A fitted model of the library the posterior came from, ready to predict."""
    info = {} if posterior.structure is None else posterior.structure.info
    module = _ADAPTERS.get((str(info.get("package")), str(info.get("class"))))
    if module is None:
        raise KLFusionError(
            f"{posterior.name!r} does not say which model it came from, so none can be rebuilt; "
            "its parameters are in posterior.params()"
        )
    return import_module(module).rebuild(posterior)
