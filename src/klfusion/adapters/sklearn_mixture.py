"""scikit-learn's `BayesianGaussianMixture`, with any of its covariance types."""

from __future__ import annotations

from typing import Any

import numpy as np
import sklearn
from sklearn.mixture import BayesianGaussianMixture
from sklearn.utils.validation import check_is_fitted

from klfusion._utils.arrays import FloatArray
from klfusion._utils.checks import is_number
from klfusion._utils.provenance import provenance
from klfusion.adapters._gaussian import family_of, gaussians_of, natural_of, scatter_of
from klfusion.errors import KLFusionError
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import Structure

_DIRICHLET_PROCESS = "dirichlet_process"
_LEAST_SPREAD = 1e-13  # of the largest: below it, rounding is all there is
_INVOLVED = 1e-6  # share of a direction without spread that a column has in it
_SAME = 1e-6  # relative: scikit-learn adds some epsilons to its counts
_MOST_OBSERVATIONS = 1e15  # doubles hold single ones up to here


def extract(model: Any, name: str, n_observations: float | None = None) -> Posterior:
    """The variational posterior of means and precisions, and the counts behind the weights.

    The model knows its number of observations; one that is given must be the same.
    """
    try:
        check_is_fitted(model)
    except sklearn.exceptions.NotFittedError as error:
        raise KLFusionError(
            f"silo {name!r}: expected a fitted BayesianGaussianMixture; call fit first"
        ) from error
    family = family_of(model.covariance_type, model.means_.shape[1], name)
    weight_type = model.weight_concentration_prior_type
    weight_prior = model.weight_concentration_prior_
    if weight_type == _DIRICHLET_PROCESS:
        counts = model.weight_concentration_[0] - 1.0
    else:
        counts = model.weight_concentration_ - weight_prior
    counts = np.maximum(counts, 0.0)
    total = float(counts.sum())
    if n_observations is not None:
        check_number(n_observations, name)
        if abs(n_observations - total) > _SAME * total:
            raise KLFusionError(
                f"silo {name!r}: expected n_observations={total:.0f}, what this "
                f"BayesianGaussianMixture was fitted to, got {n_observations!r}"
            )
    _check_prior(model, name, total)
    dof = model.degrees_of_freedom_
    natural = natural_of(
        family, model.means_, model.mean_precision_, dof, scatter_of(model.covariances_, dof)
    )
    prior = natural_of(
        family,
        [model.mean_prior_],
        [model.mean_precision_prior_],
        [model.degrees_of_freedom_prior_],
        [model.covariance_prior_],
    )[0]
    return Posterior(
        family=family,
        natural=natural,
        name=name,
        prior=prior,
        counts=counts,
        structure=Structure(
            kind="mixture",
            arrays={"counts": counts, "weight_prior": np.array(float(weight_prior))},
            info={
                "package": "sklearn",
                "class": "BayesianGaussianMixture",
                "covariance_type": model.covariance_type,
                "weight_concentration_prior_type": weight_type,
                "reg_covar": float(model.reg_covar),
                "features": features_of(model),
            },
        ),
        provenance=provenance(sklearn=sklearn.__version__),
    )


def check_number(n_observations: Any, name: str) -> None:
    """Refuse what is no number of observations, or more than can be counted."""
    if not (is_number(n_observations) and 0 < n_observations <= _MOST_OBSERVATIONS):
        raise KLFusionError(
            f"silo {name!r}: expected n_observations to be a number > 0 and at most "
            f"{_MOST_OBSERVATIONS:g}, got {n_observations!r}"
        )


