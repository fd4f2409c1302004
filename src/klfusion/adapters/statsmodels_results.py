"""statsmodels' fitted OLS, GLM, Logit and PHReg: coefficients with their covariance.

The likelihood of these fits has no prior; ``prior_sd`` adds one. What comes back is in
`klfusion.adapters._fused_statsmodels`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.api as sm
from statsmodels.base.model import LikelihoodModelResults
from statsmodels.discrete.discrete_model import (
    BinaryResultsWrapper,
    L1BinaryResultsWrapper,
    Logit,
)
from statsmodels.duration.hazard_regression import PHReg, PHRegResults
from statsmodels.genmod import families
from statsmodels.genmod.generalized_estimating_equations import GEE
from statsmodels.genmod.generalized_linear_model import GLM, GLMResultsWrapper
from statsmodels.regression.linear_model import OLS, RegressionResultsWrapper

from klfusion._utils.arrays import FloatArray
from klfusion._utils.checks import check_number
from klfusion.adapters._fused_statsmodels import (
    FusedGLMResults,
    FusedLogitResults,
    FusedOLSResults,
    FusedPHRegResults,
    without_rows,
)
from klfusion.adapters._likelihoods import Derivatives
from klfusion.adapters._regressions import Options, Prior, outcome_of, references, scales
from klfusion.errors import KLFusionError
from klfusion.fusion.result import Fusion
from klfusion.posteriors.noise import FREEDOM
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure.regression import Information

_ENOUGH = 8  # rows: `omni_normtest` of statsmodels, in a summary, warns of fewer
_CONSTANTS = {"const", "Intercept"}  # of `add_constant`, and of formulas
_UNNAMED = "y"  # the outcome of a fit to arrays
# What statsmodels calls a covariance that is the inverse of an information matrix.
_OF_LIKELIHOOD = ("nonrobust", "fixed scale")
_SHAPES = ("alpha", "var_power")  # what a family of statsmodels may have beside its link


def _check_converged(model: Any) -> None:
    """Refuse a fit that statsmodels itself says has not converged."""
    found = getattr(model, "mle_retvals", None) or {}
    if not found.get("converged", getattr(model, "converged", True)):
        raise KLFusionError(
            "expected a fit that has converged, got one that statsmodels says has not: give fit "
            "more iterations by maxiter=, or see whether a column separates the outcome"
        )


def extract(
    model: Any,
    name: str,
    *,
    noise_sd: float | None = None,
    prior_sd: Prior = None,
    local: Sequence[str] = (),
    units: Mapping[str, str] | None = None,
    at: Fusion | Posterior | None = None,
) -> Posterior:
    """Coefficients and their precision, by the names of the columns; ``noise_sd`` of OLS."""
    fitted = model.model
    info = _info(model)
    _check_plain(model)
    if noise_sd is not None:
        if not isinstance(fitted, OLS):
            raise KLFusionError(f"noise_sd: expected an OLS, got {type(fitted).__name__}")
        check_number("noise_sd", noise_sd, 0.0, np.inf)
    names = [str(column) for column in fitted.exog_names]
    if at is not None and isinstance(fitted, OLS):
        raise KLFusionError("at: expected none, for the posterior of OLS is exact")
    if isinstance(fitted.endog_names, str):
        info |= outcome_of(fitted.data.orig_endog)
    offset = any(np.any(getattr(fitted, key, None)) for key in ("offset", "exposure"))
    info["offset"] = f"{'an' if offset else 'no'} offset or exposure"
    design = [getattr(fitted.data, key, None) for key in ("design_info", "model_spec")]
    info["reference"] = references(design[0] or design[1], names)
    info["scales"] = scales(np.asarray(fitted.exog, dtype=np.float64), names)
    info["scales"] = {key: sd for key, sd in info["scales"].items() if sd > 0}  # not the constant
    options = Options(name, prior_sd, local, units, at, info)
    n = len(fitted.endog)
    scale = {"scale": model.scale} if isinstance(fitted, GLM | OLS) else {}
    variance = float(model.scale) if noise_sd is None else noise_sd**2
    linear = isinstance(fitted, OLS) or _is_normal(info)
    if linear and not 0 < variance < np.inf:
        raise KLFusionError(
            f"expected residuals to estimate the noise from, got {n} rows for {len(names)} "
            "coefficients: an OLS takes noise_sd="
        )

    def likelihood(beta: FloatArray) -> Derivatives:
        if isinstance(fitted, OLS):
            x, residual = fitted.wexog, fitted.wendog - fitted.wexog @ beta
            value = -0.5 * float(residual @ residual) / variance
            return Derivatives(value, x.T @ residual / variance, x.T @ x / variance)
        value, gradient = fitted.loglike(beta, **scale), fitted.score(beta, **scale)
        return Derivatives(float(value), np.asarray(gradient), -fitted.hessian(beta, **scale))

    arrays: dict[str, float] = {}
    if isinstance(fitted, PHReg):
        arrays = {"events": float(fitted.status.sum())}
    elif linear:
        arrays = {"noise": float(np.sqrt(variance)), "n": n}
        if noise_sd is None and model.df_resid > 0 and model.cov_type != "fixed scale":
            arrays[FREEDOM] = float(model.df_resid)
    if at is not None or prior_sd is not None or noise_sd is not None:
        return options.laplace(names, likelihood, None, n, arrays)
    mean = np.asarray(model.params, dtype=np.float64)
    covariance = np.asarray(model.cov_params(), dtype=np.float64)
    if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
        raise KLFusionError(
            "expected finite estimates and covariances, got others: the classes are separated, a "
            "class or event is missing, or columns repeat each other; give prior_sd"
        )
    precision = np.asarray(np.linalg.pinv(covariance, hermitian=True), dtype=np.float64)
    own = options.posterior(
        names, Information(precision @ mean, precision), options.precision(names), n, arrays
    )
    options.centre(names, likelihood, None, mean)  # an error if there is no largest likelihood
    _check_converged(model)
    return own


def _check_plain(model: Any) -> None:
    """Refuse a fit whose covariance is not that of its likelihood."""
    instead = "kf.coefficients takes estimates and their covariance"
    if isinstance(model, L1BinaryResultsWrapper):
        raise KLFusionError(
            "expected a fit without an l1 penalty, which is no Gaussian prior: give prior_sd"
        )
    covariance = getattr(model, "cov_type", "nonrobust")
    if getattr(model.model, "groups", None) is not None:  # of a PHReg
        covariance = "cluster"
    if covariance not in _OF_LIKELIHOOD:
        raise KLFusionError(
            "expected a fit without robust errors, for they are not those of a likelihood, got "
            f"cov_type={covariance!r}: {instead}"
        )
    if getattr(model, "constraints", None) is not None:
        raise KLFusionError(f"expected a fit without constraints, got {model.constraints}")


def _is_normal(info: Mapping[str, Any]) -> bool:
    """Whether a GLM is a linear regression."""
    return (info.get("family"), info.get("link")) == ("Gaussian", "Identity")


def _info(model: Any) -> dict[str, Any]:
    """Package, class and model of an observation."""
    info: dict[str, Any] = {"package": "statsmodels", "class": type(model).__name__}
    if isinstance(model.model, GLM) and not isinstance(model.model, GEE):
        family = model.model.family
        link = type(family.link).__name__
        info |= {"family": type(family).__name__, "link": link, "scale": float(model.scale)}
        shape = {key: float(getattr(family, key)) for key in _SHAPES if hasattr(family, key)}
        info["shape"] = shape
        of_shape = "".join(f" ({key} {value:g})" for key, value in shape.items())
        info["likelihood"] = f"{info['family']}{of_shape} with link {link}"
    elif isinstance(model.model, Logit):
        info["likelihood"] = "logistic"
    elif isinstance(model.model, PHReg):
        info |= {"likelihood": "proportional hazards", "ties": model.model.ties}
    elif isinstance(model.model, OLS):
        info["likelihood"] = "normal"
    else:
        kind = type(model.model).__name__
        raise KLFusionError(
            f"expected an OLS, GLM, Logit or PHReg, got {kind}: kf.coefficients takes its params "
            "and cov_params()"
        )
    return info


def rebuild(posterior: Posterior) -> Any:
    """Results that predict, with confidence intervals; what needs the data is not there."""
    structure = posterior.structure
    assert structure is not None
    info, params = structure.info, posterior.params()
    known = list(info["coordinates"])
    rows = [known.index(c) for c in info["columns"] if c in known]
    names = [known[row] for row in rows]
    mean, covariance = params["mean"][0][rows], params["covariance"][0][np.ix_(rows, rows)]
    # A model needs data to be made; these stand for none.
    rows_of_none = np.vstack([np.eye(len(names)), np.ones((_ENOUGH, len(names)))])
    exog = pd.DataFrame(rows_of_none, columns=names)
    outcome = (info.get("outcome") or [_UNNAMED])[0]
    endog = pd.Series((np.arange(len(exog)) % 2).astype(np.float64), name=outcome)
    n = float("nan") if posterior.counts is None else float(posterior.counts.sum())
    if info["class"] == PHRegResults.__name__:
        ties = info.get("ties", "breslow")
        hazards = PHReg(endog + 1.0, exog, status=np.ones(len(exog)), ties=ties)
        hazards.status = np.array([float(structure.arrays.get("events", 0.0))])
        return without_rows(FusedPHRegResults(hazards, mean, covariance, scale=1.0), n)
    if info["class"] == RegressionResultsWrapper.__name__:
        scale = float(structure.arrays["noise"]) ** 2
        results = FusedOLSResults(
            OLS(endog, exog, hasconst=not _CONSTANTS.isdisjoint(names)), mean, covariance / scale
        )
        results.scale = scale
        return RegressionResultsWrapper(without_rows(results, n))
    if info["class"] == BinaryResultsWrapper.__name__:
        logit = Logit(endog, exog)
        fit = LikelihoodModelResults(logit, mean, normalized_cov_params=covariance, scale=1.0)
        fit.mle_settings, fit.mle_retvals = {"optimizer": "none"}, {"converged": True}
        return BinaryResultsWrapper(without_rows(FusedLogitResults(logit, fit), n))
    link = getattr(families.links, info["link"])()
    family = getattr(families, info["family"])(link=link, **info.get("shape", {}))
    glm = sm.GLM(endog, exog, family=family)
    scale = float(structure.arrays.get("noise", np.sqrt(info["scale"]))) ** 2
    return GLMResultsWrapper(without_rows(FusedGLMResults(glm, mean, covariance / scale, scale), n))
