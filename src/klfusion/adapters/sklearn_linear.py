"""scikit-learn's linear, logistic and Poisson regressions.

A fitted model has coefficients but, save for two, no uncertainty; ``data=(x, y)`` at the silo gives
it. Only coefficients and their precision matrix leave.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.linear_model import (
    ARDRegression,
    BayesianRidge,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
)
from sklearn.utils.multiclass import type_of_target

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.adapters import _likelihoods, _multinomial
from klfusion.adapters._library import check_fitted, feature_names
from klfusion.adapters._regressions import (
    INTERCEPT,
    Options,
    Prior,
    numbers_of,
    outcome_of,
    scales,
    scales_of,
    table,
    with_intercept,
)
from klfusion.adapters._same_data import (
    check_linear,
    check_logistic,
    check_poisson,
    ridge_penalty,
)
from klfusion.adapters._uncertain import (
    FusedLinearRegression,
    FusedLogisticRegression,
    FusedPoissonRegressor,
    FusedRidge,
)
from klfusion.adapters.sklearn_mixture import check_number
from klfusion.errors import KLFusionError
from klfusion.fusion.result import Fusion
from klfusion.posteriors.noise import FREEDOM
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure.regression import Information

_KINDS = (
    BayesianRidge,
    ARDRegression,
    LogisticRegression,
    PoissonRegressor,
    LinearRegression,
    Ridge,
)
_LIKELIHOODS = {LogisticRegression: "logistic", PoissonRegressor: "poisson"}


def extract(
    model: Any,
    name: str,
    *,
    data: Any = None,
    n_observations: int | None = None,
    noise_sd: float | None = None,
    prior_sd: Prior = None,
    local: Sequence[str] = (),
    units: Mapping[str, str] | None = None,
    at: Fusion | Posterior | None = None,
    classes: Sequence[Any] | None = None,
) -> Posterior:
    """Coefficients and their precision; ``data`` or, if Bayesian, ``n_observations`` are needed."""
    kind = next(kind for kind in _KINDS if isinstance(model, kind))
    likelihood = _LIKELIHOODS.get(kind, "normal")
    settings = {"package": "sklearn", "class": kind.__name__, "likelihood": likelihood}
    settings |= {"fit_intercept": bool(model.fit_intercept)}
    options = Options(name, prior_sd, local, units, at, settings)
    if kind in _LIKELIHOODS:
        if n_observations is not None or noise_sd is not None:
            raise KLFusionError(f"{kind.__name__} takes data, no n_observations and no noise_sd")
        return _generalised(model, options, data, kind, classes)
    if at is not None:
        raise KLFusionError("at: expected none, for the posterior of a linear regression is exact")
    return _linear(model, options, data, n_observations, noise_sd)


def _generalised(
    model: Any, options: Options, data: Any, kind: Any, classes: Sequence[Any] | None
) -> Posterior:
    """A logistic or Poisson regression, by Laplace's approximation."""
    if data is None:
        raise KLFusionError(
            f"expected data=(x, y): a {kind.__name__} has coefficients without uncertainty; their "
            "precision is computed here, and the data stay"
        )
    x, features, y = table(data, feature_names(model))
    options = _replace(options, scales=scales(x, features), **outcome_of(y))
    x, names = with_intercept(x, features, model.fit_intercept)
    if kind is PoissonRegressor:
        counts = numbers_of(y)
        if not (np.isfinite(counts).all() and (counts >= 0).all()):
            raise KLFusionError("expected counts >= 0 in y")
        likelihood, strength = _likelihoods.poisson(x, counts), float(model.alpha) * len(x)
        if hasattr(model, "coef_"):
            check_poisson(model, x, counts)
    else:
        labels, outcome = _outcome(model, y, classes)
        options = _replace(options, classes=labels)
        likelihood = _likelihoods.logistic(x, outcome.astype(np.float64))
        strength = _strength(model, options)
        if hasattr(model, "C") and labels == [_plain(c) for c in getattr(model, "classes_", [])]:
            check_logistic(model, x, outcome)
    own = np.array([0.0 if key == INTERCEPT else strength for key in names])
    if kind is LogisticRegression and len(labels) > 2:
        return _multinomial.posterior(options, names, x, outcome, own)
    return options.laplace(names, likelihood, own, len(x))


def _replace(options: Options, **info: Any) -> Options:
    return replace(options, info={**options.info, **info})


