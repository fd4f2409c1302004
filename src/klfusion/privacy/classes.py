"""Naive Bayes models and discriminant analyses from sums by class with noise.

The posterior includes the noise. That of shares is worth as many rows as would, by sampling alone,
leave them as uncertain as sampling and noise do; silos of little noise so count more. That of
Gaussian classes is `NoisyClasses`. No number of rows is less than the deviation of its noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion._utils.checks import is_integer
from klfusion._utils.text import brief
from klfusion.adapters._library import class_names
from klfusion.adapters.sklearn_classes import check_shares, class_posterior, pseudo_counts
from klfusion.errors import KLFusionError
from klfusion.families import Dirichlet, Family, NormalGamma, NormalWishart, Product
from klfusion.pooling.noisy_classes import KEY, NoisyClasses
from klfusion.posteriors.posterior import Posterior
from klfusion.privacy.bounds import Bounds, shortened, warn_clipped
from klfusion.privacy.mechanism import Noised, Statistic
from klfusion.privacy.plan import Plan, Request

_ROOT = math.sqrt(2.0)  # for rows whose inner product is never negative
_SETTINGS = (("var_smoothing", float), ("solver", str), ("tol", float), ("reg_param", float))
_Sums = tuple[dict[str, FloatArray], dict[str, Any]]  # arrays and settings of a file
_NONE: _Sums = ({}, {})
_Parts = tuple[Family, FloatArray, FloatArray, FloatArray, dict[str, Any], _Sums]


def gaussian(model: Any, request: Request) -> Plan:
    """Gaussian naive Bayes: per class the number of rows, sums and sums of squares."""
    labels, hot = request.labels()
    bounds = request.of_columns()
    u = bounds.scaled(request.x, request.where)
    z = np.hstack([np.ones((len(u), 1)), u, u**2])
    rows = hot[:, :, None] * z[:, None, :]
    largest = math.sqrt(1.0 + 2.0 * bounds.norm**2)  # squares of numbers up to 1 are no larger
    statistics = {"classes": Statistic(rows, largest)}
    parts = _gaussians(NormalGamma(len(bounds.names)), bounds, model)
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
    parts = _gaussians(NormalWishart(len(bounds.names)), bounds, model)
    gram = Statistic(rows, 1.0 + bounds.norm**2, replaced=_ROOT, symmetric=True)
    return _plan(model, request, labels, {"classes": gram}, parts, bounds.described())


def _gaussians(family: Family, bounds: Bounds, model: Any) -> Callable[[Noised], _Parts]:
    """Gaussian classes given their sums, which the file has, too: a fusion adds them up."""

    def parts(found: Noised) -> _Parts:
        sums, deviation = found.sums["classes"], found.deviations["classes"]
        public = {"deviation": deviation, "largest": min(1.0, bounds.norm**2)}
        own = NoisyClasses(
            sums, np.full(len(sums), deviation**2), bounds.centre, bounds.half, public["largest"]
        )
        n = np.maximum(sums.reshape(len(sums), -1)[:, 0], deviation)
        settings = {k: cast(getattr(model, k)) for k, cast in _SETTINGS if hasattr(model, k)}
        kept = own.arrays(), {KEY: public}
        return family, own.posterior(), own.nothing(), n, settings, kept

    return parts


def categorical(model: Any, request: Request) -> Plan:
    """Naive Bayes of categories: histograms by class; ``bounds`` has the numbers of categories."""
    labels, hot = request.labels()
    sizes = [request.bounds.get(name) for name in request.features]
    if not all(size is not None and is_integer(size) and size >= 2 for size in sizes):
        raise KLFusionError(
            f"{request.where}: expected bounds to have the number of categories of each column, "
            f"an integer >= 2, got {brief(dict(request.bounds))}"
        )
    numbers = [int(size) for size in sizes if size is not None]
    values = np.clip(np.rint(request.x), 0, np.array(numbers) - 1)
    warn_clipped((values != request.x).any(axis=1), request.where)
    columns = [values[:, [k]] == np.arange(size) for k, size in enumerate(numbers)]
    table = np.hstack(columns).astype(np.float64)
    alpha = float(pseudo_counts(model))
    family = Product(**{f"feature {k}": Dirichlet(size) for k, size in enumerate(numbers)})

    def parts(found: Noised) -> _Parts:
        n = np.maximum(found.sums["rows"], found.deviations["rows"])
        ends, deviation = np.cumsum(numbers)[:-1], found.deviations["counts"]
        each = np.split(found.sums["counts"], ends, axis=1)
        counts = np.hstack([_counts(own, deviation, alpha) for own in each])
        prior = np.full(family.size, alpha)
        return family, counts + prior, prior, n, {"alpha": alpha}, _NONE

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
    prior = np.broadcast_to(pseudo_counts(model), family.size).copy()

    def parts(found: Noised) -> _Parts:
        n = np.maximum(found.sums["rows"], found.deviations["rows"])
        counts = _counts(found.sums["counts"], found.deviations["counts"], prior)
        return family, counts + prior, prior, n, {"alpha": prior.tolist()}, _NONE

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
    check_shares(model)
    class_names(labels)

    def posterior(found: Noised) -> Posterior:
        features = [*request.features] if request.named else None
        family, natural, prior, n, settings, (arrays, info) = parts(found)
        given = (family, natural, prior, n, settings, features)
        made = class_posterior(model, request.name, labels, *given, {})
        assert made.structure is not None
        structure = replace(made.structure, arrays=arrays, info={**made.structure.info, **info})
        return replace(made, structure=structure)

    return Plan(statistics, posterior, {**public, "classes": labels})
