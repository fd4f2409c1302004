"""scikit-learn's naive Bayes models and discriminant analyses: classes are named components.

The statistics of each class add up, so the fused model is that of the pooled data. The prior is
there for classes of a single row, whose statistics alone are no posterior. It is counted once, and
taken out where a model is rebuilt.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import eigh
from scipy.special import gammaincinv
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.naive_bayes import CategoricalNB, GaussianNB, MultinomialNB

from klfusion._utils.arrays import FloatArray
from klfusion._utils.intervals import INTERVAL
from klfusion.adapters._library import (
    check_fitted,
    class_names,
    classes_of,
    feature_names,
    origin,
)
from klfusion.adapters._regressions import scales, scales_of, table
from klfusion.adapters._same_data import check_moments
from klfusion.errors import KLFusionError
from klfusion.families import Dirichlet, Family, NormalGamma, NormalWishart, Product
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure.kinds import CLASSES

_ROWS = 1.0  # observations that the prior of a Gaussian is worth; it has mean 0 and variance 1
# Two classes whose variances are 1 by the number of rows, 2 by the degrees of freedom.
_PROBE = np.array([[-1.0], [1.0], [9.0], [11.0]])


def extract(model: Any, name: str, *, data: Any = None) -> Posterior:
    """Statistics of each class; discriminant analyses need ``data=(x, y)`` and may be unfitted."""
    if isinstance(model, LinearDiscriminantAnalysis | QuadraticDiscriminantAnalysis):
        return _discriminant(model, name, data)
    if data is not None:
        raise KLFusionError("expected no data: the fitted model has the statistics of each class")
    check_fitted(model)
    deviations: dict[str, float] = {}
    if isinstance(model, GaussianNB):
        counts, width = np.asarray(model.class_count_), model.theta_.shape[1]
        variance = np.maximum(model.var_ - model.epsilon_, 0.0)
        family: Family = NormalGamma(width)
        natural = gammas(counts, model.theta_, counts[:, None] * variance)
        prior, settings = gammas(np.zeros(1), np.zeros((1, width)), np.zeros((1, width)))[0], {}
        settings = {"var_smoothing": float(model.var_smoothing)}
        whole = counts @ model.theta_ / counts.sum()
        spread = counts @ (variance + (model.theta_ - whole) ** 2) / counts.sum()
        columns = feature_names(model) or [f"x{k}" for k in range(width)]
        deviations = scales_of(whole, spread, columns)
    elif isinstance(model, MultinomialNB):
        counts = np.asarray(model.class_count_)
        family, prior = Dirichlet(model.feature_count_.shape[1]), pseudo_counts(model)
        prior = np.broadcast_to(prior, family.size).astype(np.float64)
        natural, settings = model.feature_count_ + prior, {"alpha": prior.tolist()}
    else:
        counts = np.asarray(model.class_count_)
        alpha = float(pseudo_counts(model))
        tables = {f"feature {k}": own for k, own in enumerate(model.category_count_)}
        family = Product(**{key: Dirichlet(own.shape[1]) for key, own in tables.items()})
        prior = np.full(family.size, alpha)
        natural = np.hstack([*tables.values()]) + prior
        settings = {"alpha": alpha}
    features = feature_names(model)
    given = (features, deviations)
    return class_posterior(
        model, name, model.classes_, family, natural, prior, counts, settings, *given
    )


def class_posterior(
    model: Any,
    name: str,
    classes: Any,
    family: Family,
    natural: FloatArray,
    prior: FloatArray,
    counts: FloatArray,
    settings: dict[str, Any],
    features: list[str] | None,
    deviations: dict[str, float],
) -> Posterior:
    """Classes as named components, with the settings of their model."""
    names, kind = class_names(classes)
    check_shares(model)
    cls = next(c.__name__ for c in type(model).__mro__ if c.__module__.startswith("sklearn"))
    info = {
        "components": names,
        "type": kind,
        "features": features,
        "settings": settings,
        "scales": deviations,
    }
    structure, source = origin("sklearn", cls, CLASSES, {}, info)
    return Posterior(family, natural, name, prior, counts, structure, source)


def check_shares(model: Any) -> None:
    """Refuse shares of classes that are a setting."""
    if any(getattr(model, key, None) is not None for key in ("class_prior", "priors")):
        raise KLFusionError("expected shares of classes from the data, got them as a setting")


def pseudo_counts(model: Any) -> Any:
    """The smoothing, which is a Dirichlet prior."""
    alpha = np.asarray(model.alpha, dtype=np.float64)
    if not (alpha > 0).all():
        raise KLFusionError("expected alpha > 0, a proper prior")
    return alpha


def gammas(n: FloatArray, mean: FloatArray, scatter: FloatArray) -> FloatArray:
    """Normal-Gammas (c, p) of class counts (c,), means (c, d) and sums of squares (c, d)."""
    weight = _ROWS + n
    middle = mean * (n / weight)[:, None]
    between = (_ROWS * n / weight)[:, None] * mean**2
    rate = 0.5 * (_ROWS + scatter + between)
    return NormalGamma(mean.shape[1]).natural(middle, weight, 0.5 * weight, rate)


def wisharts(n: FloatArray, mean: FloatArray, scatter: FloatArray) -> FloatArray:
    """Normal-Wisharts (c, p) of class counts (c,), means (c, d) and scatters (c, d, d)."""
    d, weight = mean.shape[1], _ROWS + n
    between = (_ROWS * n / weight)[:, None, None] * mean[:, :, None] * mean[:, None, :]
    scale = _ROWS * np.eye(d) + scatter + between
    return NormalWishart(d).natural(mean * (n / weight)[:, None], weight, scale, d + weight)


def _discriminant(model: Any, name: str, data: Any) -> Posterior:
    if data is None:
        raise KLFusionError(
            "expected data=(x, y): a fitted model lacks the counts of classes; counts, means and "
            "scatter of each are computed here, and the data stay"
        )
    x, features, y = table(data, feature_names(model))
    labels = np.asarray(y)
    classes, row = np.unique(labels, return_inverse=True)
    counts = np.bincount(row).astype(np.float64)
    means = np.stack([x[row == c].mean(axis=0) for c in range(len(classes))])
    if hasattr(model, "means_"):
        check_moments("means of classes", model.means_, means, np.abs(x).max(axis=0))
    centred = x - means[row]
    scatter = np.stack([centred[row == c].T @ centred[row == c] for c in range(len(classes))])
    names = features if hasattr(data[0], "columns") else None
    family, none = NormalWishart(x.shape[1]), np.zeros((1, x.shape[1]))
    prior = wisharts(np.zeros(1), none, none[:, :, None] * none[:, None, :])[0]
    settings = {"solver": str(model.solver), "tol": float(model.tol)}
    if getattr(model, "shrinkage", None) is not None:
        raise KLFusionError("expected no shrinkage: it depends on more than class statistics")
    if isinstance(model, QuadraticDiscriminantAnalysis):
        settings["reg_param"] = float(model.reg_param)
    natural = wisharts(counts, means, scatter)
    given = (names, scales(x, features))
    return class_posterior(model, name, classes, family, natural, prior, counts, settings, *given)


def rebuild(posterior: Posterior) -> Any:
    """A fitted model, as the library fits it to the pooled data."""
    structure = posterior.structure
    assert structure is not None and posterior.counts is not None and posterior.prior is not None
    info = structure.info
    labels = classes_of(info)
    order = np.argsort(labels)  # as numpy sorts classes
    natural, counts = posterior.natural[order], np.asarray(posterior.counts)[order]
    kind = {c.__name__: c for c in _REBUILD}[info["class"]]
    model = _REBUILD[kind](posterior, natural, counts, dict(info["settings"]))
    model.classes_ = labels[order]
    if info["features"] is not None:
        model.feature_names_in_ = np.array(info["features"], dtype=object)
    return model


def _gaussian(posterior: Posterior, natural: FloatArray, n: FloatArray, settings: Any) -> Any:
    family, prior = posterior.family, np.asarray(posterior.prior)
    assert isinstance(family, NormalGamma)
    d = family.dim
    shift, rows, moment, freedom = np.split(natural - prior, [d, 2 * d, 3 * d], axis=1)
    model = GaussianNB(**settings)
    model.theta_ = shift / rows
    # Noise may leave variances worth other numbers of rows than means.
    variance = (moment / rows - model.theta_**2) * (rows / freedom)
    variance = variance * _widened(rows, freedom, n[:, None])
    whole = n @ model.theta_ / n.sum()
    spread = n @ (variance + (model.theta_ - whole) ** 2) / n.sum()
    model.epsilon_ = model.var_smoothing * float(spread.max())
    model.var_ = np.maximum(variance, 0.0) + model.epsilon_
    model.class_count_, model.class_prior_, model.n_features_in_ = n, n / n.sum(), d
    return model


def _multinomial(posterior: Posterior, natural: FloatArray, n: FloatArray, settings: Any) -> Any:
    alpha = np.array(settings["alpha"])
    model = MultinomialNB(alpha=alpha if np.ptp(alpha) > 0 else float(alpha[0]))
    model.n_features_in_ = natural.shape[1]
    model.feature_count_, model.class_count_ = natural - np.asarray(posterior.prior), n
    model._update_feature_log_prob(alpha)
    model.class_log_prior_ = np.log(n) - np.log(n.sum())
    return model


def _categorical(posterior: Posterior, natural: FloatArray, n: FloatArray, settings: Any) -> Any:
    family = posterior.family
    assert isinstance(family, Product)
    sizes = [factor.size for _, factor in family.factors]
    counts = natural - np.asarray(posterior.prior)
    model = CategoricalNB(**settings)
    model.category_count_ = np.split(counts, np.cumsum(sizes)[:-1], axis=1)
    model.n_categories_, model.class_count_ = np.array(sizes), n
    model.n_features_in_ = len(sizes)
    model._update_feature_log_prob(settings["alpha"])
    model.class_log_prior_ = np.log(n) - np.log(n.sum())
    return model


def _moments(posterior: Posterior, natural: FloatArray, n: FloatArray) -> tuple[Any, Any]:
    """Means (c, d) and covariances (c, d, d) of the classes, without the prior.

    Noise makes a posterior worth fewer rows than a class has, and not as many of its mean as of its
    covariance.
    """
    assert isinstance(posterior.family, NormalWishart)
    given = posterior.family.params(natural - np.asarray(posterior.prior))
    freedom = given["dof"]
    scale = _widened(given["kappa"], freedom, n) / freedom
    return given["mean"], given["scale_inv"] * scale[:, None, None]


def _widened(rows: FloatArray, freedom: FloatArray, n: FloatArray) -> FloatArray:
    """How much larger noise makes a variance, for predictions that are as uncertain as with it.

    The middle of the 95 % interval of a variance worth ``freedom`` rows, and the variance of a mean
    worth ``rows``, are compared with those of ``n`` rows without noise.
    """

    def square(rows: FloatArray, freedom: FloatArray) -> FloatArray:
        ends = [0.5 * freedom / gammaincinv(0.5 * freedom, share) for share in INTERVAL]
        return np.asarray(0.5 * (ends[0] + ends[1]) + 1.0 / rows)

    return square(rows, freedom) / square(n, n)


def _linear(posterior: Posterior, natural: FloatArray, n: FloatArray, settings: Any) -> Any:
    means, covariances = _moments(posterior, natural, n)
    total, (k, d) = n.sum(), means.shape
    _check_two(k)
    model = LinearDiscriminantAnalysis(**settings)
    model.priors_, model.means_, model.n_features_in_ = n / total, means, d
    model.xbar_ = model.priors_ @ means
    model.covariance_ = np.einsum("k,kij->ij", n, covariances) / total
    # Solvers divide the scatter by the number of rows, or by the degrees of freedom.
    probe = LinearDiscriminantAnalysis(solver=model.solver).fit(_PROBE, [0, 0, 1, 1])
    unbiased = 10.0 / float(probe.coef_[0, 0]) > 1.5
    within = model.covariance_ * (total / (total - k) if unbiased else 1.0)
    centred = means - model.xbar_
    between = (centred.T * model.priors_) @ centred
    values, vectors = eigh(between, within)
    first = np.argsort(values)[::-1][: min(k - 1, d)]
    model.scalings_, model._max_components = vectors[:, first], min(k - 1, d)
    model.explained_variance_ratio_ = values[first] / values[first].sum()
    coefficients = np.linalg.solve(within, means.T).T
    intercepts = np.log(model.priors_) - 0.5 * np.einsum("kd,kd->k", means, coefficients)
    if k == 2:
        coefficients, intercepts = np.diff(coefficients, axis=0), np.diff(intercepts)
    else:  # the decision of each class up to a common constant, as the library has it
        common = np.linalg.solve(within, model.xbar_)
        if model.solver == "svd":
            coefficients = coefficients - common
            intercepts = (
                np.log(model.priors_)
                - 0.5 * np.einsum("kd,kd->k", centred, np.linalg.solve(within, centred.T).T)
                - coefficients @ model.xbar_
            )
    model.coef_, model.intercept_ = coefficients, intercepts
    return model


def _quadratic(posterior: Posterior, natural: FloatArray, n: FloatArray, settings: Any) -> Any:
    means, covariances = _moments(posterior, natural, n)
    _check_two(len(means))
    model = QuadraticDiscriminantAnalysis(**settings)
    # Versions of the library divide by the number of rows, or by one less.
    probe = QuadraticDiscriminantAnalysis(store_covariance=True).fit(_PROBE, [0, 0, 1, 1])
    fewer = float(probe.covariance_[0][0, 0] > 1.5)
    model.priors_, model.means_, model.n_features_in_ = n / n.sum(), means, means.shape[1]
    values, vectors = np.linalg.eigh(covariances * (n / (n - fewer))[:, None, None])
    if not (n > means.shape[1]).all() or not (values[:, 0] > model.tol).all():
        raise KLFusionError("expected classes whose covariance matrices have full rank: reg_param=")
    regular = (1.0 - model.reg_param) * values + model.reg_param
    model.scalings_, model.rotations_ = list(regular), list(vectors)
    model.covariance_ = [(v * s) @ v.T for s, v in zip(regular, vectors, strict=True)]
    return model


def _check_two(n_classes: int) -> None:
    if n_classes < 2:
        raise KLFusionError("expected two classes in all silos, got one")


_REBUILD: dict[Any, Callable[[Posterior, FloatArray, FloatArray, Any], Any]] = {
    GaussianNB: _gaussian,
    MultinomialNB: _multinomial,
    CategoricalNB: _categorical,
    LinearDiscriminantAnalysis: _linear,
    QuadraticDiscriminantAnalysis: _quadratic,
}