def _outcome(model: Any, y: Any, given: Sequence[Any] | None) -> tuple[list[Any], IntArray]:
    """All classes, those that this silo lacks included, and the number of each row's class."""
    kind = type_of_target(y)
    if kind not in ("binary", "multiclass"):
        raise KLFusionError(f"expected classes in y, got {kind} values")
    found = [_plain(label) for label in np.unique(np.asarray(y))]
    labels = [_plain(c) for c in (getattr(model, "classes_", found) if given is None else given)]
    if given is None and len(labels) == 1 and labels[0] in (0, 1):  # which of two it is
        labels = [type(labels[0])(0), type(labels[0])(1)]
    labels = sorted(set(labels))
    unknown = [label for label in found if label not in labels]
    if len(labels) < 2 or unknown:
        raise KLFusionError(
            f"expected two or more classes, got {unknown or labels}; classes= lists those of all "
            "silos where a silo lacks some"
        )
    return labels, np.searchsorted(labels, np.asarray(y))


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def _strength(model: Any, options: Options) -> float:
    """Precision of the prior of a logistic regression's coefficients."""
    penalty, ratio = getattr(model, "penalty", None), getattr(model, "l1_ratio", None)
    if penalty in ("l1", "elasticnet") or ratio not in (None, 0, 0.0):
        raise KLFusionError("expected an l2 penalty, which is a Gaussian prior, got l1")
    if getattr(model, "class_weight", None) is not None:
        raise KLFusionError("expected no class_weight: with it the fit is no posterior")
    if penalty is None or options.prior_sd is not None:
        return 0.0
    if not hasattr(model, "C"):
        kind = type(model).__name__
        raise KLFusionError(f"expected prior_sd: a {kind} chooses another prior at each silo")
    return 1.0 / float(model.C)


def _linear(
    model: Any, options: Options, data: Any, n: int | None, noise_sd: float | None
) -> Posterior:
    """A linear regression: exact, given the deviation of the noise."""
    if getattr(model, "positive", False):
        raise KLFusionError("expected positive=False: coefficients with bounds have no posterior")
    if data is not None:
        x, features, y = table(data, feature_names(model))
        options = _replace(options, scales=scales(x, features), **outcome_of(y))
        x, names = with_intercept(x, features, model.fit_intercept)
        outcome = numbers_of(y)
        n, gram, moment = len(x), x.T @ x, x.T @ outcome
    else:
        outcome = None
        names, n, gram, moment = _from_fit(model, n)
        features = [key for key in names if key != INTERCEPT]
        if INTERCEPT in names:
            mean = gram[0, 1:] / n
            found = scales_of(mean, np.diag(gram)[1:] / n - mean**2, features)
            options = _replace(options, scales=found)
    bayesian = isinstance(model, BayesianRidge | ARDRegression)
    noise, freedom = noise_sd, 0.0
    if noise is None and bayesian:
        check_fitted(model)
        noise = 1.0 / np.sqrt(float(model.alpha_))
        freedom = max(n - _effective(model, names), 1.0)
    if noise is None:
        rest = x, np.asarray(outcome), gram, moment, ridge_penalty(model)
        noise, freedom = _residual_deviation(*rest)
    if not (np.isfinite(noise) and noise > 0):
        raise KLFusionError(f"expected noise_sd > 0, got {noise!r}")
    if bayesian and options.prior_sd is None:
        options = _replace(options, estimated_prior=True)
        strength = np.broadcast_to(model.lambda_, len(names) - (INTERCEPT in names))
    elif options.prior_sd is None:
        strength = np.full(len(names) - (INTERCEPT in names), ridge_penalty(model) / noise**2)
    else:
        strength = np.zeros(len(names) - (INTERCEPT in names))
    own = np.concatenate([[0.0], strength]) if INTERCEPT in names else np.asarray(strength)
    arrays = {"noise": noise, "n": n}
    if freedom:
        arrays[FREEDOM] = freedom
        options = _replace(options, ridge=options.prior_sd is None and not bayesian)
    likelihood = Information(moment / noise**2, gram / noise**2)
    if outcome is not None and hasattr(model, "coef_"):
        check_linear(model, x, outcome, noise)
    return options.posterior(names, likelihood, options.precision(names, own), n, arrays)


def _effective(model: Any, names: Sequence[str]) -> float:
    """Number of coefficients that the data of a Bayesian fit determine, the intercept included."""
    kept = len(model.sigma_)
    strength = np.broadcast_to(model.lambda_, len(model.coef_))
    if isinstance(model, ARDRegression):
        strength = strength[strength < model.threshold_lambda]
    shrunk = float(strength @ np.diag(model.sigma_)) if kept == len(strength) else 0.0
    return kept - shrunk + (INTERCEPT in names)