def _check_prior(model: Any, name: str, n_observations: float) -> None:
    """Refuse a prior that has no spread in some direction, as scikit-learn's default may not."""
    prior = np.atleast_1d(model.covariance_prior_)
    spread, axes = np.linalg.eigh(prior) if prior.ndim == 2 else (prior, np.eye(len(prior)))
    flat = spread <= _LEAST_SPREAD * spread.max()
    if not flat.any():
        return
    variances = np.diag(prior) if prior.ndim == 2 else prior
    constant = np.flatnonzero(variances <= _LEAST_SPREAD * variances.max()).tolist()
    if constant:
        why = f"columns {constant} hardly vary"
    elif round(n_observations) <= len(prior):
        why = "there are no more rows than columns"
    else:
        involved = np.flatnonzero(np.abs(axes[:, flat]).max(axis=1) > _INVOLVED).tolist()
        why = f"columns {involved} depend on each other, as copies or sums do"
    raise KLFusionError(
        f"silo {name!r}: the prior covariance, by default computed from the data, is singular "
        f"({why}): drop such columns at every silo, or pass the same covariance_prior everywhere"
    )


def features_of(model: Any) -> list[str] | None:
    """Names of the columns, where the model was fitted on a data frame."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def rebuild(posterior: Posterior) -> Any:
    """A fitted `BayesianGaussianMixture`, as if `fit` had found this posterior."""
    structure, prior = posterior.structure, posterior.prior
    if structure is None or prior is None:
        raise KLFusionError(f"{posterior.name!r}: expected a mixture with its weights and prior")
    covariance_type, counts = structure.info["covariance_type"], structure.arrays["counts"]
    tied = covariance_type == "tied"
    now = gaussians_of(posterior.family, posterior.natural, counts if tied else None)
    before = gaussians_of(posterior.family, prior[None], None)
    fitted_prior = {
        "mean_prior": before.mean[0],
        "mean_precision_prior": float(before.kappa[0]),
        "degrees_of_freedom_prior": float(before.dof[0]),
        "covariance_prior": before.scatter[0],
        "weight_concentration_prior": float(structure.arrays["weight_prior"]),
    }
    model = BayesianGaussianMixture(
        n_components=posterior.n_components,
        covariance_type=covariance_type,
        weight_concentration_prior_type=structure.info["weight_concentration_prior_type"],
        reg_covar=structure.info["reg_covar"],
        **fitted_prior,
    )
    for key, value in fitted_prior.items():
        setattr(model, f"{key}_", value)
    _set_weights(model, counts)
    model.means_, model.mean_precision_, model.degrees_of_freedom_ = now.mean, now.kappa, now.dof
    model.covariances_ = now.covariance
    if covariance_type in ("full", "tied"):
        lower = np.linalg.cholesky(model.covariances_)
        model.precisions_cholesky_ = np.linalg.inv(lower).swapaxes(-1, -2)
        model.precisions_ = model.precisions_cholesky_ @ model.precisions_cholesky_.swapaxes(-1, -2)
    else:
        model.precisions_cholesky_ = 1.0 / np.sqrt(model.covariances_)
        model.precisions_ = model.precisions_cholesky_**2
    model.n_features_in_ = model.means_.shape[1]
    if structure.info.get("features") is not None:
        model.feature_names_in_ = np.array(structure.info["features"], dtype=object)
    model.converged_, model.n_iter_, model.lower_bound_, model.lower_bounds_ = True, 0, np.nan, []
    return model


def _set_weights(model: Any, counts: FloatArray) -> None:
    """Posterior of the weights from the counts, as scikit-learn's M-step has it."""
    prior = model.weight_concentration_prior_
    if model.weight_concentration_prior_type == _DIRICHLET_PROCESS:
        after = np.concatenate([np.cumsum(counts[::-1])[-2::-1], [0.0]])
        a, b = 1.0 + counts, prior + after
        model.weight_concentration_ = (a, b)
        stick = a / (a + b)
        weights = stick * np.concatenate([[1.0], np.cumprod(b / (a + b))[:-1]])
        model.weights_ = weights / weights.sum()
    else:
        model.weight_concentration_ = prior + counts
        model.weights_ = model.weight_concentration_ / model.weight_concentration_.sum()
