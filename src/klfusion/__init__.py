"""Fuse Bayesian models that were trained apart, in one communication round."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from klfusion._utils.provenance import library_version
from klfusion._utils.providers import provide

if TYPE_CHECKING:
    from klfusion import adapters, baselines, families, learners
    from klfusion._fuse import fuse
    from klfusion.adapters import extract
    from klfusion.errors import KLFusionError
    from klfusion.fusion.result import Fusion
    from klfusion.fusion.settings import FuseSettings
    from klfusion.io.storage import load, save
    from klfusion.methods import (
        Auto,
        Binary,
        ByName,
        Homogeneous,
        MaxLoss,
        Method,
        Networks,
        Penalised,
        Relaxed,
    )
    from klfusion.objective.solution import Matching, Status
    from klfusion.out_of_core.files import fuse_files
    from klfusion.posteriors import vocabularies as vocabulary
    from klfusion.posteriors.coefficients import coefficients
    from klfusion.posteriors.posterior import Posterior
    from klfusion.updates.diagnostics import diagnose
    from klfusion.updates.prior import estimate_prior_sd
    from klfusion.updates.rounds import refine_rounds

__version__ = library_version()

__all__ = [
    "Auto",
    "Binary",
    "ByName",
    "FuseSettings",
    "Fusion",
    "Homogeneous",
    "KLFusionError",
    "Matching",
    "MaxLoss",
    "Method",
    "Networks",
    "Penalised",
    "Posterior",
    "Relaxed",
    "Status",
    "adapters",
    "baselines",
    "coefficients",
    "diagnose",
    "estimate_prior_sd",
    "extract",
    "families",
    "fuse",
    "fuse_files",
    "learners",
    "load",
    "refine_rounds",
    "save",
    "vocabulary",
]

# Where each public name lives, "module:name" or a module. It is imported when it is first used:
# numpy and scipy take a third of a second to import.
_HOMES = {
    "Auto": "methods:Auto",
    "Binary": "methods:Binary",
    "ByName": "methods:ByName",
    "FuseSettings": "fusion.settings:FuseSettings",
    "Fusion": "fusion.result:Fusion",
    "Homogeneous": "methods:Homogeneous",
    "KLFusionError": "errors:KLFusionError",
    "Matching": "objective.solution:Matching",
    "MaxLoss": "methods:MaxLoss",
    "Method": "methods:Method",
    "Networks": "methods:Networks",
    "Penalised": "methods:Penalised",
    "Posterior": "posteriors.posterior:Posterior",
    "Relaxed": "methods:Relaxed",
    "Status": "objective.solution:Status",
    "adapters": "adapters",
    "baselines": "baselines",
    "coefficients": "posteriors.coefficients:coefficients",
    "diagnose": "updates.diagnostics:diagnose",
    "estimate_prior_sd": "updates.prior:estimate_prior_sd",
    "extract": "adapters:extract",
    "families": "families",
    "fuse": "_fuse:fuse",
    "fuse_files": "out_of_core.files:fuse_files",
    "learners": "learners",
    "load": "io.storage:load",
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
        "heterogeneity": "updates.heterogeneity:heterogeneity",
        "model": "adapters.fused:model",
        "plot": "report.plot:plot",
        "remove": "updates.membership:remove",
        "site": "adapters.fused:site",
        "report": "report:write_report",
        "with_min_support": "updates.membership:with_min_support",
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