def _from_fit(model: Any, n: int | None) -> tuple[list[str], int, FloatArray, FloatArray]:
    """Sums of squares and products from the posterior of a Bayesian fit, centred at its means."""
    if not isinstance(model, BayesianRidge | ARDRegression):
        kind = type(model).__name__
        raise KLFusionError(f"expected data=(x, y): a {kind} has coefficients without uncertainty")
    check_fitted(model)
    if n is None:
        raise KLFusionError("expected n_observations=len(x), or data=(x, y)")
    check_number(n)
    d, kept = len(model.coef_), np.ones(len(model.coef_), dtype=bool)
    if isinstance(model, ARDRegression):
        kept = np.asarray(model.lambda_ < model.threshold_lambda)
    precision = np.zeros((d, d))
    precision[np.ix_(kept, kept)] = np.linalg.inv(model.sigma_)
    strength = np.broadcast_to(model.lambda_, d) * kept
    centred = (precision - np.diag(strength)) / model.alpha_
    products = precision @ model.coef_ / model.alpha_
    names = feature_names(model) or [f"x{k}" for k in range(d)]
    if not model.fit_intercept:
        return names, n, centred, products
    place = np.broadcast_to(np.asarray(model.X_offset_, dtype=np.float64), d)
    mean = float(model.intercept_ + place @ model.coef_)
    gram = np.zeros((d + 1, d + 1))
    gram[0, 0], gram[0, 1:], gram[1:, 0] = n, n * place, n * place
    gram[1:, 1:] = centred + n * np.outer(place, place)
    return [INTERCEPT, *names], n, gram, np.concatenate([[n * mean], products + n * mean * place])


def _residual_deviation(
    x: FloatArray, y: FloatArray, gram: FloatArray, moment: FloatArray, strength: float
) -> tuple[float, float]:
    """Of the noise, from the residuals of the ridge fit, and residual degrees of freedom."""
    penalty = strength * np.eye(len(gram))
    if (x[:, 0] == 1.0).all():
        penalty[0, 0] = 0.0
    try:
        fit = np.linalg.solve(gram + penalty, np.column_stack([moment, gram]))
    except np.linalg.LinAlgError as error:
        raise KLFusionError(
            f"expected more rows than coefficients, and no constant or repeated column, got "
            f"{len(x)} rows of rank {np.linalg.matrix_rank(x)} for {len(gram)} coefficients"
        ) from error
    freedom = len(x) - float(np.trace(fit[:, 1:]))
    if freedom < 1:
        raise KLFusionError("expected more rows than coefficients to estimate the noise: noise_sd=")
    return float(np.sqrt(np.square(y - x @ fit[:, 0]).sum() / freedom)), freedom


def rebuild(posterior: Posterior) -> Any:
    """A fitted model with the posterior's mean, and its uncertainty."""
    structure = posterior.structure
    assert structure is not None
    info, params = structure.info, posterior.params()
    known = list(info["coordinates"])
    features = [c for c in info["columns"] if c != INTERCEPT and c in known]
    rows = [known.index(c) for c in features]
    mean, covariance = params["mean"][0], params["covariance"][0]
    kind = {k.__name__: k for k in _KINDS}[info["class"]]
    fused = {
        LogisticRegression: FusedLogisticRegression,
        PoissonRegressor: FusedPoissonRegressor,
        Ridge: FusedRidge,
        LinearRegression: FusedLinearRegression,
    }.get(kind, kind)
    model = fused()
    has_intercept = INTERCEPT in known
    model.fit_intercept = bool(info["fit_intercept"])
    _with_features(model, features)
    if kind is LogisticRegression and len(info["classes"]) > 2:
        parts = _multinomial.symmetric(info, mean, covariance)
        features = parts.pop("features")
        vars(model).update(parts)
        model.classes_, model.n_iter_ = np.array(info["classes"]), np.array([0])
        return _with_features(model, features)
    model.coef_ = mean[rows]
    model.intercept_ = float(mean[known.index(INTERCEPT)]) if has_intercept else 0.0
    if kind is LogisticRegression:
        model.classes_, model.coef_ = np.array(info["classes"]), model.coef_[None]
        model.intercept_ = np.array([model.intercept_])
        model.n_iter_ = np.array([0])
    if kind is PoissonRegressor:
        model._base_loss = model._get_loss()
    order = [*([known.index(INTERCEPT)] if has_intercept else []), *rows]
    if fused is not kind:
        model.covariance_ = covariance[np.ix_(order, order)]
        model.noise_ = float(structure.arrays.get("noise", 0.0))
        return model
    model.sigma_ = covariance[np.ix_(rows, rows)]
    model.alpha_ = 1.0 / float(structure.arrays["noise"]) ** 2
    prior = np.diag(Information.of(np.asarray(posterior.prior), len(known)).precision)[rows]
    model.lambda_ = prior if kind is ARDRegression else float(prior.mean())
    model.X_offset_ = np.zeros(len(rows))
    if has_intercept:  # where the prediction is most certain
        across = covariance[np.ix_(rows, [known.index(INTERCEPT)])][:, 0]
        model.X_offset_ = -np.linalg.solve(model.sigma_, across)
    model.X_scale_, model.n_iter_, model.scores_ = np.ones(len(rows)), 0, np.array([])
    return model


def _with_features(model: Any, features: Sequence[str]) -> Any:
    """The model with the names of its columns, if they have names."""
    model.n_features_in_ = len(features)
    if features != [f"x{k}" for k in range(len(features))]:
        model.feature_names_in_ = np.array(features, dtype=object)
    return model
