"""statsmodels' results of a fusion: they predict from columns by name, and have no rows.

Statistics that a summary has are NaN where they need rows. All else that needs them is an error,
for the rows of a model without data are made up.
"""

from typing import Any, ClassVar

import numpy as np
import pandas as pd
from statsmodels.discrete import discrete_model
from statsmodels.duration import hazard_regression
from statsmodels.genmod import generalized_linear_model
from statsmodels.regression import linear_model

from klfusion._utils.text import few
from klfusion.errors import KLFusionError

_NONE = property(lambda self: float("nan"))


def _refuse(self: Any, *_: Any, **options: Any) -> Any:
    raise KLFusionError(
        "expected rows, got none: a fused model has coefficients and their covariance; predict "
        "from rows of your own, and compute residuals and the like from the fits at the silos"
    )


_ROWS = property(_refuse)


class _Columns:
    """The shape of a design matrix, for statsmodels asks for it; its numbers are an error."""

    ndim = 2
    __array__ = __len__ = __getitem__ = __iter__ = _refuse

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # such as numpy's protocols
            raise AttributeError(name)
        return _refuse(self)


class WithoutRows:
    """A model that has the names of columns, and no rows."""

    data: Any  # whose rows stand for none
    exog = property(lambda self: _Columns(self.data.exog.shape))
    endog = wendog = wexog = pinv_wexog = _ROWS


class Logit(WithoutRows, discrete_model.Logit):  # type: ignore[misc]
    """A `Logit` without rows; its name is in summaries."""


class GLM(WithoutRows, generalized_linear_model.GLM):  # type: ignore[misc]
    """A `GLM` without rows."""


class OLS(WithoutRows, linear_model.OLS):  # type: ignore[misc]
    """An `OLS` without rows."""


class PHReg(WithoutRows, hazard_regression.PHReg):  # type: ignore[misc]
    """A `PHReg` without rows."""


class Times(hazard_regression.PHSurvivalTime):  # type: ignore[misc]
    """Times of a `PHReg` without rows."""

    exog_s = time_s = status_s = ufailt = _ROWS


_WITHOUT_ROWS = {own.__bases__[1]: own for own in (Logit, GLM, OLS, PHReg)}


def without_rows(results: Any, n: float) -> Any:
    """Results whose model forgets the rows that stand for none; they are of ``n`` observations."""
    results.nobs, results.df_resid = n, n - len(results.params)
    getattr(results, "_cache", {}).pop("fittedvalues", None)  # of a binary outcome
    model = results.model
    if hasattr(model, "surv"):
        model.surv.n_obs = n
        model.surv.__class__ = Times
    model.__class__ = _WITHOUT_ROWS[type(model)]
    return results


class ByName:
    """Results that take the columns of a data frame by name, and have no data."""

    model: Any
    params: Any
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
        elif np.ndim(exog) == 1:
            exog = np.reshape(exog, (-1, len(self.params)))
        return super()._transform_predict_exog(exog, transform)  # type: ignore[misc]

    def remove_data(self) -> None:
        """Nothing: there are no data."""


class FusedLogitResults(ByName, discrete_model.LogitResults):  # type: ignore[misc]
    """`LogitResults` of a fusion."""


class FusedGLMResults(ByName, generalized_linear_model.GLMResults):  # type: ignore[misc]
    """`GLMResults` of a fusion."""

    null = _ROWS

    def pseudo_rsquared(self, kind: str = "cs") -> float:
        """NaN: it needs data."""
        return float("nan")


class FusedOLSResults(ByName, linear_model.OLSResults):  # type: ignore[misc]
    """`OLSResults` of a fusion."""

    nobs = float("nan")
    condition_number = _NONE
    eigenvals = property(lambda self: np.array([np.nan]))
    wresid = property(lambda self: np.full(len(self.model.data.endog), np.nan))
    resid = _ROWS


class FusedPHRegResults(ByName, hazard_regression.PHRegResults):  # type: ignore[misc]
    """`PHRegResults` of a fusion."""
