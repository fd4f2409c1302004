"""scikit-learn's regressions with the uncertainty of their coefficients."""

from typing import Any

import numpy as np
from scipy.special import expit
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge

from klfusion._utils.arrays import FloatArray

_PROBIT = np.pi / 8.0  # MacKay's scale between the logistic curve and that of the Normal


class Uncertain:
    """Adds ``covariance_`` of intercept and coefficients, and intervals of predictions."""

    covariance_: FloatArray
    noise_: float
    fit_intercept: bool

    def linear_sd(self, x: Any) -> FloatArray:
        """Standard deviation of the linear predictor of each row."""
        rows = np.asarray(x, dtype=np.float64)
        if len(self.covariance_) > rows.shape[1]:
            rows = np.hstack([np.ones((len(rows), 1)), rows])
        return np.asarray(np.sqrt(np.einsum("ni,ij,nj->n", rows, self.covariance_, rows)))

    def predict_interval(self, x: Any, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Interval of the expected outcome, or the probability of the second class."""
        middle = self.linear(x)
        wide = norm.ppf(0.5 * (1.0 + level)) * self.linear_sd(x)
        return self.curve(middle - wide), self.curve(middle + wide)

    def linear(self, x: Any) -> FloatArray:
        """The linear predictor at the mean of the coefficients."""
        coef: Any = self.coef_  # type: ignore[attr-defined]
        intercept: Any = self.intercept_  # type: ignore[attr-defined]
        return np.asarray(np.asarray(x, dtype=np.float64) @ np.ravel(coef) + np.ravel(intercept)[0])

    @staticmethod
    def curve(predictor: FloatArray) -> FloatArray:
        """Expected outcome of a linear predictor."""
        return predictor


class FusedRidge(Uncertain, Ridge):  # type: ignore[misc]
    """A `Ridge` with the covariance of its coefficients."""


class FusedLogisticRegression(Uncertain, LogisticRegression):  # type: ignore[misc]
    """A `LogisticRegression` whose probabilities are averages over the posterior."""

    def predict_proba(self, X: Any) -> FloatArray:
        """Probabilities of the classes, averaged over the coefficients (MacKay, 1992)."""
        decision = self.decision_function(X)
        second = expit(decision / np.sqrt(1.0 + _PROBIT * self.linear_sd(X) ** 2))
        return np.column_stack([1.0 - second, second])

    @staticmethod
    def curve(predictor: FloatArray) -> FloatArray:
        """Probability of the second class."""
        return np.asarray(expit(predictor))


class FusedPoissonRegressor(Uncertain, PoissonRegressor):  # type: ignore[misc]
    """A `PoissonRegressor` with the covariance of its coefficients."""

    @staticmethod
    def curve(predictor: FloatArray) -> FloatArray:
        """Expected count."""
        return np.exp(predictor)
