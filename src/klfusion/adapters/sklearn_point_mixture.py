"""scikit-learn's `GaussianMixture`: point estimates, made a posterior by their number of data.

Its means, covariances and weights are the moments of the observations behind each component, and
those are all that a conjugate posterior needs. The prior is the one `BayesianGaussianMixture` takes
by default; it asks for mean and covariance of the data, which are those of the fitted mixture.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import sklearn
from sklearn.mixture import BayesianGaussianMixture
from sklearn.utils.validation import check_is_fitted

from klfusion._utils.arrays import BoolArray, FloatArray
from klfusion.adapters import sklearn_mixture
from klfusion.errors import KLFusionError
from klfusion.posteriors.posterior import Posterior


def extract(model: Any, name: str, n_observations: float | None = None) -> Posterior:
    """What `BayesianGaussianMixture` would believe, given how the observations were shared out."""
    try:
        check_is_fitted(model)
    except sklearn.exceptions.NotFittedError as error:
        raise KLFusionError(
            f"silo {name!r}: expected a fitted GaussianMixture; call fit first"
        ) from error
    if n_observations is None:
        raise KLFusionError(
            f"silo {name!r}: a GaussianMixture does not say how many observations it was fitted "
            f"to: pass kf.extract(model, name={name!r}, n_observations=len(x)) in its place, or "
            "fit a BayesianGaussianMixture"
        )
    sklearn_mixture.check_number(n_observations, name)
    _check(model, name)
    return sklearn_mixture.extract(_bayesian(model, float(n_observations)), name)


def _check(model: Any, name: str) -> None:
    """Refuse estimates that are none."""
    for what in ("weights_", "means_", "covariances_"):
        values = np.asarray(getattr(model, what))
        _refuse(values, ~np.isfinite(values), f"silo {name!r}: {what}: expected finite numbers")
    weights, own = model.weights_, model.covariances_
    _refuse(weights, weights < 0, f"silo {name!r}: weights_: expected numbers >= 0")
    variances = np.linalg.eigvalsh(own) if model.covariance_type in ("full", "tied") else own
    _refuse(variances, ~(variances > 0), f"silo {name!r}: covariances_: expected variances > 0")


def _refuse(values: FloatArray, wrong: BoolArray, expected: str) -> None:
    """Refuse values some of which are wrong, and name the first."""
    if wrong.any():
        first = np.argwhere(wrong)[0]
        raise KLFusionError(f"{expected}, got {values[tuple(first)]:.3g} at {first.tolist()}")


def _bayesian(model: Any, n_observations: float) -> Any:
    """The Bayesian mixture whose M-step was given the moments of this one."""
    counts, means = n_observations * model.weights_, model.means_
    n_components, dim = means.shape
    mean, covariance = _moments(model)
    bayesian = BayesianGaussianMixture(
        n_components=n_components, covariance_type=model.covariance_type, reg_covar=model.reg_covar
    )
    bayesian.weight_concentration_prior_ = 1.0 / n_components
    bayesian.mean_precision_prior_, bayesian.mean_prior_ = 1.0, mean
    bayesian.degrees_of_freedom_prior_ = float(dim)
    bayesian.covariance_prior_ = {
        "full": covariance,
        "tied": covariance,
        "diag": np.diag(covariance),
        "spherical": np.diag(covariance).mean(),
    }[model.covariance_type]
    bayesian._estimate_weights(counts)
    bayesian._estimate_means(counts, means)
    bayesian._estimate_precisions(counts, means, model.covariances_)
    if hasattr(model, "feature_names_in_"):
        bayesian.feature_names_in_ = model.feature_names_in_
    return bayesian


def _moments(model: Any) -> tuple[FloatArray, FloatArray]:
    """Mean (d,) and covariance (d, d) of the mixture, and so of the data it was fitted to."""
    weights, own = model.weights_, model.covariances_
    within: FloatArray
    match model.covariance_type:
        case "full":
            within = np.tensordot(weights, own, axes=1)
        case "tied":
            within = own
        case "diag":
            within = np.diag(weights @ own)
        case _:
            within = (weights @ own) * np.eye(model.means_.shape[1])
    mean = weights @ model.means_
    away = model.means_ - mean
    return mean, within + (away.T * weights) @ away


rebuild = sklearn_mixture.rebuild
