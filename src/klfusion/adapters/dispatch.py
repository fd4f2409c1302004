"""Choose the adapter of a model by class names, without importing any library."""

from importlib import import_module
from inspect import Parameter, signature
from typing import Any

from klfusion._utils.checks import naming_silo
from klfusion._utils.text import brief
from klfusion.errors import KLFusionError, MissingDependencyError
from klfusion.posteriors.posterior import Posterior

# (top-level package, class) of a model or of one of its base classes, to its adapter: the name of a
# module of this package, or a registered object; and the extra that installs its library, if any.
_ADAPTERS: dict[tuple[str, str], tuple[Any, str | None]] = {
    ("sklearn", "BayesianGaussianMixture"): ("sklearn_mixture", None),
    ("sklearn", "GaussianMixture"): ("sklearn_point_mixture", None),
    ("sklearn", "LatentDirichletAllocation"): ("sklearn_lda", None),
    ("sklearn", "BayesianRidge"): ("sklearn_linear", None),
    ("sklearn", "ARDRegression"): ("sklearn_linear", None),
    ("sklearn", "Ridge"): ("sklearn_linear", None),
    ("sklearn", "LinearRegression"): ("sklearn_linear", None),
    ("sklearn", "LogisticRegression"): ("sklearn_linear", None),
    ("sklearn", "PoissonRegressor"): ("sklearn_linear", None),
    ("sklearn", "GaussianNB"): ("sklearn_classes", None),
    ("sklearn", "CategoricalNB"): ("sklearn_classes", None),
    ("sklearn", "MultinomialNB"): ("sklearn_classes", None),
    ("sklearn", "LinearDiscriminantAnalysis"): ("sklearn_classes", None),
    ("sklearn", "QuadraticDiscriminantAnalysis"): ("sklearn_classes", None),
    ("sklearn", "Pipeline"): ("sklearn_pipeline", None),
    ("statsmodels", "RegressionResultsWrapper"): ("statsmodels_results", "statsmodels"),
    ("statsmodels", "GLMResultsWrapper"): ("statsmodels_results", "statsmodels"),
    ("statsmodels", "BinaryResultsWrapper"): ("statsmodels_results", "statsmodels"),
    ("statsmodels", "PHRegResults"): ("statsmodels_results", "statsmodels"),
    ("statsmodels", "PHRegResultsWrapper"): ("statsmodels_results", "statsmodels"),
    ("lifelines", "CoxPHFitter"): ("lifelines_fitters", "lifelines"),
    ("lifelines", "WeibullAFTFitter"): ("lifelines_fitters", "lifelines"),
    ("hmmlearn", "VariationalGaussianHMM"): ("hmmlearn_variational", "hmmlearn"),
    ("hmmlearn", "VariationalCategoricalHMM"): ("hmmlearn_variational", "hmmlearn"),
    ("klfusion", "StickyHDPHMM"): ("sticky_hdp_hmm", None),
    ("klfusion", "MixedMixture"): ("mixed_mixture", None),
    ("klfusion", "BayesianHead"): ("bayesian_head", None),
    ("gensim", "LdaModel"): ("gensim_lda", "gensim"),
    ("klfusion", "VariationalNetwork"): ("learned_network", "torch"),
    ("klfusion", "BayesianNetwork"): ("learned_network", "torch"),
    ("builtins", "dict"): ("torch_mapping", None),
    ("builtins", "str"): ("draw_files", None),
    ("builtins", "list"): ("draw_files", None),
    ("pathlib", "PurePath"): ("draw_files", None),
    ("arviz", "InferenceData"): ("inference_data", "draws"),
    ("xarray", "DataTree"): ("inference_data", "draws"),
    ("klfusion", "Draws"): ("inference_data", None),
    ("pymc", "MultiTrace"): ("mcmc", "pymc"),
    ("numpyro", "MCMC"): ("mcmc", "numpyro"),
    ("pyro", "MCMC"): ("mcmc", "pyro"),
    ("torch", "Module"): ("bayesian_torch", "torch"),
    ("ivon", "IVON"): ("ivon", "ivon"),
    ("laplace", "DiagLaplace"): ("laplace", "torch"),
    ("pyro", "AutoNormal"): ("pyro_guide", "pyro"),
    ("pyro", "AutoDiagonalNormal"): ("pyro_guide", "pyro"),
    ("numpyro", "AutoNormal"): ("numpyro_guide", "numpyro"),
    ("numpyro", "AutoDiagonalNormal"): ("numpyro_guide", "numpyro"),
}

