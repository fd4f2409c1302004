"""Bounds that are wider than the data: intervals of linear regressions from sums with noise.

Columns lie about zero, or far from it as ages do. Effects are drawn from a Normal distribution of
deviation one; their prior has a deviation of five. Noise has seeds.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import norm
from sklearn.linear_model import LinearRegression

import klfusion as kf
from klfusion.pooling.noisy_sums import NoisySums, noise_aware
from klfusion.privacy.mechanism import seeds_allowed

ROWS = 2000
WIDTHS = (1.0, 3.0, 10.0)  # of the bounds, relative to bounds that hold the data closely
CENTRES = (0.0, 2.0)  # of columns, whose deviation is 0.4
PRIOR_SD = 5.0


def study(repeats: int, epsilons: tuple[float, ...], first: int) -> dict[str, dict[str, float]]:
    """Share of 95 % intervals that hold the truth, and median deviations of effects."""
    out = {}
    for centre in CENTRES:
        for width in WIDTHS:
            row = {}
            for epsilon in epsilons:
                seeds = range(first, first + repeats)
                found = [_one(centre, width, epsilon, seed) for seed in seeds]
                row[f"coverage, epsilon {epsilon:g}"] = float(np.mean([held for held, _ in found]))
                row[f"deviation, epsilon {epsilon:g}"] = float(np.median([sd for _, sd in found]))
            out[f"columns about {centre:g}, bounds x {width:g}"] = row
    return out


def _one(centre: float, width: float, epsilon: float, seed: int) -> tuple[float, float]:
    """Of one site: the share of intervals that hold the truth, mean deviation of effects."""
    rng = np.random.default_rng([seed, 29])
    theta = rng.normal(size=3)
    x = centre + np.clip(0.4 * rng.normal(size=(ROWS, 2)), -1.0, 1.0)
    y = theta[0] + x @ theta[1:] + 0.5 * rng.normal(size=ROWS)
    largest = width * (1.0 + centre)
    pair = (0.0 if centre else -largest, largest)
    with seeds_allowed():
        site = kf.privatize(
            LinearRegression(), name="a", data=(x, y), epsilon=epsilon, delta=1e-5,
            bounds={"x0": pair, "x1": pair, "y": (-10.0 * width, 10.0 * width)},
            prior_sd=PRIOR_SD, random_state=rng,
        )  # fmt: skip
    sums = NoisySums.of(site)
    assert sums is not None
    found = noise_aware((sums,))
    deviations = np.sqrt(np.diag(found.covariance))
    held = np.abs(found.mean - theta) <= norm.ppf(0.975) * deviations
    return float(held.mean()), float(deviations[1:].mean())
