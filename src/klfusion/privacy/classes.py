"""Naive Bayes models and discriminant analyses from sums by class with noise.

Counts, sums and squares of each class get noise, and become the nearest that a class can have: no
number of rows and no variance is less than the standard deviation of its noise. The posterior
includes the noise: it is worth as many rows as would, by sampling alone, leave means or shares as
uncertain as sampling and noise do. Silos of little noise so count more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.adapters.sklearn_classes import class_posterior, gammas, wisharts
from klfusion.errors import KLFusionError
from klfusion.families import Dirichlet, Family, NormalGamma, NormalWishart, Product
from klfusion.posteriors.posterior import Posterior
from klfusion.privacy.bounds import shortened, warn_clipped
from klfusion.privacy.mechanism import Noised, Statistic
from klfusion.privacy.plan import Plan, Request

_ROOT = math.sqrt(2.0)  # for rows whose inner product is never negative
_Parts = tuple[Family, FloatArray, FloatArray, FloatArray, dict[str, Any]]


def gaussian(model: Any, request: Request) -> Plan:
    """Gaussian naive Bayes: per class the number of rows, sums and sums of squares."""
    labels, hot = request.labels()
    bounds = request.of_columns()
    u = bounds.scaled(request.x, request.where)
    z = np.hstack([np.ones((len(u), 1)), u, u**2])
    rows = hot[:, :, None] * z[:, None, :]
    largest = math.sqrt(1.0 + 2.0 * bounds.norm**2)  # squares of numbers up to 1 are no larger
    d = len(bounds.names)

    def parts(found: Noised) -> _Parts:
        sums, deviation = found.sums["classes"], found.deviations["classes"]
        n = np.maximum(sums[:, 0], deviation)
        mean = np.clip(sums[:, 1 : d + 1] / n[:, None], -1.0, 1.0)
        square = sums[:, d + 1 :] / n[:, None] - mean**2
        variance = np.clip(square, (deviation / n)[:, None], 1.0)
        noise = (deviation / n[:, None]) ** 2 * (1.0 + mean**2)  # variance of means by noise
        rows = _worth(n, variance, noise)
        scatter = rows[:, None] * variance * bounds.half**2
        none = np.zeros((1, d))
        prior = gammas(np.zeros(1), none, none)[0]
        natural = gammas(rows, bounds.centre + bounds.half * mean, scatter)
        settings = {"var_smoothing": float(model.var_smoothing)}
        return NormalGamma(d), natural, prior, n, settings

    statistics = {"classes": Statistic(rows, largest)}
    return _plan(model, request, labels, statistics, parts, bounds.described())


def discriminant(model: Any, request: Request) -> Plan:
    """A discriminant analysis: per class the number of rows, sums, and squares and products."""
    labels, hot = request.labels()
    bounds = request.of_columns()
    u = bounds.scaled(request.x, request.where)
    z = np.hstack([np.ones((len(u), 1)), u])
    rows = hot[:, :, None, None] * (z[:, :, None] * z[:, None, :])[:, None]
    if getattr(model, "shrinkage", None) is not None:
        raise KLFusionError("expected no shrinkage: it depends on more than class statistics")
    d = len(bounds.names)

    def parts(found: Noised) -> _Parts:
        sums, deviation = found.sums["classes"], found.deviations["classes"]
        n = np.maximum(sums[:, 0, 0], deviation)
        mean = np.clip(sums[:, 0, 1:] / n[:, None], -1.0, 1.0)
        covariance = sums[:, 1:, 1:] / n[:, None, None] - mean[:, :, None] * mean[:, None, :]
        values, vectors = np.linalg.eigh(covariance)
        values = np.clip(values, (deviation / n)[:, None], bounds.norm**2)
        nearest = (vectors * values[:, None, :]) @ np.swapaxes(vectors, 1, 2)
        noise = (deviation / n[:, None]) ** 2 * (0.5 + mean**2)  # off the diagonal it is halved
        rows = _worth(n, values, noise)
        scatter = rows[:, None, None] * nearest * np.outer(bounds.half, bounds.half)
        prior = wisharts(np.zeros(1), np.zeros((1, d)), np.zeros((1, d, d)))[0]
        natural = wisharts(rows, bounds.centre + bounds.half * mean, scatter)
        settings = {"solver": str(model.solver), "tol": float(model.tol)}
        if hasattr(model, "reg_param"):
            settings["reg_param"] = float(model.reg_param)
        return NormalWishart(d), natural, prior, n, settings

    gram = Statistic(rows, 1.0 + bounds.norm**2, replaced=_ROOT, symmetric=True)
    return _plan(model, request, labels, {"classes": gram}, parts, bounds.described())


def categorical(model: Any, request: Request) -> Plan:
    """Naive Bayes of categories: histograms by class; ``bounds`` has the numbers of categories."""
    labels, hot = request.labels()
    sizes = [request.bounds.get(name) for name in request.features]
    if not all(isinstance(size, int) and size >= 2 for size in sizes):
        raise KLFusionError(
            f"{request.where}: expected bounds to have the number of categories of each column, "
            f"an integer >= 2, got {dict(request.bounds)}"
        )
    numbers = [int(size) for size in sizes if size is not None]
    values = np.clip(np.rint(request.x), 0, np.array(numbers) - 1)
    warn_clipped((values != request.x).any(axis=1), request.where)
    columns = [values[:, [k]] == np.arange(size) for k, size in enumerate(numbers)]
    table = np.hstack(columns).astype(np.float64)
    alpha = float(model.alpha)
    family = Product(**{f"feature {k}": Dirichlet(size) for k, size in enumerate(numbers)})

    def parts(found: Noised) -> _Parts:
        n = np.maximum(found.sums["rows"], found.deviations["rows"])
        ends, deviation = np.cumsum(numbers)[:-1], found.deviations["counts"]
        each = np.split(found.sums["counts"], ends, axis=1)
        counts = np.hstack([_counts(own, deviation, alpha) for own in each])
        prior = np.full(family.size, alpha)
        return family, counts + prior, prior, n, {"alpha": alpha}

    statistics = {
        "rows": Statistic(hot, 1.0, replaced=_ROOT),
        "counts": Statistic(
            hot[:, :, None] * table[:, None], math.sqrt(len(numbers)), len(numbers), _ROOT
        ),
    }
    public = {"bounds": dict(zip(request.features, numbers, strict=True))}
    return _plan(model, request, labels, statistics, parts, public)


def multinomial(model: Any, request: Request) -> Plan:
    """Naive Bayes of counts: sums by class of rows whose norm is at most ``norm``."""
    labels, hot = request.labels()
    if request.norm is None:
        raise KLFusionError(f"{request.where}: expected norm, the largest norm of a row of counts")
    if not (request.x >= 0).all():
        raise KLFusionError(f"{request.where}: expected counts >= 0")
    norm = float(request.norm)
    rows = shortened(request.x, norm, request.where)
    family = Dirichlet(request.x.shape[1])
    prior = np.broadcast_to(np.asarray(model.alpha, dtype=np.float64), family.size).copy()

    def parts(found: Noised) -> _Parts:
        n = np.maximum(found.sums["rows"], found.deviations["rows"])
        counts = _counts(found.sums["counts"], found.deviations["counts"], prior)
        return family, counts + prior, prior, n, {"alpha": prior.tolist()}

    statistics = {
        "rows": Statistic(hot, 1.0, replaced=_ROOT),
        "counts": Statistic(hot[:, :, None] * rows[:, None], norm, replaced=_ROOT),
    }
    return _plan(model, request, labels, statistics, parts, {"norm": norm})


def _worth(n: FloatArray, variance: FloatArray, noise: FloatArray) -> FloatArray:
    """Rows (c,) that leave means (c, d) as uncertain as sampling ``n`` rows and noise do."""
    by_sampling = variance.sum(axis=1)
    return np.asarray(n * by_sampling / (by_sampling + n * noise.sum(axis=1)))


def _counts(sent: FloatArray, deviation: float, prior: Any) -> FloatArray:
    """Counts (c, k) that leave shares as uncertain as sampling and noise do."""
    counts = np.maximum(sent, 0.0)
    n = np.maximum(counts.sum(axis=1, keepdims=True), deviation)
    share = (counts + prior) / (counts + prior).sum(axis=1, keepdims=True)
    # A share is a count over the sum of all; noise of both.
    noise = (deviation / n) ** 2 * ((1.0 - share) ** 2 + (share.shape[1] - 1) * share**2)
    worth = _worth(n[:, 0], share * (1.0 - share), noise)
    return np.asarray(counts * (worth[:, None] / n))


def _plan(
    model: Any,
    request: Request,
    labels: list[Any],
    statistics: dict[str, Statistic],
    parts: Callable[[Noised], _Parts],
    public: dict[str, Any],
) -> Plan:
    def posterior(found: Noised) -> Posterior:
        features = [*request.features] if request.named else None
        return class_posterior(model, request.name, labels, *parts(found), features, {})

    return Plan(statistics, posterior, {**public, "classes": labels})
