"""Gaussian classes from sums with noise: intervals of means and variances, by bounds and sites.

Two classes and two columns: means are drawn with a deviation of 0.7, deviations are near one, and
columns correlate by 0.4. Bounds hold the data closely, or are wider. Noise has seeds.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.stats import gamma, norm
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.naive_bayes import GaussianNB

import klfusion as kf
from klfusion.pooling.noisy_sums import PriorWarning
from klfusion.privacy.mechanism import seeds_allowed

ROWS = 400
BOUND = 5.0
WIDTHS = (1.0, 3.0, 10.0)
SITES = (1, 5)
MODELS: dict[str, Any] = {
    "naive Bayes": GaussianNB(),
    "discriminant analysis": QuadraticDiscriminantAnalysis(),
}
SHARE = {"naive Bayes": 1.0, "discriminant analysis": 0.25}  # of repetitions: draws take time


def study(repeats: int, epsilons: tuple[float, ...], first: int) -> dict[str, dict[str, float]]:
    """Shares of 95 % intervals of means and of variances that hold the truth."""
    out = {}
    for kind in MODELS:
        for sites in SITES:
            for width in WIDTHS:
                row = {}
                for epsilon in epsilons:
                    seeds = range(first, first + max(int(repeats * SHARE[kind]), 1))
                    found = [_one(kind, sites, width, epsilon, seed) for seed in seeds]
                    means, variances = np.mean(found, axis=0)
                    row[f"means, epsilon {epsilon:g}"] = float(means)
                    row[f"variances, epsilon {epsilon:g}"] = float(variances)
                out[f"{kind}, {sites} sites, bounds x {width:g}"] = row
    return out


def _one(kind: str, sites: int, width: float, epsilon: float, seed: int) -> tuple[float, float]:
    """Shares of the four means and of the four variances of a fusion."""
    rng = np.random.default_rng([seed, 31])
    mean, deviation = 0.7 * rng.normal(size=(2, 2)), np.exp(0.3 * rng.normal(size=(2, 2)))
    root = np.linalg.cholesky([[1.0, 0.4], [0.4, 1.0]])
    bounds = dict.fromkeys(["x0", "x1"], (-width * BOUND, width * BOUND))
    files = []
    with seeds_allowed(), warnings.catch_warnings():
        warnings.simplefilter("ignore", PriorWarning)
        for site in range(sites):
            y = rng.integers(2, size=ROWS)
            x = mean[y] + deviation[y] * (rng.normal(size=(ROWS, 2)) @ root.T)
            files.append(
                kf.privatize(
                    MODELS[kind], name=f"site {site}", data=(x, y), epsilon=epsilon, delta=1e-5,
                    bounds=bounds, classes=[0, 1], random_state=rng,
                )
            )  # fmt: skip
        found = kf.fuse(files).posterior.params()
    if kind == "naive Bayes":
        kappa, shape, rate = (found[key] for key in ("kappa", "shape", "rate"))
    else:  # of one column of a Wishart matrix
        kappa, shape = found["kappa"][:, None], 0.5 * (found["dof"][:, None] - 1.0)
        rate = 0.5 * np.einsum("kii->ki", found["scale_inv"])
    off = np.abs(found["mean"] - mean) / np.sqrt(rate / (shape * kappa))
    low, high = (rate / gamma.ppf(p, shape) for p in (0.975, 0.025))
    variance = deviation**2
    inside = (low <= variance) & (variance <= high)
    return float(np.mean(off <= norm.ppf(0.975))), float(inside.mean())
