"""hmmlearn's `VariationalGaussianHMM` and `VariationalCategoricalHMM`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import hmmlearn
import numpy as np
from hmmlearn.vhmm import VariationalCategoricalHMM, VariationalGaussianHMM
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from klfusion._utils.arrays import FloatArray
from klfusion._utils.provenance import provenance
from klfusion.adapters._gaussian import family_of, gaussians_of, natural_of
from klfusion.errors import KLFusionError
from klfusion.families import Dirichlet, Family
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import Structure, hmm

_SETTINGS = ("algorithm", "implementation")  # how to decode and score


def extract(model: Any, name: str) -> Posterior:
    """The variational posterior of the emissions, and expected counts of starts and steps."""
    gaussian = isinstance(model, VariationalGaussianHMM)
    kind = "VariationalGaussianHMM" if gaussian else "VariationalCategoricalHMM"
    try:
        check_is_fitted(model, ["startprob_", "transmat_"])
    except NotFittedError as error:
        raise KLFusionError(f"silo {name!r}: expected a fitted {kind}; call fit first") from error
    info = {"package": "hmmlearn", "class": kind}
    info |= {key: getattr(model, key) for key in _SETTINGS}
    if gaussian:
        info["covariance_type"] = model.covariance_type
        family, natural, priors = _gaussian_emissions(model, name)
    else:
        family, natural, priors = _categorical_emissions(model)
    arrays = {
        "start": _seen(model.startprob_posterior_, model.startprob_prior_),
        "transition": _seen(model.transmat_posterior_, model.transmat_prior_),
        "start_prior": model.startprob_prior_,
        "transition_prior": model.transmat_prior_,
    }
    return Posterior(
        family=family,
        natural=natural,
        name=name,
        prior=_shared(priors, name),
        counts=_visits(arrays),
        structure=Structure(hmm.KIND, arrays, info),
        provenance=provenance(hmmlearn=hmmlearn.__version__),
    )


def rebuild(posterior: Posterior) -> Any:
    """A fitted variational HMM, as if `fit` had found this posterior."""
    structure, prior = posterior.structure, posterior.prior
    if structure is None or prior is None:
        raise KLFusionError(
            f"{posterior.name!r}: expected an HMM with its transitions and its emissions' prior"
        )
    arrays = structure.arrays
    settings = {key: structure.info[key] for key in _SETTINGS}
    settings |= {
        "n_components": posterior.n_components,
        "startprob_prior": arrays["start_prior"].copy(),
        "transmat_prior": arrays["transition_prior"].copy(),
    }
    if structure.info["class"] == "VariationalGaussianHMM":
        model = _gaussian_hmm(posterior, structure, prior, settings)
    else:
        model = _categorical_hmm(posterior, prior, settings)
    model.startprob_prior_ = arrays["start_prior"].copy()
    model.transmat_prior_ = arrays["transition_prior"].copy()
    model.startprob_posterior_ = arrays["start_prior"] + arrays["start"]
    model.transmat_posterior_ = arrays["transition_prior"] + arrays["transition"]
    model.startprob_ = _normalised(model.startprob_posterior_)
    model.transmat_ = _normalised(model.transmat_posterior_)
    return model


def _gaussian_emissions(model: Any, name: str) -> tuple[Family, FloatArray, FloatArray]:
    """The family, and natural parameters (n, p) of each state's emissions and of their prior.

    hmmlearn calls ``kappa`` beta and the scatter scale.
    """
    family = family_of(model.covariance_type, model.means_posterior_.shape[1], name)
    natural, prior = (
        natural_of(
            family,
            getattr(model, f"means_{which}_"),
            getattr(model, f"beta_{which}_"),
            getattr(model, f"dof_{which}_"),
            getattr(model, f"scale_{which}_"),
        )
        for which in ("posterior", "prior")
    )
    return family, natural, prior


def _categorical_emissions(model: Any) -> tuple[Family, FloatArray, FloatArray]:
    """The family, and the concentrations (n, symbols) of each state and of its prior."""
    family = Dirichlet(model.emissionprob_posterior_.shape[1])
    natural = family.natural(model.emissionprob_posterior_)
    return family, natural, family.natural(model.emissionprob_prior_)


def _gaussian_hmm(
    posterior: Posterior, structure: Structure, prior: FloatArray, settings: dict[str, Any]
) -> Any:
    covariance_type = structure.info["covariance_type"]
    tied_by = _visits(structure.arrays) if covariance_type == "tied" else None
    now, before = (
        gaussians_of(posterior.family, natural, tied_by)
        for natural in (posterior.natural, np.tile(prior, (posterior.n_components, 1)))
    )
    priors = {
        "means_prior": before.mean,
        "beta_prior": before.kappa,
        "dof_prior": before.dof,
        "scale_prior": before.scatter,
    }
    model = VariationalGaussianHMM(covariance_type=covariance_type, **priors, **settings)
    for key, value in priors.items():
        setattr(model, f"{key}_", value)
    model.n_features = now.mean.shape[1]
    model.means_posterior_, model.beta_posterior_ = now.mean, now.kappa
    model.dof_posterior_, model.scale_posterior_ = now.dof, now.scatter
    model.covars_ = now.covariance
    return model


def _categorical_hmm(posterior: Posterior, prior: FloatArray, settings: dict[str, Any]) -> Any:
    n, symbols = posterior.natural.shape
    # hmmlearn's `fit` takes one number for all symbols only.
    flat = float(prior[0]) if np.ptp(prior) == 0 else None
    model = VariationalCategoricalHMM(emissionprob_prior=flat, n_features=symbols, **settings)
    model.emissionprob_prior_ = np.tile(prior, (n, 1))
    model.emissionprob_posterior_ = posterior.natural.copy()
    model.emissionprob_ = _normalised(model.emissionprob_posterior_)
    return model


def _shared(priors: FloatArray, name: str) -> FloatArray:
    """The prior (p,) that all states have: a state that moves to another model takes it along."""
    if not np.allclose(priors, priors[0], rtol=1e-9, atol=0.0):
        raise KLFusionError(
            f"silo {name!r}: expected one prior for the emissions of all states, got different "
            "ones; fit with equal rows in means_prior, beta_prior, dof_prior and scale_prior"
        )
    return np.asarray(priors[0])


def _seen(posterior: Any, prior: Any) -> FloatArray:
    """Expected counts: what the data added to the prior."""
    return np.asarray(np.maximum(posterior - prior, 0.0))


def _visits(arrays: Mapping[str, FloatArray]) -> FloatArray:
    """Expected observations in each state: sequences begin there, or a step leads there."""
    return np.asarray(arrays["start"] + arrays["transition"].sum(axis=0))


def _normalised(concentration: FloatArray) -> FloatArray:
    """Expected probabilities, by row."""
    return np.asarray(concentration / concentration.sum(axis=-1, keepdims=True))
