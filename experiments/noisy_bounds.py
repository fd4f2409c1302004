"""Bounds that are wider than the data: intervals of regressions from sums with noise.

Columns lie about zero, or far from it as ages do. Linear regressions have an intercept or none.
Effects are drawn from their prior, so that intervals should hold 95 % however much noise there is.
Intervals of a logistic regression are for one step of Newton's method, so that the truth is the
step of a large table. Noise has seeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import norm
from sklearn.linear_model import LinearRegression, LogisticRegression

import klfusion as kf
from klfusion.pooling.noisy_sums import NoisySums, noise_aware
from klfusion.privacy.mechanism import seeds_allowed

ROWS = 2000
MANY = 200_000  # rows of the table whose step is the truth
WIDTHS = (1.0, 3.0, 10.0)  # of the bounds, relative to bounds that hold the data closely
CENTRES = (0.0, 2.0)  # of columns, whose deviation is 0.4
LINEAR, THROUGH_ZERO, LOGISTIC = "linear", "linear without intercept", "logistic"
EFFECTS = {LINEAR: 1.0, THROUGH_ZERO: 1.0, LOGISTIC: 0.3}  # deviations, beforehand and true
Floats = NDArray[np.float64]


def study(repeats: int, epsilons: tuple[float, ...], first: int) -> dict[str, dict[str, float]]:
    """Share of 95 % intervals that hold the truth, and median deviations of effects."""
    out = {}
    for kind in EFFECTS:
        for centre in CENTRES:
            for width in WIDTHS:
                row = {}
                for epsilon in epsilons:
                    seeds = range(first, first + repeats)
                    found = [_one(kind, centre, width, epsilon, seed) for seed in seeds]
                    held, deviation = (np.array(own) for own in zip(*found, strict=True))
                    row[f"coverage, epsilon {epsilon:g}"] = float(held.mean())
                    row[f"deviation, epsilon {epsilon:g}"] = float(np.median(deviation))
                out[f"{kind}, columns about {centre:g}, bounds x {width:g}"] = row
    return out


def _one(kind: str, centre: float, width: float, epsilon: float, seed: int) -> tuple[float, float]:
    """Of one site: the share of intervals that hold the truth, mean deviation of effects."""
    sums, theta = simulated(kind, centre, width, epsilon, seed)
    found = noise_aware((sums,))
    deviations = np.sqrt(np.diag(found.covariance))
    held = np.abs(found.mean - theta) <= norm.ppf(0.975) * deviations
    return float(held.mean()), float(deviations[-2:].mean())


def simulated(
    kind: str, centre: float, width: float, epsilon: float, seed: int
) -> tuple[NoisySums, Floats]:
    """Sums of one site, and the coefficients that intervals should hold."""
    rng = np.random.default_rng([seed, 29])
    theta = EFFECTS[kind] * rng.normal(size=3)
    theta[0] *= kind != THROUGH_ZERO
    x = _columns(centre, ROWS, rng)
    largest = width * (1.0 + centre)
    pair = (0.0 if centre else -largest, largest)
    bounds = {"x0": pair, "x1": pair}
    how: dict[str, Any] = {"epsilon": epsilon, "delta": 1e-5, "prior_sd": EFFECTS[kind]}
    if kind == LOGISTIC:
        y = (rng.uniform(size=ROWS) < expit(theta[0] + x @ theta[1:])).astype(int)
        model, how["classes"] = LogisticRegression(), [0, 1]
        theta = _step(theta, _columns(centre, MANY, rng))
    else:
        y = theta[0] + x @ theta[1:] + 0.5 * rng.normal(size=ROWS)
        model = LinearRegression(fit_intercept=kind == LINEAR)
        bounds["y"] = (-10.0 * width, 10.0 * width)
    with seeds_allowed():
        site = kf.privatize(model, name="a", data=(x, y), bounds=bounds, random_state=rng, **how)
    sums = NoisySums.of(site)
    assert sums is not None
    return sums, theta[1:] if kind == THROUGH_ZERO else theta


def _columns(centre: float, rows: int, rng: np.random.Generator) -> Floats:
    return centre + np.clip(0.4 * rng.normal(size=(rows, 2)), -1.0, 1.0)


def _step(theta: Floats, x: Floats) -> Floats:
    """One step of Newton's method from zero, without noise of labels."""
    z = np.column_stack([np.ones(len(x)), x])
    return np.asarray(np.linalg.solve(0.25 * z.T @ z, z.T @ (expit(z @ theta) - 0.5)))
