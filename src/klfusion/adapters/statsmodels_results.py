"""statsmodels' fitted OLS, GLM, Logit and PHReg: coefficients with their covariance.

The likelihood of these fits has no prior; ``prior_sd`` adds one. What comes back predicts from
columns by name. It has no data, so statistics of the fit, such as the log-likelihood, are NaN.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import statsmodels.api as sm
from statsmodels.base.model import LikelihoodModelResults
from statsmodels.discrete.discrete_model import BinaryResultsWrapper, Logit, LogitResults
from statsmodels.duration.hazard_regression import PHReg, PHRegResults
from statsmodels.genmod import families
from statsmodels.genmod.generalized_estimating_equations import GEE
from statsmodels.genmod.generalized_linear_model import GLM, GLMResults, GLMResultsWrapper
from statsmodels.regression.linear_model import OLS, OLSResults, RegressionResultsWrapper

from klfusion._utils.arrays import FloatArray
from klfusion._utils.checks import check_number
from klfusion._utils.text import few
from klfusion.adapters._likelihoods import Derivatives
from klfusion.adapters._regressions import Options, Prior, scales
from klfusion.errors import KLFusionError
from klfusion.fusion.result import Fusion
from klfusion.posteriors.noise import FREEDOM
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure.regression import Information

_NONE = property(lambda self: float("nan"))
_UNNAMED = "y"  # the outcome of a fit to arrays
_SHAPES = ("alpha", "var_power")  # what a family of statsmodels may have beside its link


def _check_converged(model: Any) -> None:
    """Refuse a fit that statsmodels itself says has not converged."""
    found = getattr(model, "mle_retvals", None) or {}
    if not found.get("converged", getattr(model, "converged", True)):
        raise KLFusionError(
            "expected a fit that has converged, got one that statsmodels says has not: give fit "
            "more iterations by maxiter=, or see whether a column separates the outcome"
        )


class ByName:
    """Results that take the columns of a data frame by name, and have no data."""

    model: Any
    llf = llnull = llr = llr_pvalue = prsquared = aic = bic = bic_llf = _NONE
    deviance = null_deviance = pearson_chi2 = _NONE
    rsquared = rsquared_adj = fvalue = f_pvalue = ssr = mse_resid = _NONE
    fit_history: ClassVar = {"iteration": 0}
    method = "fused"

    def _transform_predict_exog(self, exog: Any, transform: bool = True) -> Any:
        if isinstance(exog, pd.DataFrame):
            names = list(self.model.exog_names)
            missing = [name for name in names if name not in exog.columns]
            if missing:
                raise KLFusionError(
                    f"expected the columns {few(names)}, got none named {few(missing)}: "
                    "sm.add_constant adds const; of a formula, predict from its design matrix, "
                    "such as fit.model.exog"
                )
            exog = exog[names]
        return super()._transform_predict_exog(exog, transform)  # type: ignore[misc]


class FusedLogitResults(ByName, LogitResults):  # type: ignore[misc]
    """`LogitResults` of a fusion."""


class FusedGLMResults(ByName, GLMResults):  # type: ignore[misc]
    """`GLMResults` of a fusion."""

    def pseudo_rsquared(self, kind: str = "cs") -> float:
        """NaN: it needs data."""
        return float("nan")


class FusedOLSResults(ByName, OLSResults):  # type: ignore[misc]
    """`OLSResults` of a fusion."""

    nobs = float("nan")
    resid = wresid = property(lambda self: np.full(len(self.model.endog), np.nan))


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
    if noise_sd is not None:
        if not isinstance(fitted, OLS):
            raise KLFusionError(f"noise_sd: expected an OLS, got {type(fitted).__name__}")
        check_number("noise_sd", noise_sd, 0.0, np.inf)
    names = [str(column) for column in fitted.exog_names]
    info = _info(model)
    if at is not None and isinstance(fitted, OLS):
        raise KLFusionError("at: expected none, for the posterior of OLS is exact")
    if isinstance(fitted.endog_names, str) and fitted.endog_names != _UNNAMED:
        info["outcome"] = [fitted.endog_names]
    info["scales"] = scales(np.asarray(fitted.exog, dtype=np.float64), names)
    info["scales"] = {key: sd for key, sd in info["scales"].items() if sd > 0}  # not the constant
    options = Options(name, prior_sd, local, units, at, info)
    n = len(fitted.endog)
    scale = {"scale": model.scale} if isinstance(fitted, GLM | OLS) else {}
    variance = float(model.scale) if noise_sd is None else noise_sd**2

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
    elif isinstance(fitted, OLS) or _is_normal(info):
        arrays = {"noise": float(np.sqrt(variance)), "n": n}
        if noise_sd is None and model.df_resid > 0 and model.cov_type == "nonrobust":
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
        info["likelihood"] = "proportional hazards"
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
    # A model needs data; these stand for none, and nothing is fitted to them.
    exog = pd.DataFrame(np.vstack([np.eye(len(names)), np.ones(len(names))]), columns=names)
    outcome = (info.get("outcome") or [_UNNAMED])[0]
    endog = pd.Series((np.arange(len(exog)) % 2).astype(np.float64), name=outcome)
    n = float("nan") if posterior.counts is None else float(posterior.counts.sum())
    if info["class"] == PHRegResults.__name__:
        hazards = PHReg(endog + 1.0, exog, status=np.ones(len(exog)))
        hazards.surv.n_obs = n
        hazards.status = np.array([float(structure.arrays.get("events", 0.0))])
        return PHRegResults(hazards, mean, covariance, scale=1.0)
    if info["class"] == RegressionResultsWrapper.__name__:
        scale = float(structure.arrays["noise"]) ** 2
        results = FusedOLSResults(OLS(endog, exog), mean, covariance / scale)
        results.scale = scale
        return RegressionResultsWrapper(_counted(results, n))
    if info["class"] == BinaryResultsWrapper.__name__:
        logit = Logit(endog, exog)
        fit = LikelihoodModelResults(logit, mean, normalized_cov_params=covariance, scale=1.0)
        fit.mle_settings, fit.mle_retvals = {"optimizer": "none"}, {"converged": True}
        return BinaryResultsWrapper(_counted(FusedLogitResults(logit, fit), n))
    link = getattr(families.links, info["link"])()
    family = getattr(families, info["family"])(link=link, **info.get("shape", {}))
    glm = sm.GLM(endog, exog, family=family)
    scale = float(structure.arrays.get("noise", np.sqrt(info["scale"]))) ** 2
    return GLMResultsWrapper(_counted(FusedGLMResults(glm, mean, covariance / scale, scale), n))


def _counted(results: Any, n: float) -> Any:
    """Results of so many observations."""
    results.nobs, results.df_resid = n, n - len(results.params)
    return results
