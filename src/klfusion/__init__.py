"""Fuse Bayesian models that were trained apart, in one communication round."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from klfusion._utils.package import library_version, provide

if TYPE_CHECKING:
    from klfusion import adapters, baselines, families, federation, learners
    from klfusion._fuse import fuse
    from klfusion.adapters import extract
    from klfusion.adapters.sklearn_pipeline import agreed_scaling
    from klfusion.draws.inference_data import relabel
    from klfusion.draws.posterior import from_draws
    from klfusion.errors import KLFusionError
    from klfusion.fusion.result import Fusion
    from klfusion.fusion.settings import FuseSettings
    from klfusion.io.storage import load, save
    from klfusion.learners.schema import Schema
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
    from klfusion.privacy.audit import audit
    from klfusion.privacy.privatize import privatize
    from klfusion.updates.diagnostics import diagnose
    from klfusion.updates.heads import head_statistics, refit_head
    from klfusion.updates.prior import estimate_prior_sd
    from klfusion.updates.rounds import refine_rounds

__version__ = library_version()

__all__ = ["Auto", "Binary", "ByName", "Homogeneous", "MaxLoss", "Method", "Networks"]
__all__ += ["Penalised", "Relaxed", "coefficients", "estimate_prior_sd"]
__all__ += ["FuseSettings", "Fusion", "KLFusionError", "Matching", "Posterior", "Schema"]
__all__ += ["Status", "agreed_scaling"]
__all__ += ["audit", "diagnose", "extract", "from_draws", "fuse", "fuse_files", "head_statistics"]
__all__ += ["load", "privatize", "refine_rounds", "refit_head", "relabel", "save"]
__all__ += ["adapters", "baselines", "families", "federation", "learners", "vocabulary"]

# Where public names live that are no methods, "module:name" or a module. A name is imported when it
# is first used: numpy and scipy take a third of a second to import.
_HOMES = {
    "FuseSettings": "fusion.settings:FuseSettings",
    "Fusion": "fusion.result:Fusion",
    "KLFusionError": "errors:KLFusionError",
    "Matching": "objective.solution:Matching",
    "Posterior": "posteriors.posterior:Posterior",
    "Schema": "learners.schema:Schema",
    "Status": "objective.solution:Status",
    "adapters": "adapters",
    "agreed_scaling": "adapters.sklearn_pipeline:agreed_scaling",
    "audit": "privacy.audit:audit",
    "baselines": "baselines",
    "coefficients": "posteriors.coefficients:coefficients",
    "diagnose": "updates.diagnostics:diagnose",
    "estimate_prior_sd": "updates.prior:estimate_prior_sd",
    "extract": "adapters:extract",
    "families": "families",
    "federation": "federation",
    "from_draws": "draws.posterior:from_draws",
    "fuse": "_fuse:fuse",
    "fuse_files": "out_of_core.files:fuse_files",
    "head_statistics": "updates.heads:head_statistics",
    "learners": "learners",
    "load": "io.storage:load",
    "privatize": "privacy.privatize:privatize",
    "refine_rounds": "updates.rounds:refine_rounds",
    "refit_head": "updates.heads:refit_head",
    "relabel": "draws.inference_data:relabel",
    "save": "io.storage:save",
    "vocabulary": "posteriors.vocabularies",
}

# What the methods of `Fusion` call.
provide(
    {
        "add": "updates.membership:add",
        "as_prior": "draws.next_prior:as_prior",
        "at": "updates.membership:at",
        "fragment": "report.html:fragment",
        "heterogeneity": "updates.heterogeneity:heterogeneity",
        "model": "adapters.fused:model",
        "rebuild": "adapters.dispatch:rebuild",
        "to_frame": "fusion.frame:to_frame",
        "to_inference_data": "draws.fused:to_inference_data",
        "plot": "report.plot:plot",
        "probabilities_same": "updates.probabilities:probabilities_same",
        "probability_same": "updates.probabilities:probability_same",
        "proposals": "draws.importance:proposals",
        "remove": "updates.membership:remove",
        "report": "report:write_report",
        "reweighted": "draws.importance:reweighted",
        "site": "adapters.fused:site",
        "why": "fusion.explanation:why",
        "with_min_support": "updates.membership:with_min_support",
    }
)

if not TYPE_CHECKING:  # for a type checker any name would do

    def __getattr__(name: str) -> Any:
        """A public name, imported when it is first used."""
        if name not in __all__:
            raise AttributeError(f"module 'klfusion' has no attribute {name!r}")
        module, _, attribute = _HOMES.get(name, f"methods:{name}").partition(":")
        found = import_module(f"klfusion.{module}")
        return getattr(found, attribute) if attribute else found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
