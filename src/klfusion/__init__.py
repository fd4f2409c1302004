"""Fuse Bayesian models that were trained apart, in one communication round."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from klfusion._utils.provenance import library_version
from klfusion._utils.providers import provide

if TYPE_CHECKING:
    from klfusion import adapters, baselines, families, learners, methods
    from klfusion._fuse import fuse
    from klfusion.adapters import extract
    from klfusion.errors import KLFusionError
    from klfusion.fusion.result import Fusion
    from klfusion.io.storage import load, save
    from klfusion.objective.solution import Status
    from klfusion.posteriors import vocabularies as vocabulary
    from klfusion.posteriors.posterior import Posterior
    from klfusion.updates.diagnostics import diagnose
    from klfusion.updates.rounds import refine_rounds

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

# Where each public name lives, "module:name" or a module. It is imported when it is first used:
# numpy and scipy take a third of a second to import.
_HOMES = {
    "Fusion": "fusion.result:Fusion",
    "KLFusionError": "errors:KLFusionError",
    "Posterior": "posteriors.posterior:Posterior",
    "Status": "objective.solution:Status",
    "adapters": "adapters",
    "baselines": "baselines",
    "diagnose": "updates.diagnostics:diagnose",
    "extract": "adapters:extract",
    "families": "families",
    "fuse": "_fuse:fuse",
    "learners": "learners",
    "load": "io.storage:load",
    "methods": "methods",
    "refine_rounds": "updates.rounds:refine_rounds",
    "save": "io.storage:save",
    "vocabulary": "posteriors.vocabularies",
}

# What the methods of `Fusion` call.
provide(
    {
        "add": "updates.membership:add",
        "at": "updates.membership:at",
        "fragment": "report.html:fragment",
        "fuse_files": "out_of_core.files:fuse_files",
        "model": "adapters:rebuild",
        "plot": "report.plot:plot",
        "remove": "updates.membership:remove",
        "report": "report:write_report",
    }
)

if not TYPE_CHECKING:  # for a type checker any name would do

    def __getattr__(name: str) -> Any:
        """A public name, imported when it is first used."""
        if name not in _HOMES:
            raise AttributeError(f"module 'klfusion' has no attribute {name!r}")
        module, _, attribute = _HOMES[name].partition(":")
        found = import_module(f"klfusion.{module}")
        return getattr(found, attribute) if attribute else found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