# Replacements for models that are point estimates.
_INSTEAD = {
    "GaussianHMM": "hmmlearn's VariationalGaussianHMM or klfusion.learners.StickyHDPHMM",
    "CategoricalHMM": "hmmlearn's VariationalCategoricalHMM",
}
# What to pass in the place of what newcomers pass.
_HINTS = {
    "DataFrame": ": fit a model to it first",
    "ndarray": ": fit a model to it first",
    "RegularizedResultsWrapper": ": fit without a penalty, and give prior_sd for a Gaussian prior",
}


def register(package: str, cls: str, adapter: Any) -> None:
    """Add an adapter for `extract`, `fuse` and `Fusion.model`.

    Parameters
    ----------
    package : str
        Package or module of the model's class, such as its ``__module__``.
    cls : str
        Name of the class; its subclasses are supported too.
    adapter : module or object
        With ``extract(model, name, **options) -> Posterior`` and ``rebuild(posterior)``. For
        ``rebuild``, the posterior's ``structure.info`` must contain ``package`` and ``class``.

    Examples
    --------
    >>> import klfusion as kf
    >>> class Rates:
    ...     shape, rate = [3.0, 40.0], [1.0, 1.0]
    >>> class RatesAdapter:
    ...     @staticmethod
    ...     def extract(model, name):
    ...         gamma = kf.families.Gamma()
    ...         return kf.Posterior(gamma, gamma.natural(model.shape, model.rate), name=name)
    >>> kf.adapters.register(Rates.__module__, "Rates", RatesAdapter)
    >>> kf.extract(Rates(), name="a")
    Posterior('a', 2 components, Gamma(dim=1))
    """
    if not callable(getattr(adapter, "extract", None)):
        raise KLFusionError(f"expected an adapter with a function extract, got {adapter!r}")
    _ADAPTERS[package.partition(".")[0], cls] = adapter, None


def extract(model: Any, /, name: str, **options: Any) -> Posterior:
    """The posterior of a fitted model, which a silo sends.

    Parameters
    ----------
    model : fitted model
        - scikit-learn: ``BayesianGaussianMixture``, ``GaussianMixture``,
          ``LatentDirichletAllocation``, ``BayesianRidge``, ``ARDRegression``, ``Ridge``,
          ``LinearRegression``, ``LogisticRegression``, ``PoissonRegressor``, ``GaussianNB``,
          ``CategoricalNB``, ``MultinomialNB``, ``LinearDiscriminantAnalysis``,
          ``QuadraticDiscriminantAnalysis``; a ``Pipeline`` of `klfusion.agreed_scaling` and one of
          these
        - statsmodels: results of ``OLS``, ``GLM``, ``Logit`` and ``PHReg``
        - lifelines: ``CoxPHFitter``, ``WeibullAFTFitter``
        - gensim: ``LdaModel``, ``LdaMulticore``
        - hmmlearn: ``VariationalGaussianHMM``, ``VariationalCategoricalHMM``
        - klfusion: ``learners.BayesianHead``, ``learners.MixedMixture``,
          ``learners.StickyHDPHMM``, ``learners.MeanFieldBNN``, ``learners.HorseshoeBNN``
        - networks: a mapping of means and variances, a module of bayesian-torch, an ``ivon.IVON``
          optimiser, a ``DiagLaplace``
        - Pyro and NumPyro: ``AutoNormal`` and ``AutoDiagonalNormal`` guides, ``MCMC``
        - draws: ``InferenceData`` of ArviZ, ``MultiTrace`` of PyMC, paths of netCDF, zarr and
          Stan's csv files; options as for `klfusion.from_draws`
    name : str
        The silo's name.
    **options
        Options of the adapter: ``vocabulary`` of a ``LatentDirichletAllocation``,
        ``n_observations`` of a ``GaussianMixture``, ``class_counts`` of a network. Regressions take
        ``data``, ``prior_sd``, ``local``, ``units`` and ``at``; see `klfusion.coefficients`. A
        ``LogisticRegression`` takes ``classes``, a ``CoxPHFitter`` ``times``. IVON needs
        ``model``, guides need ``plate``, guides of NumPyro ``params`` as well.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> from sklearn.mixture import BayesianGaussianMixture
    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> kf.extract(BayesianGaussianMixture(n_components=1).fit(x), name="hospital-a")
    Posterior('hospital-a', 1 component, NormalWishart(dim=2))
    """
    for cls in type(model).__mro__:
        adapter = _adapter(cls.__module__.partition(".")[0], cls.__name__)
        if adapter is not None:
            return _extracted(adapter, model, name, options)
    where, kind = f"silo {name!r}", type(model).__name__
    if kind in _INSTEAD:
        estimate = f"the point estimate of a {kind}: fit {_INSTEAD[kind]}"
        raise KLFusionError(f"{where}: expected a posterior, got {estimate}")
    regression = type(model).__module__.partition(".")[0] in ("statsmodels", "lifelines")
    hint = ": kf.coefficients takes estimates and their covariance" * regression
    supported = ", ".join(sorted({_readable(*key) for key in _ADAPTERS}))
    raise KLFusionError(
        f"{where}: cannot read a posterior from {kind}{_HINTS.get(kind, hint)}; "
        f"supported: {supported}, klfusion.Posterior, or the path of a saved one"
    )


