"""Which adapter serves a model: told from the names of its classes, so that nothing is imported."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from klfusion.errors import KLFusionError, MissingDependencyError
from klfusion.posterior import Posterior


@dataclass(frozen=True)
class _Adapter:
    """A module with `extract(model, name, **options)` and `rebuild(posterior)`."""

    module: str
    extra: str | None  # of klfusion that installs the library; None where the core has it

    def load(self) -> ModuleType:
        """Import the adapter, and with it the library."""
        try:
            return import_module(f"klfusion.adapters.{self.module}")
        except ImportError as error:
            raise MissingDependencyError(
                f"this model needs {error.name}, which is not installed: "
                f"pip install 'klfusion[{self.extra}]'"
            ) from error


# (top-level package, class) of a model, and of whatever it inherits from, to its adapter.
_ADAPTERS = {
    ("sklearn", "BayesianGaussianMixture"): _Adapter("sklearn_mixture", None),
    ("sklearn", "LatentDirichletAllocation"): _Adapter("sklearn_lda", None),
    ("hmmlearn", "VariationalGaussianHMM"): _Adapter("hmmlearn_variational", "hmmlearn"),
    ("hmmlearn", "VariationalCategoricalHMM"): _Adapter("hmmlearn_variational", "hmmlearn"),
    ("gensim", "LdaModel"): _Adapter("gensim_lda", "gensim"),
    ("builtins", "dict"): _Adapter("torch_mapping", None),
    ("torch", "Module"): _Adapter("bayesian_torch", "torch"),
    ("ivon", "IVON"): _Adapter("ivon", "ivon"),
    ("laplace", "DiagLaplace"): _Adapter("laplace", "torch"),
    ("pyro", "AutoNormal"): _Adapter("pyro_guide", "pyro"),
    ("pyro", "AutoDiagonalNormal"): _Adapter("pyro_guide", "pyro"),
    ("numpyro", "AutoNormal"): _Adapter("numpyro_guide", "numpyro"),
    ("numpyro", "AutoDiagonalNormal"): _Adapter("numpyro_guide", "numpyro"),
}


def extract(model: Any, /, name: str, **options: Any) -> Posterior:
    """The posterior of a fitted model: what a silo sends.

    Parameters
    ----------
    model : fitted model
        A scikit-learn ``BayesianGaussianMixture`` or ``LatentDirichletAllocation``; a gensim
        ``LdaModel`` or ``LdaMulticore``; an hmmlearn ``VariationalGaussianHMM`` or
        ``VariationalCategoricalHMM``.
    name : str
        The silo's name.
    **options
        What some adapters need besides the model, such as ``vocabulary``, the words of a
        ``LatentDirichletAllocation``.

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
        adapter = _ADAPTERS.get((cls.__module__.partition(".")[0], cls.__name__))
        if adapter is not None:
            extracted: Posterior = adapter.load().extract(model, name, **options)
            return extracted
    raise KLFusionError(
        f"silo {name!r}: cannot read a posterior from {type(model).__name__}; supported: "
        f"{', '.join(sorted(f'{package} {cls}' for package, cls in _ADAPTERS))}, "
        "klfusion.Posterior, or the path of a saved one"
    )


def rebuild(posterior: Posterior) -> Any:
    """A fitted model of the library the posterior came from, ready to predict."""
    info = {} if posterior.structure is None else posterior.structure.info
    adapter = _ADAPTERS.get((str(info.get("package")), str(info.get("class"))))
    if adapter is None:
        raise KLFusionError(
            f"{posterior.name!r} does not say which model it came from, so none can be rebuilt; "
            "its parameters are in posterior.params()"
        )
    return adapter.load().rebuild(posterior)
