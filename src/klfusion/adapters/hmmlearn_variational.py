"""hmmlearn's `VariationalGaussianHMM` and `VariationalCategoricalHMM`."""

from typing import Any

import numpy as np
from hmmlearn.vhmm import VariationalCategoricalHMM, VariationalGaussianHMM

from klfusion._utils.arrays import FloatArray
from klfusion.adapters._library import (
    Gaussians,
    check_fitted,
    family_of,
    gaussians_of,
    natural_of,
    origin,
    predicting,
    structure_and_prior,
)
from klfusion.errors import KLFusionError
from klfusion.families import Dirichlet, Family
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import kinds

_SETTINGS = ("algorithm", "implementation")  # of decoding and scoring
_CHAIN = {"start": "startprob", "transition": "transmat"}  # arrays, and their names in hmmlearn
_PRIOR_RTOL = 1e-9  # relative difference of priors that rounding explains
_GAUSSIAN = ("means", "beta", "dof", "scale")  # names of the fields of `Gaussians` in hmmlearn


def extract(model: Any, name: str) -> Posterior:
    """The variational posterior of the emissions, and expected counts of starts and steps."""
    check_fitted(model, ["startprob_", "transmat_"])
    family: Family
    info = {key: getattr(model, key) for key in _SETTINGS}
    if isinstance(model, VariationalGaussianHMM):
        kind = "VariationalGaussianHMM"
        info["covariance_type"] = model.covariance_type
        family = family_of(model.covariance_type, model.means_posterior_.shape[1])
        now, before = (
            Gaussians(*(np.asarray(getattr(model, f"{key}_{which}_")) for key in _GAUSSIAN))
            for which in ("posterior", "prior")
        )
        if model.covariance_type == "tied":
            now = _weighted(now, before, 1.0 / len(now.mean))
        natural, priors = natural_of(family, *now), natural_of(family, *before)
    else:
        kind = "VariationalCategoricalHMM"
        family = Dirichlet(model.emissionprob_posterior_.shape[1])
        natural = family.natural(model.emissionprob_posterior_)
        priors = family.natural(model.emissionprob_prior_)
    arrays: dict[str, FloatArray] = {}
    for key, theirs in _CHAIN.items():
        prior = getattr(model, f"{theirs}_prior_")
        counts = np.maximum(getattr(model, f"{theirs}_posterior_") - prior, 0.0)
        arrays |= {key: counts, f"{key}_prior": prior}
    source, prior = origin("hmmlearn", kind, kinds.HMM, arrays, info), _shared(priors)
    return Posterior(family, natural, name, prior, kinds.visits(arrays), *source)


def rebuild(posterior: Posterior) -> Any:
    """A fitted variational HMM with this posterior."""
    expected = "an HMM with its transitions and its emissions' prior"
    structure, prior = structure_and_prior(posterior, expected)
    arrays = structure.arrays
    settings = {key: structure.info[key] for key in _SETTINGS}
    settings["n_components"] = posterior.n_components
    for key, theirs in _CHAIN.items():
        settings[f"{theirs}_prior"] = arrays[f"{key}_prior"].copy()
    if structure.info["class"] == "VariationalGaussianHMM":
        settings["covariance_type"] = structure.info["covariance_type"]
        model = _gaussian_hmm(posterior, prior, kinds.visits(arrays), settings)
    else:
        model = _categorical_hmm(posterior, prior, settings)
    for key, theirs in _CHAIN.items():
        concentration = arrays[f"{key}_prior"] + arrays[key]
        setattr(model, f"{theirs}_prior_", arrays[f"{key}_prior"].copy())
        setattr(model, f"{theirs}_posterior_", concentration)
        setattr(model, f"{theirs}_", _normalised(concentration))
    return model


def _gaussian_hmm(posterior: Posterior, prior: FloatArray, visits: FloatArray, how: Any) -> Any:
    tied = how["covariance_type"] == "tied"
    now, before = (
        gaussians_of(posterior.family, natural, tied=tied)
        for natural in (posterior.natural, np.tile(prior, (posterior.n_components, 1)))
    )
    now = predicting(now, before, visits)
    if tied:
        now = _weighted(now, before, float(len(now.mean)))
    priors = {f"{key}_prior": value for key, value in zip(_GAUSSIAN, before, strict=True)}
    model = VariationalGaussianHMM(**priors, **how)
    for which, values in (("prior", before), ("posterior", now)):
        for key, value in zip(_GAUSSIAN, values, strict=True):
            setattr(model, f"{key}_{which}_", value)
    model.n_features, model.covars_ = now.mean.shape[1], now.covariance
    return model


def _weighted(now: Gaussians, before: Gaussians, factor: float) -> Gaussians:
    """With ``factor`` times the observations of the covariance that all states share.

    In hmmlearn each state has all of them; in a `Posterior` it has an equal share, as components of
    scikit-learn's tied mixtures have.
    """
    return now._replace(
        dof=before.dof + factor * (now.dof - before.dof),
        scatter=before.scatter + factor * (now.scatter - before.scatter),
    )


def _categorical_hmm(posterior: Posterior, prior: FloatArray, settings: dict[str, Any]) -> Any:
    n, symbols = posterior.natural.shape
    # `fit` of hmmlearn accepts only one number for all symbols.
    flat = float(prior[0]) if np.ptp(prior) == 0 else None
    model = VariationalCategoricalHMM(emissionprob_prior=flat, n_features=symbols, **settings)
    model.emissionprob_prior_ = np.tile(prior, (n, 1))
    model.emissionprob_posterior_ = posterior.natural.copy()
    model.emissionprob_ = _normalised(model.emissionprob_posterior_)
    return model


def _shared(priors: FloatArray) -> FloatArray:
    """The prior (p,) of all states; refuse different ones, which a fused state cannot have."""
    if not np.allclose(priors, priors[0], rtol=_PRIOR_RTOL, atol=0.0):
        raise KLFusionError(
            "expected one prior for the emissions of all states, got different ones; fit with "
            "equal rows in means_prior, beta_prior, dof_prior and scale_prior"
        )
    return np.asarray(priors[0])


def _normalised(concentration: FloatArray) -> FloatArray:
    """Expected probabilities of each row."""
    return np.asarray(concentration / concentration.sum(axis=-1, keepdims=True))
