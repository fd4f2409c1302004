"""scikit-learn's `GaussianMixture`: a posterior from point estimates and a number of observations.

The estimates are moments of the observations of each component, which are sufficient. To compare
silos, they get the default prior of `BayesianGaussianMixture`, from mean and covariance of the
fitted mixture. A model that is rebuilt is without it, as one of the pooled observations would be.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

from klfusion._utils.arrays import BoolArray, FloatArray
from klfusion.adapters import sklearn_mixture
from klfusion.adapters._library import Gaussians, check_fitted
from klfusion.adapters.sklearn_mixture import finished
from klfusion.errors import KLFusionError
from klfusion.families.gaussian import GaussianPosterior
from klfusion.pooling.one_prior import observed_alone
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure.structure import POINT, is_point


def extract(model: Any, name: str, n_observations: float | None = None) -> Posterior:
    """The posterior of a `BayesianGaussianMixture` with the same responsibilities."""
    check_fitted(model)
    if n_observations is None:
        raise KLFusionError(
            f"silo {name!r}: a GaussianMixture does not store its number of observations: pass "
            f"kf.extract(model, name={name!r}, n_observations=len(x)) instead, or fit a "
            "BayesianGaussianMixture"
        )
    sklearn_mixture.check_number(n_observations)
    for what in ("weights_", "means_", "covariances_"):
        values = np.asarray(getattr(model, what))
        _refuse(values, ~np.isfinite(values), f"silo {name!r}: {what}: expected finite numbers")
    weights, own = model.weights_, model.covariances_
    _refuse(weights, weights < 0, f"silo {name!r}: weights_: expected numbers >= 0")
    variances = np.linalg.eigvalsh(own) if model.covariance_type in ("full", "tied") else own
    _refuse(variances, ~(variances > 0), f"silo {name!r}: covariances_: expected variances > 0")
    posterior = sklearn_mixture.posterior_of(_bayesian(model, float(n_observations)), name)
    assert posterior.structure is not None
    info = {**posterior.structure.info, "class": GaussianMixture.__name__, POINT: True}
    return replace(posterior, structure=replace(posterior.structure, info=info))


def _refuse(values: FloatArray, wrong: BoolArray, expected: str) -> None:
    """Raise an error that names the first wrong value, if there is one."""
    if wrong.any():
        first = np.argwhere(wrong)[0]
        raise KLFusionError(f"{expected}, got {values[tuple(first)]:.3g} at {first.tolist()}")


def _bayesian(model: Any, n_observations: float) -> Any:
    """The Bayesian mixture after an M-step with the moments of this model."""
    counts, means, own = n_observations * model.weights_, model.means_, model.covariances_
    n_components, dim = means.shape
    mean, covariance = _moments(model)
    kind = model.covariance_type
    bayesian = BayesianGaussianMixture(
        n_components=n_components, covariance_type=kind, reg_covar=model.reg_covar
    )
    bayesian.weight_concentration_prior_ = 1.0 / n_components
    bayesian.mean_precision_prior_, bayesian.mean_prior_ = 1.0, mean
    bayesian.degrees_of_freedom_prior_ = float(dim)
    sklearn_mixture.set_weights(bayesian, counts)
    kappa, dof, away = 1.0 + counts, dim + counts, means - mean
    match kind:
        case "full":
            prior = covariance
            between = (counts / kappa)[:, None, None] * away[:, :, None] * away[:, None, :]
            scatter = prior + counts[:, None, None] * own + between
        case "tied":
            prior, dof = covariance, dim + counts.sum() / n_components
            between = 1.0 / n_components * np.dot((counts / kappa) * away.T, away)
            scatter = prior + own * counts.sum() / n_components + between
        case "diag":
            prior = np.diag(covariance)
            scatter = prior + counts[:, None] * (own + (1.0 / kappa)[:, None] * away**2)
        case _:
            prior = np.diag(covariance).mean()
            scatter = prior + counts * (own + 1.0 / kappa * (away**2).mean(axis=1))
    bayesian.mean_precision_, bayesian.degrees_of_freedom_ = kappa, dof
    bayesian.means_ = (mean + counts[:, None] * means) / kappa[:, None]
    bayesian.covariance_prior_ = prior
    bayesian.covariances_ = Gaussians(means, kappa, np.asarray(dof), scatter).covariance
    if hasattr(model, "feature_names_in_"):
        bayesian.feature_names_in_ = model.feature_names_in_
    return bayesian


def _moments(model: Any) -> tuple[FloatArray, FloatArray]:
    """Mean (d,) and covariance (d, d) of the mixture, which are those of the data."""
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


def rebuild(posterior: Posterior) -> Any:
    """A fitted `GaussianMixture` with the moments of the observations.

    Where the prior cannot be taken out, such as among silos of which some have their own, it is a
    `BayesianGaussianMixture`.
    """
    structure = posterior.structure
    if structure is None or not is_point(structure):
        return sklearn_mixture.rebuild(posterior)
    kind, counts = structure.info["covariance_type"], structure.arrays["counts"]
    model = GaussianMixture(
        posterior.n_components, covariance_type=kind, reg_covar=structure.info["reg_covar"]
    )
    family = posterior.family
    assert isinstance(family, GaussianPosterior)
    mean, covariance = family.observation_moments(observed_alone(posterior))
    model.weights_, model.means_ = counts / counts.sum(), mean
    model.covariances_ = {"tied": covariance[0], "spherical": covariance[:, 0]}.get(
        kind, covariance
    )
    return finished(model, structure.info.get("features"))