def _extracted(adapter: Any, model: Any, name: str, options: dict[str, Any]) -> Posterior:
    """The adapter's posterior; every error names the silo."""
    accepted = signature(adapter.extract).parameters
    unknown = sorted(set(options) - set(accepted))
    if unknown and not any(p.kind is Parameter.VAR_KEYWORD for p in accepted.values()):
        raise KLFusionError(
            f"silo {name!r}: {type(model).__name__} takes no {unknown[0]}; its options are: "
            f"{', '.join([*accepted][2:]) or 'none'}"
        )
    try:
        with naming_silo(name):
            posterior: Posterior = adapter.extract(model, name, **options)
        return posterior
    except KLFusionError:
        raise
    except (IndexError, ValueError) as error:  # such as arrays of different length
        raise KLFusionError(
            f"silo {name!r}: expected a fitted {type(model).__name__} whose attributes agree, "
            f"got {type(error).__name__}: {error}"
        ) from error


def rebuild(posterior: Posterior) -> Any:
    """A fitted model of the library that the posterior came from.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> from sklearn.mixture import BayesianGaussianMixture
    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> posterior = kf.extract(BayesianGaussianMixture(n_components=1).fit(x), name="a")
    >>> kf.adapters.rebuild(posterior).predict(x[:3])
    array([0, 0, 0])
    """
    if not isinstance(posterior, Posterior):
        raise KLFusionError(f"expected a Posterior, got {brief(posterior)}")
    info = {} if posterior.structure is None else posterior.structure.info
    adapter = _adapter(str(info.get("package")), str(info.get("class")))
    if adapter is None:
        raise KLFusionError(
            f"{posterior.name!r}: expected the package and class of a model in structure.info, got "
            "none, so no model can be rebuilt; its parameters are in posterior.params()"
        )
    try:
        return adapter.rebuild(posterior)
    except KLFusionError:
        raise
    except Exception as error:  # settings of a file that the library does not take
        raise KLFusionError(
            f"{posterior.name!r}: expected the settings of a {info['package']} {info['class']} in "
            f"structure.info, got {type(error).__name__}: {error}"
        ) from error


def _adapter(package: str, cls: str) -> Any:
    """The adapter of a class, imported with its library; None if there is none."""
    module, extra = _ADAPTERS.get((package, cls), (None, None))
    if not isinstance(module, str):
        return module
    try:
        return import_module(f"klfusion.adapters.{module}")
    except ImportError as error:
        install = f"pip install 'klfusion[{extra}]'"
        raise MissingDependencyError(
            f"this model needs {error.name}, which is not installed: {install}"
        ) from error


def _readable(package: str, cls: str) -> str:
    """A supported model for the error message."""
    return "a mapping of means and variances" if package == "builtins" else f"{package} {cls}"
