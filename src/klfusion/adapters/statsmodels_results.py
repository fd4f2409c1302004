"""statsmodels' fitted GLM, Logit and PHReg: coefficients with their covariance.

The likelihood of these fits has no prior; ``prior_sd`` adds one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.api as sm
from statsmodels.base.model import LikelihoodModelResults
from statsmodels.discrete.discrete_model import BinaryResultsWrapper, Logit, LogitResults
from statsmodels.duration.hazard_regression import PHReg, PHRegResults
from statsmodels.genmod import families
from statsmodels.genmod.generalized_linear_model import GLM, GLMResults, GLMResultsWrapper

from klfusion._utils.arrays import FloatArray
from klfusion.adapters._likelihoods import Derivatives
from klfusion.adapters._regressions import Options, Prior, scales
from klfusion.errors import KLFusionError
from klfusion.fusion.result import Fusion
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure.regression import Information


def extract(
    model: Any,
    name: str,
    *,
    prior_sd: Prior = None,
    local: Sequence[str] = (),
    units: Mapping[str, str] | None = None,
    at: Fusion | Posterior | None = None,
) -> Posterior:
    """Coefficients and their precision, by the names of the columns."""
    fitted = model.model
    names = [str(column) for column in fitted.exog_names]
    info: dict[str, Any] = {"package": "statsmodels", "class": type(model).__name__}
    if isinstance(fitted, GLM):
        family = fitted.family
        link = type(family.link).__name__
        info |= {"family": type(family).__name__, "link": link, "scale": float(model.scale)}
        info["likelihood"] = f"{info['family']} with link {link}"
    elif isinstance(fitted, Logit):
        info["likelihood"] = "logistic"
    elif isinstance(fitted, PHReg):
        info["likelihood"] = "proportional hazards"
    else:
        raise KLFusionError(f"expected a GLM, Logit or PHReg, got {type(fitted).__name__}")
    info["scales"] = scales(np.asarray(fitted.exog, dtype=np.float64), names)
    info["scales"] = {key: sd for key, sd in info["scales"].items() if sd > 0}  # not the constant
    options = Options(name, prior_sd, local, units, at, info)
    n = len(fitted.endog)
    scale = {"scale": model.scale} if isinstance(fitted, GLM) else {}

    def likelihood(beta: FloatArray) -> Derivatives:
        value, gradient = fitted.loglike(beta, **scale), fitted.score(beta, **scale)
        return Derivatives(float(value), np.asarray(gradient), -fitted.hessian(beta, **scale))

    if at is not None or prior_sd is not None:
        return options.laplace(names, likelihood, None, n)
    mean = np.asarray(model.params, dtype=np.float64)
    covariance = np.asarray(model.cov_params(), dtype=np.float64)
    if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
        raise KLFusionError(
            "expected finite estimates and covariances, got others: the classes are separated, a "
            "class or event is missing, or columns repeat each other; give prior_sd"
        )
    precision = np.asarray(np.linalg.pinv(covariance, hermitian=True), dtype=np.float64)
    own = options.posterior(
        names, Information(precision @ mean, precision), options.precision(names), n
    )
    options.centre(names, likelihood, None, mean)  # an error if there is no largest likelihood
    return own


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
    endog = (np.arange(len(exog)) % 2).astype(np.float64)
    if info["class"] == PHRegResults.__name__:
        hazards = PHReg(endog + 1.0, exog, status=np.ones(len(exog)))
        return PHRegResults(hazards, mean, covariance, scale=1.0)
    if info["class"] == BinaryResultsWrapper.__name__:
        logit = Logit(endog, exog)
        fit = LikelihoodModelResults(logit, mean, normalized_cov_params=covariance, scale=1.0)
        fit.mle_settings, fit.mle_retvals = {"optimizer": "none"}, {"converged": True}
        return BinaryResultsWrapper(LogitResults(logit, fit))
    link = getattr(families.links, info["link"])()
    glm = sm.GLM(endog, exog, family=getattr(families, info["family"])(link=link))
    scale = float(info["scale"])
    return GLMResultsWrapper(GLMResults(glm, mean, covariance / scale, scale))
