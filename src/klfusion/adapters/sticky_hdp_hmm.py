"""`klfusion.learners.StickyHDPHMM`."""

from typing import Any

from klfusion.adapters import _library
from klfusion.errors import KLFusionError
from klfusion.families import NormalWishart
from klfusion.learners import StickyHDPHMM
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import kinds

_SETTINGS = ("n_components", "kappa", "gamma", "eta")
_ARRAYS = {
    "start": "start_counts_",
    "transition": "transition_counts_",
    "start_prior": "start_prior_",
    "transition_prior": "transition_prior_",
}


def extract(model: Any, name: str) -> Posterior:
    """The posterior of the states' Gaussians, and expected counts of starts and steps."""
    _library.check_fitted(model, "natural_")
    info = {key: getattr(model, key) for key in _SETTINGS}
    info["frame_weight"] = model.frame_weight_
    if (features := _library.feature_names(model)) is not None:
        info["features"] = features
    arrays = {key: getattr(model, attribute) for key, attribute in _ARRAYS.items()}
    source = _library.origin("klfusion", "StickyHDPHMM", kinds.HMM, arrays, info)
    counts = kinds.visits(arrays)
    return Posterior(model.family_, model.natural_, name, model.prior_, counts, *source)


def rebuild(posterior: Posterior) -> Any:
    """A fitted `StickyHDPHMM` that decodes and scores; it has no weights and bounds."""
    expected = "an HMM of Gaussian states with its transitions and its emissions' prior"
    structure, prior = _library.structure_and_prior(posterior, expected)
    if not isinstance(posterior.family, NormalWishart):
        raise KLFusionError(f"{posterior.name!r}: expected {expected}, got {posterior.family}")
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
