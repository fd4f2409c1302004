"""Linear and logistic regressions from sums of bounded rows with noise.

A linear regression's sums are those of its likelihood. A logistic regression's are the first and
second derivatives of its log-likelihood at a public point: one step of Newton's method. The point
is zero, or in a second round the fusion of the first. No optimiser sees the data, so no tolerance
of one enters the promise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import expit

from klfusion._utils.arrays import ROUNDING, FloatArray
from klfusion._utils.checks import naming_silo
from klfusion._utils.text import few
from klfusion.adapters._regressions import numbers_of
from klfusion.errors import KLFusionError
from klfusion.pooling.noisy_sums import INTERCEPT, KEY, NoisySums, noise_aware
from klfusion.posteriors.coefficients import check_local, prior_precision, regression
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure.regression import Information
from klfusion.privacy.bounds import Bounds
from klfusion.privacy.mechanism import Noised, Statistic
from klfusion.privacy.plan import Plan, Request, library_class

OUTCOME = "y"  # key in bounds
# Shares of the budget: `experiments.privacy` compares others.
SHARES = {"gram": 0.2, "moment": 0.7, "squares": 0.1}


def linear(model: Any, request: Request) -> Plan:
    """A linear regression, from its sums of squares and products."""
    if OUTCOME in request.features:
        raise KLFusionError(
            f"{request.where}: expected no column called {OUTCOME!r}, the key of the outcome's "
            "bounds; rename it"
        )
    bounds, own = request.of_columns(), Bounds.of(request.bounds, [OUTCOME], None, request.where)
    with naming_silo(request.name):
        y = numbers_of(request.y)[:, None]
    if not np.isfinite(y).all():
        raise KLFusionError(f"{request.where}: expected finite numbers in y")
    z, t = _rows(request, bounds), own.scaled(y, request.where)
    length = 1.0 + bounds.norm**2
    statistics = {
        "gram": _gram(z, length, 1.0),
        "moment": Statistic(z * t, math.sqrt(length), SHARES["moment"]),
        "squares": Statistic(t**2, 1.0, SHARES["squares"], replaced=1.0),
    }
    if request.at is not None:
        raise KLFusionError("at: expected none, for the sums of a linear regression need no point")
    settings = {"likelihood": "normal"}
    public = {
        **bounds.described(),
        "bounds": bounds.described()["bounds"] | own.described()["bounds"],
    }
    outcome = (float(own.half[0]), float(own.centre[0]))
    return _plan(model, request, statistics, bounds, outcome, settings, public)


def logistic(model: Any, request: Request) -> Plan:
    """A logistic regression of two classes, from one step of Newton's method."""
    labels, hot = request.labels()
    if len(labels) != 2:
        raise KLFusionError(f"{request.where}: expected two classes, got {len(labels)}")
    bounds = request.of_columns()
    z, length = _rows(request, bounds), 1.0 + bounds.norm**2
    point = np.zeros(z.shape[1])
    if request.at is not None:
        given = np.array([request.at.get(name, 0.0) for name in (INTERCEPT, *bounds.names)])
        point = np.linalg.solve(_matrix(bounds, 1.0), given)
    probability = expit(z @ point)[:, None]
    # No linear predictor is larger than this, so no residual is larger than its probability.
    furthest = float(expit(math.sqrt(length) * np.linalg.norm(point)))
    weight = probability * (1.0 - probability)
    residual = Statistic(
        z * (hot[:, 1:] - probability), furthest * math.sqrt(length), SHARES["moment"]
    )
    statistics = {"gram": _gram(z, length, 0.25, weight), "moment": residual}
    settings = {"likelihood": "logistic", "classes": labels}
    outcome = (1.0, 0.0)
    return _plan(model, request, statistics, bounds, outcome, settings, bounds.described(), point)


def _rows(request: Request, bounds: Bounds) -> FloatArray:
    """Rows ``(1, u)`` in units of the bounds."""
    u = bounds.scaled(request.x, request.where)
    return np.hstack([np.ones((len(u), 1)), u])


def _gram(z: FloatArray, length: float, largest: float, weight: Any = 1.0) -> Statistic:
    rows = (weight * z)[:, :, None] * z[:, None, :]
    root = math.sqrt(2.0)  # outer products have no negative inner product
    return Statistic(rows, largest * length, SHARES["gram"], replaced=root, symmetric=True)


def _matrix(bounds: Bounds, scale: float) -> FloatArray:
    """From coefficients in units of the bounds to those of the data."""
    matrix = np.diag(np.concatenate([[scale], scale / bounds.half]))
    matrix[0, 1:] = -scale * bounds.centre / bounds.half
    return matrix


def _plan(
    model: Any,
    request: Request,
    statistics: dict[str, Statistic],
    bounds: Bounds,
    outcome: tuple[float, float],
    info: dict[str, Any],
    public: dict[str, Any],
    point: FloatArray | None = None,
) -> Plan:
    """The site sends sums with noise, public settings, and the posterior given them."""
    names, (scale, origin) = [INTERCEPT, *bounds.names], outcome
    used = names if model.fit_intercept else names[1:]
    if not model.fit_intercept and (bounds.centre.any() or origin):
        raise KLFusionError(f"{request.where}: without intercept expected bounds that include 0")
    prior = prior_precision(used, request.prior_sd, request.where)
    if not (prior > 0).all():
        raise KLFusionError(
            f"{request.where}: expected prior_sd of all coefficients, for noise may leave nothing "
            "known of one"
        )
    check_local(request.local, used, request.where)
    reach = (np.concatenate([[1.0], bounds.half]) / scale)[-len(used) :] / np.sqrt(prior)
    fine = (reach > ROUNDING) & (reach < ROUNDING**-0.5)  # squares are one over it at most
    if not fine.all():
        odd = [name for name, own in zip(used, fine, strict=True) if not own]
        raise KLFusionError(
            f"{request.where}: expected prior_sd of the size of what bounds allow, got one of "
            f"{few(odd)} that floats cannot hold beside them"
        )
    matrix, none = _matrix(bounds, scale), np.zeros(len(bounds.names))
    start = np.concatenate([[origin], none])  # where the coefficients are that sums are relative to
    fixed = {
        "matrix": matrix,
        "origin": start if point is None else start + matrix @ point,
        "largest": np.concatenate([[1.0], none + min(1.0, bounds.norm**2)]),
        "prior": prior if model.fit_intercept else np.concatenate([[-1.0], prior]),
    }

    def posterior(found: Noised) -> Posterior:
        arrays: dict[str, Any] = {
            f"{KEY}.{key}": np.squeeze(value) for key, value in {**found.sums, **fixed}.items()
        }
        settings = {
            "package": "sklearn",
            "class": library_class(model),
            "fit_intercept": bool(model.fit_intercept),
            "columns": used,
            KEY: {"columns": names, "deviations": dict(found.deviations)},
            **info,
        }
        sums = NoisySums.read(request.name, request.local, settings, arrays)
        mean, covariance, order, deviation, *_ = noise_aware((sums,))
        rows = [order.index(name) for name in used]
        n: float | None = sums.mass
        if info["likelihood"] == "normal":
            arrays |= {"noise": scale * deviation, "n": n}
        else:  # at zero each row has the weight 1/4; elsewhere weights differ
            n = 4.0 * sums.mass if request.at is None else None
        own = Information.of_moments(mean[rows], covariance[np.ix_(rows, rows)])
        where = (used, request.name, request.local)
        return regression(own, np.diag(prior), *where, n, settings, arrays)

    return Plan(statistics, posterior, public)
