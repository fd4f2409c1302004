"""scikit-learn's `BayesianGaussianMixture`, with any of its covariance types."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.mixture import BayesianGaussianMixture

from klfusion._utils.arrays import FloatArray
from klfusion._utils.checks import is_number
from klfusion._utils.text import brief
from klfusion.adapters import _library
from klfusion.adapters._library import (
    family_of,
    gaussians_of,
    natural_of,
    predicting,
    scatter_of,
)
from klfusion.errors import KLFusionError
from klfusion.families.family import OffsetError
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import kinds

_DIRICHLET_PROCESS = "dirichlet_process"
_PRIOR = ("mean_prior", "mean_precision_prior", "degrees_of_freedom_prior", "covariance_prior")
_MIN_VARIANCE = 1e-13  # relative to the largest: smaller ones are rounding
_INVOLVED = 1e-6  # smallest loading of a column on a direction without variance
_COUNT_RTOL = 1e-6  # scikit-learn adds multiples of epsilon to its counts
_MAX_OBSERVATIONS = 1e15  # float64 counts exactly up to about here


def extract(model: Any, name: str, n_observations: float | None = None) -> Posterior:
    """The variational posterior of means and precisions, and the expected counts.

    ``n_observations`` is optional and must equal the number of observations in the model.
    """
    advice = ", or pass the same covariance_prior everywhere"
    return posterior_of(model, name, n_observations, advice)


def posterior_of(
    model: Any, name: str, n_observations: float | None = None, advice: str = ""
) -> Posterior:
    """See `extract`; what to do about a singular prior ends with ``advice``."""
    _library.check_fitted(model)
    family = family_of(model.covariance_type, model.means_.shape[1])
    weight_type = model.weight_concentration_prior_type
    weight_prior = model.weight_concentration_prior_
    if weight_type == _DIRICHLET_PROCESS:
        counts = model.weight_concentration_[0] - 1.0
    else:
        counts = model.weight_concentration_ - weight_prior
    counts = np.maximum(counts, 0.0)
    total = float(counts.sum())
    if n_observations is not None:
        check_number(n_observations)
        if abs(n_observations - total) > _COUNT_RTOL * total:
            raise KLFusionError(
                f"expected n_observations={total:.0f}, what this BayesianGaussianMixture was "
                f"fitted to, got {n_observations!r}"
            )
    _check_prior(model, name, total, advice)
    dof = model.degrees_of_freedom_
    scatter = scatter_of(model.covariances_, dof)
    features = _library.feature_names(model)
    try:
        natural = natural_of(family, model.means_, model.mean_precision_, dof, scatter)
        prior = natural_of(family, *([getattr(model, f"{key}_")] for key in _PRIOR))[0]
    except OffsetError as error:
        if features is None:
            raise
        column, at = f"of column {features[error.dimension]!r}", (error.component, error.dimension)
        raise OffsetError.at(*at, column) from error
    arrays = {"counts": counts, "weight_prior": np.array(float(weight_prior))}
    info = {
        "covariance_type": model.covariance_type,
        "weight_concentration_prior_type": weight_type,
        "reg_covar": float(model.reg_covar),
        "features": features,
    }
    source = _library.origin("sklearn", "BayesianGaussianMixture", kinds.MIXTURE, arrays, info)
    return Posterior(family, natural, name, prior, counts, *source)


def check_number(n_observations: Any) -> None:
    """Refuse an invalid or too large number of observations."""
    if not (is_number(n_observations) and 0 < n_observations <= _MAX_OBSERVATIONS):
        expected = f"n_observations to be a number > 0 and at most {_MAX_OBSERVATIONS:g}"
        raise KLFusionError(f"expected {expected}, got {brief(n_observations)}")


def _check_prior(model: Any, name: str, n_observations: float, advice: str) -> None:
    """Refuse a singular prior covariance, which scikit-learn's default can be."""
    prior = np.atleast_1d(model.covariance_prior_)
    spectrum, axes = np.linalg.eigh(prior) if prior.ndim == 2 else (prior, np.eye(len(prior)))
    flat = spectrum <= _MIN_VARIANCE * spectrum.max()
    if not flat.any():
        return
    variances = np.diag(prior) if prior.ndim == 2 else prior
    names: Sequence[str | int] = _library.feature_names(model) or range(len(variances))
    constant = np.flatnonzero(variances <= _MIN_VARIANCE * variances.max()).tolist()
    if constant:
        what = [names[k] for k in constant]
        why = f"columns {what} hardly vary beside others, or are in much smaller units"
    elif round(n_observations) <= len(prior):
        why = "there are no more rows than columns"
    else:
        involved = np.flatnonzero(np.abs(axes[:, flat]).max(axis=1) > _INVOLVED).tolist()
        why = f"columns {[names[k] for k in involved]} depend on each other, as copies or sums do"
    raise KLFusionError(
        f"silo {name!r}: the prior covariance, by default computed from the data, is singular "
        f"({why}): drop or rescale such columns at every silo{advice}"
    )


