"""Local models that no maintained library offers; each is imported on first use."""

from importlib import import_module
from typing import Any

_MODULES = {
    "BayesianHead": "bayesian_head",
    "Column": "column",
    "ConvolutionalFeatures": "feature_maps",
    "FourierFeatures": "feature_maps",
    "HorseshoeBNN": "bayesian_networks",
    "MeanFieldBNN": "bayesian_networks",
    "MixedMixture": "mixed_mixture",
    "Schema": "schema",
    "StickyHDPHMM": "sticky_hdp_hmm",
}
__all__ = ["BayesianHead", "Column", "ConvolutionalFeatures", "FourierFeatures", "HorseshoeBNN"]
__all__ += ["MeanFieldBNN", "MixedMixture", "Schema", "StickyHDPHMM"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from klfusion.errors import MissingDependencyError  # noqa: PLC0415 (keeps this file light)

    try:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingDependencyError(
            f"{name} needs torch, which is not installed: pip install 'klfusion[torch]'"
        ) from error


def __dir__() -> list[str]:
    return __all__
