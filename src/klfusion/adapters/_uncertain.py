"""scikit-learn's regressions with the uncertainty of their coefficients."""

from typing import Any

import numpy as np
from scipy.special import expit, logit, logsumexp, ndtri, softmax
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor, Ridge

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
        wide = ndtri(0.5 * (1.0 + level)) * self.linear_sd(x)
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


class FusedLinearRegression(Uncertain, LinearRegression):  # type: ignore[misc]
    """A `LinearRegression` with the covariance of its coefficients."""


class FusedLogisticRegression(Uncertain, LogisticRegression):  # type: ignore[misc]
    """A `LogisticRegression` whose probabilities are averages over the posterior."""

    def predict_proba(self, X: Any) -> FloatArray:
        """Probabilities of the classes, averaged over the coefficients.

        MacKay (1992); of three or more classes, by pairs (Daunizeau, 2017).
        """
        decision = self.decision_function(X)
        if decision.ndim == 2:
            return self._of_pairs(decision, self._decision_covariance(X))
        second = expit(decision / np.sqrt(1.0 + _PROBIT * self.linear_sd(X) ** 2))
        return np.column_stack([1.0 - second, second])

    @staticmethod
    def _of_pairs(decision: FloatArray, covariance: FloatArray) -> FloatArray:
        own = np.einsum("nkk->nk", covariance)
        variance = own[:, :, None] + own[:, None] - 2.0 * covariance
        apart = (decision[:, None] - decision[:, :, None]) / np.sqrt(1.0 + _PROBIT * variance)
        p = np.exp(-logsumexp(apart, axis=2))
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def _decision_covariance(self, x: Any) -> FloatArray:
        """Of the linear predictors of all classes, (n, K, K)."""
        rows, n_classes = np.asarray(x, dtype=np.float64), len(self.classes_)
        d = len(self.covariance_) // n_classes
        if d > rows.shape[1]:
            rows = np.hstack([np.ones((len(rows), 1)), rows])
        blocks = self.covariance_.reshape(n_classes, d, n_classes, d)
        return np.asarray(np.einsum("ni,kilj,nj->nkl", rows, blocks, rows, optimize=True))

    def predict_interval(self, x: Any, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Interval of the probability of the second class; of three or more, of every class."""
        if len(self.classes_) == 2:
            return super().predict_interval(x, level)
        decision = self.decision_function(x)
        p = softmax(decision, axis=1)
        # Derivatives of each class's log-odds by the linear predictors.
        slope = np.eye(p.shape[1]) - (1.0 - np.eye(p.shape[1])) * p[:, None] / (1.0 - p)[:, :, None]
        variance = np.einsum("nki,nij,nkj->nk", slope, self._decision_covariance(x), slope)
        wide = ndtri(0.5 * (1.0 + level)) * np.sqrt(variance)
        return expit(logit(p) - wide), expit(logit(p) + wide)

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
