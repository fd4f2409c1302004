"""Whether ``data=`` are the rows that a model was fitted to."""

from typing import Any

import numpy as np

from klfusion._utils.arrays import ROUNDING, FloatArray, IntArray
from klfusion.adapters._likelihoods import Derivatives, Likelihood, logistic, poisson, softmax
from klfusion.errors import KLFusionError

_ROUNDING = ROUNDING**0.5  # of numbers that libraries compute


def check_fit(likelihood: Likelihood, fitted: FloatArray, precision: FloatArray) -> None:
    """Refuse rows whose coefficients are not those of the fit, given the fit's prior.

    One step of Newton's method from the fit says how far they are. Of other rows of the same kind
    they lie about a deviation away per coefficient; of the same rows, as far as a solver stops
    short, which is far less than a deviation.
    """
    precision = precision if precision.ndim == 2 else np.diag(precision)
    with np.errstate(all="ignore"):
        _, gradient, information = likelihood(fitted)
        gradient = gradient - precision @ fitted
    if not (np.isfinite(gradient).all() and np.isfinite(information).all()):
        raise _other("coefficients")
    step = np.linalg.lstsq(information + precision, gradient, rcond=None)[0]
    away = max(float(gradient @ step), 0.0) ** 0.5
    if away > 1.0:
        raise _other(f"coefficients, {away:.2g} standard deviations away")


def check_logistic(model: Any, x: FloatArray, outcome: IntArray) -> None:
    """The same of scikit-learn's logistic regression; ``outcome`` are numbers of its classes."""
    fitted, k = _fitted(model), len(model.classes_)
    strength = 0.0 if getattr(model, "penalty", None) is None else 1.0 / float(model.C)
    own = np.full(x.shape[1], strength)
    if model.fit_intercept:  # liblinear has a prior of it
        own[0] *= model.solver == "liblinear" and model.intercept_scaling**-2
    if k == 2:
        check_fit(logistic(x, outcome.astype(np.float64)), fitted[0], own)
    else:  # differences from the first class: see `klfusion.adapters._multinomial`
        precision = np.asarray(np.kron(np.eye(k - 1) - 1.0 / k, np.diag(own)), dtype=np.float64)
        check_fit(softmax(x, outcome, k), (fitted[1:] - fitted[0]).ravel(), precision)


def check_poisson(model: Any, x: FloatArray, counts: FloatArray) -> None:
    """The same of scikit-learn's Poisson regression."""
    own = np.full(x.shape[1], float(model.alpha) * len(x))
    own[: bool(model.fit_intercept)] = 0.0
    check_fit(poisson(x, counts), _fitted(model)[0], own)


def check_linear(model: Any, x: FloatArray, y: FloatArray, noise: float) -> None:
    """The same of scikit-learn's linear regressions, given the deviation of the noise."""
    variance = max(noise, _ROUNDING * float(np.abs(y).max())) ** 2
    own = np.zeros(x.shape[1])
    ridge = model.lambda_ / model.alpha_ if hasattr(model, "lambda_") else ridge_penalty(model)
    own[bool(model.fit_intercept) :] = ridge / variance

    def likelihood(beta: FloatArray) -> Derivatives:
        return Derivatives(0.0, x.T @ (y - x @ beta) / variance, x.T @ x / variance)

    check_fit(likelihood, _fitted(model)[0], own)


def check_moments(what: str, fitted: Any, found: FloatArray, unit: FloatArray | float) -> None:
    """Refuse rows whose moments are not those of the fit."""
    own = np.asarray(fitted, dtype=np.float64)
    if own.shape != found.shape or (np.abs(own - found) > _ROUNDING * np.asarray(unit)).any():
        raise _other(what)


def ridge_penalty(model: Any) -> float:
    """The penalty of a linear regression; that of one outcome may be in a list."""
    return float(np.asarray(getattr(model, "alpha", 0.0), dtype=np.float64).item())


def _fitted(model: Any) -> FloatArray:
    """Coefficients of the fit (k, d), that of the intercept first."""
    found = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
    whole = np.column_stack([np.atleast_1d(model.intercept_), found])
    return whole if model.fit_intercept else found


def _other(what: str) -> KLFusionError:
    return KLFusionError(
        f"expected the data that the model was fitted to, got others, with other {what}: pass the "
        "rows of the fit, all of one weight, or a model that is not fitted, which takes any data. "
        "A fit that has not converged needs more iterations"
    )
