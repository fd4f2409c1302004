"""Our own `klfusion.learners.StickyHDPHMM`."""

from __future__ import annotations

from typing import Any

from klfusion._utils.provenance import provenance
from klfusion.errors import KLFusionError
from klfusion.families import NormalWishart
from klfusion.learners import StickyHDPHMM
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import Structure, hmm

_SETTINGS = ("n_components", "kappa", "gamma", "eta")
_ARRAYS = {
    "start": "start_counts_",
    "transition": "transition_counts_",
    "start_prior": "start_prior_",
    "transition_prior": "transition_prior_",
}


def extract(model: Any, name: str) -> Posterior:
    """The posterior of the states' Gaussians, and expected counts of starts and steps."""
    if not hasattr(model, "natural_"):
        raise KLFusionError(f"silo {name!r}: expected a fitted StickyHDPHMM; call fit first")
    info = {"package": "klfusion", "class": "StickyHDPHMM", "frame_weight": model.frame_weight_}
    info |= {key: getattr(model, key) for key in _SETTINGS}
    if hasattr(model, "feature_names_in_"):
        info["features"] = [str(feature) for feature in model.feature_names_in_]
    arrays = {key: getattr(model, attribute) for key, attribute in _ARRAYS.items()}
    return Posterior(
        family=model.family_,
        natural=model.natural_,
        name=name,
        prior=model.prior_,
        counts=arrays["start"] + arrays["transition"].sum(axis=0),
        structure=Structure(hmm.KIND, arrays, info),
        provenance=provenance(),
    )


def rebuild(posterior: Posterior) -> Any:
    """A fitted `StickyHDPHMM` that decodes and scores; its weights and bounds stay behind."""
    structure, prior = posterior.structure, posterior.prior
    if structure is None or prior is None or not isinstance(posterior.family, NormalWishart):
        raise KLFusionError(
            f"{posterior.name!r}: expected an HMM of Gaussian states with its transitions and its "
            "emissions' prior"
        )
    info = structure.info
    settings = {key: info[key] for key in _SETTINGS}
    settings["n_components"] = max(settings["n_components"], posterior.n_components)
    model = StickyHDPHMM(**settings)
    model.family_, model.n_features_in_ = posterior.family, posterior.family.dim
    model.natural_, model.prior_ = posterior.natural.copy(), prior.copy()
    for key, attribute in _ARRAYS.items():
        setattr(model, attribute, structure.arrays[key].copy())
    model.frame_weight_ = float(info["frame_weight"])
    return model
