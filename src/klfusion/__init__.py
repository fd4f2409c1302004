"""Fuse Bayesian models that were trained apart, in one communication round."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from klfusion.provenance import library_version

if TYPE_CHECKING:
    from klfusion import adapters, baselines, families, learners, methods, vocabulary
    from klfusion.adapters import extract
    from klfusion.api import fuse
    from klfusion.diagnostics import diagnose
    from klfusion.errors import KLFusionError
    from klfusion.fusion import Fusion, Status
    from klfusion.posterior import Posterior
    from klfusion.rounds import refine_rounds
    from klfusion.storage import load, save

__version__ = library_version()

__all__ = [
    "Fusion",
    "KLFusionError",
    "Posterior",
    "Status",
    "adapters",
    "baselines",
    "diagnose",
    "extract",
    "families",
    "fuse",
    "learners",
    "load",
    "methods",
    "refine_rounds",
    "save",
    "vocabulary",
]

# Where each name lives; it is imported when it is first asked for. Numpy and scipy take a third of
# a second, in which the command line could neither answer nor be interrupted in good order.
_HOME = {
    "Fusion": "fusion",
    "KLFusionError": "errors",
    "Posterior": "posterior",
    "Status": "fusion",
    "diagnose": "diagnostics",
    "extract": "adapters",
    "fuse": "api",
    "load": "storage",
    "refine_rounds": "rounds",
    "save": "storage",
}

if not TYPE_CHECKING:  # for a type checker any name would do

    def __getattr__(name: str) -> Any:
        """A public name, or a module of the package."""
        if name in _HOME:
            return getattr(import_module(f"klfusion.{_HOME[name]}"), name)
        if not name.startswith("_") and find_spec(f"klfusion.{name}") is not None:
            return import_module(f"klfusion.{name}")
        raise AttributeError(f"module 'klfusion' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
