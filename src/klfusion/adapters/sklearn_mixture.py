"""scikit-learn's `BayesianGaussianMixture`, with full or diagonal covariances."""

from __future__ import annotations

from typing import Any

import numpy as np
import sklearn
from sklearn.mixture import BayesianGaussianMixture
from sklearn.utils.validation import check_is_fitted

from klfusion._typing import FloatArray
from klfusion.errors import KLFusionError
from klfusion.families import Family, NormalGamma, NormalWishart
from klfusion.posterior import Posterior
from klfusion.provenance import provenance
from klfusion.structure import Structure

_DIRICHLET_PROCESS = "dirichlet_process"


def extract(model: Any, name: str) -> Posterior:
    """The variational posterior of means and precisions, and the counts behind the weights."""
    try:
        check_is_fitted(model)
    except sklearn.exceptions.NotFittedError as error:
        raise KLFusionError(
            f"silo {name!r}: expected a fitted BayesianGaussianMixture; call fit first"
        ) from error
    dof = np.asarray(model.degrees_of_freedom_)
    kappa = np.asarray(model.mean_precision_)
    dim = model.means_.shape[1]
    family: Family
    if model.covariance_type == "full":
        family = NormalWishart(dim)
        scale_inv = model.covariances_ * dof[:, None, None]
        natural = family.natural(model.means_, kappa, scale_inv, dof)
        prior = family.natural(
            [model.mean_prior_], [model.mean_precision_prior_],
            [model.covariance_prior_], [model.degrees_of_freedom_prior_],
        )[0]  # fmt: skip
    elif model.covariance_type == "diag":
        family = NormalGamma(dim)
        rate = 0.5 * model.covariances_ * dof[:, None]
        natural = family.natural(model.means_, kappa, 0.5 * dof, rate)
        prior = family.natural(
            [model.mean_prior_], [model.mean_precision_prior_],
            [0.5 * model.degrees_of_freedom_prior_], [0.5 * model.covariance_prior_],
        )[0]  # fmt: skip
    else:
        raise KLFusionError(
            f"silo {name!r}: expected covariance_type 'full' or 'diag', "
            f"got {model.covariance_type!r}; refit with covariance_type='full'"
        )
    weight_type = model.weight_concentration_prior_type
    weight_prior = model.weight_concentration_prior_
    if weight_type == _DIRICHLET_PROCESS:
        counts = model.weight_concentration_[0] - 1.0
    else:
        counts = model.weight_concentration_ - weight_prior
    counts = np.maximum(counts, 0.0)
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
            },
        ),
        provenance=provenance(sklearn=sklearn.__version__),
    )


def rebuild(posterior: Posterior) -> Any:
    """A fitted `BayesianGaussianMixture`, as if `fit` had found this posterior."""
    structure, prior = posterior.structure, posterior.prior
    if structure is None or prior is None:
        raise KLFusionError(f"{posterior.name!r}: expected a mixture with its weights and prior")
    covariance_type = structure.info["covariance_type"]
    now, before = (
        _covariances(posterior.family, posterior.natural),
        _covariances(posterior.family, prior[None]),
    )
    model = BayesianGaussianMixture(
        n_components=posterior.n_components,
        covariance_type=covariance_type,
        weight_concentration_prior_type=structure.info["weight_concentration_prior_type"],
        weight_concentration_prior=float(structure.arrays["weight_prior"]),
        reg_covar=structure.info["reg_covar"],
        mean_prior=before["mean"][0],
        mean_precision_prior=float(before["kappa"][0]),
        degrees_of_freedom_prior=float(before["dof"][0]),
        covariance_prior=before["scatter"][0],
    )
    model.mean_prior_, model.mean_precision_prior_ = before["mean"][0], float(before["kappa"][0])
    model.degrees_of_freedom_prior_ = float(before["dof"][0])
    model.covariance_prior_ = before["scatter"][0]
    model.weight_concentration_prior_ = float(structure.arrays["weight_prior"])
    _set_weights(model, structure.arrays["counts"])
    dof = now["dof"]
    model.means_, model.mean_precision_, model.degrees_of_freedom_ = now["mean"], now["kappa"], dof
    model.covariances_ = now["scatter"] / dof.reshape(-1, *[1] * (now["scatter"].ndim - 1))
    if covariance_type == "full":
        lower = np.linalg.cholesky(model.covariances_)
        model.precisions_cholesky_ = np.linalg.inv(lower).swapaxes(1, 2)
        model.precisions_ = model.precisions_cholesky_ @ model.precisions_cholesky_.swapaxes(1, 2)
    else:
        model.precisions_cholesky_ = 1.0 / np.sqrt(model.covariances_)
        model.precisions_ = model.precisions_cholesky_**2
    model.n_features_in_ = model.means_.shape[1]
    model.converged_, model.n_iter_, model.lower_bound_, model.lower_bounds_ = True, 0, np.nan, []
    return model


def _covariances(family: Family, natural: FloatArray) -> dict[str, FloatArray]:
    """Mean, kappa, dof and the scatter matrix (scikit-learn's covariance times dof)."""
    p = family.params(natural)
    if isinstance(family, NormalWishart):
        return {"mean": p["mean"], "kappa": p["kappa"], "dof": p["dof"], "scatter": p["scale_inv"]}
    # scikit-learn shares kappa and dof between dimensions.
    return {
        "mean": p["mean"],
        "kappa": p["kappa"][:, 0],
        "dof": 2.0 * p["shape"][:, 0],
        "scatter": 2.0 * p["rate"],
    }


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