def rebuild(posterior: Posterior) -> Any:
    """A fitted `BayesianGaussianMixture` with this posterior."""
    expected = "a mixture with its weights and prior"
    structure, prior = _library.structure_and_prior(posterior, expected)
    covariance_type, counts = structure.info["covariance_type"], structure.arrays["counts"]
    now = gaussians_of(posterior.family, posterior.natural, tied=covariance_type == "tied")
    before = gaussians_of(posterior.family, prior[None])
    now = predicting(now, before, counts)
    fitted_prior = {key: value[0] for key, value in zip(_PRIOR, before, strict=True)}
    fitted_prior["weight_concentration_prior"] = float(structure.arrays["weight_prior"])
    model = BayesianGaussianMixture(
        n_components=posterior.n_components,
        covariance_type=covariance_type,
        weight_concentration_prior_type=structure.info["weight_concentration_prior_type"],
        reg_covar=structure.info["reg_covar"],
        **fitted_prior,
    )
    for key, value in fitted_prior.items():
        setattr(model, f"{key}_", value)
    set_weights(model, counts)
    model.means_, model.mean_precision_, model.degrees_of_freedom_ = now.mean, now.kappa, now.dof
    model.covariances_ = now.covariance
    return finished(model, structure.info.get("features"))


def finished(model: Any, features: Sequence[str] | None) -> Any:
    """A mixture with means and covariances, and with what follows from them."""
    if model.covariance_type in ("full", "tied"):
        lower = np.linalg.cholesky(model.covariances_)
        model.precisions_cholesky_ = np.linalg.inv(lower).swapaxes(-1, -2)
        model.precisions_ = model.precisions_cholesky_ @ model.precisions_cholesky_.swapaxes(-1, -2)
    else:
        model.precisions_cholesky_ = 1.0 / np.sqrt(model.covariances_)
        model.precisions_ = model.precisions_cholesky_**2
    model.n_features_in_ = model.means_.shape[1]
    if features is not None:
        model.feature_names_in_ = np.array(features, dtype=object)
    model.converged_, model.n_iter_, model.lower_bound_, model.lower_bounds_ = True, 0, np.nan, []
    return model


def set_weights(model: Any, counts: FloatArray) -> None:
    """Set the posterior of the weights from the counts, as in scikit-learn's M-step."""
    prior = model.weight_concentration_prior_
    if model.weight_concentration_prior_type == _DIRICHLET_PROCESS:
        after = np.concatenate([np.cumsum(counts[::-1])[-2::-1], [0.0]])
        a, b = model.weight_concentration_ = (1.0 + counts, prior + after)
        weights = a / (a + b) * np.concatenate([[1.0], np.cumprod(b / (a + b))[:-1]])
        model.weights_ = weights / weights.sum()
    else:
        model.weight_concentration_ = prior + counts
        model.weights_ = model.weight_concentration_ / model.weight_concentration_.sum()
