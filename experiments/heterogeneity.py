"""How often 95 % intervals of shared and of varying coefficients cover the truth.

Silos fit logistic regressions of 150 to 450 rows. Each has its own intercept. The coefficient of
``age`` is the same at all silos; that of ``dose`` varies around its mean with deviation ``tau``.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from rich.console import Console
from rich.table import Table
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

import klfusion as kf
from klfusion.pooling.meta_analysis import ConfidenceDistribution, paule_mandel

DESCRIPTION = "coverage of intervals of shared and varying coefficients of logistic regressions"
FIRST_SEED = 26_000
N_SILOS = (3, 5, 10, 30)
TAUS = (0.0, 0.1, 0.2, 0.5)
ROWS = (150, 450)  # per silo, between
MEAN = {"age": 0.5, "dose": -0.8}
INTERCEPT_SD = 0.7  # of the silos' intercepts
PRIOR_SD = 10.0
QUANTILE = 1.959964  # of the Normal
LIMITS_SEED = 27_000
LIMITS = np.array([0.5, 0.75, 0.8, 0.85, 0.9])  # confidences of limits of the variation
LIMIT_SILOS = (2, 3, 5, 10, 30)
LIMIT_TAUS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)
INFORMATION = 0.15  # of a row about the coefficient of the dose


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Command-line options."""
    parser.add_argument("--runs", type=int, default=1000, help="runs per setting")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limits", action="store_true", help="compare limits of the variation")


def main(args: argparse.Namespace, console: Console) -> None:
    """Run the grid, print a table, and write ``heterogeneity.json``."""
    if args.limits:
        _print(console, limits(args.runs))
        return
    rows = []
    for n_silos, tau in product(N_SILOS, TAUS):
        seeds = range(FIRST_SEED, FIRST_SEED + args.runs)
        found = Parallel(n_jobs=args.jobs)(delayed(run)(n_silos, tau, seed) for seed in seeds)
        keys = found[0].keys()
        share = {key: float(np.mean([one[key] for one in found])) for key in keys}
        rows.append({"silos": n_silos, "tau": tau, **share})
    _print(console, rows)
    (args.out / "heterogeneity.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")


def _print(console: Console, rows: list[dict[str, Any]]) -> None:
    table = Table(title="coverage of 95 % intervals", title_justify="left")
    for key in rows[0]:
        table.add_column(key, justify="right")
    for row in rows:
        table.add_row(
            *(f"{v:.3f}" if k not in ("silos", "tau") else f"{v:g}" for k, v in row.items())
        )
    console.print(table)


def limits(runs: int) -> list[dict[str, Any]]:
    """Coverage of one silo's number, with limits of ``tau2`` of several confidences.

    Estimates are Normal, with the errors of the regressions' coefficients of the dose.
    """
    rng, rows = np.random.default_rng(LIMITS_SEED), []
    for n_silos, tau in product(LIMIT_SILOS, LIMIT_TAUS):
        covered = np.zeros(len(LIMITS))
        for _ in range(runs):
            variances: Any = 1.0 / (INFORMATION * rng.integers(*ROWS, size=n_silos))
            true = tau * rng.normal(size=n_silos)
            estimates: Any = true + np.sqrt(variances) * rng.normal(size=n_silos)
            found = ConfidenceDistribution.of(estimates, variances)
            estimate = paule_mandel(estimates, variances)
            middle = _own(estimates, variances, np.array([estimate]))[0]
            wide = _own(estimates, variances, np.interp(LIMITS, found.below, found.tau2))[1]
            covered += np.abs(middle - true[0]) <= QUANTILE * wide
        shares = {f"limit {level:g}": n / runs for level, n in zip(LIMITS, covered, strict=True)}
        rows.append({"silos": n_silos, "tau": tau, **shares})
    return rows


def _own(estimates: Any, variances: Any, tau2: Any) -> tuple[Any, Any]:
    """Mean and deviation of the first silo's number, at each ``tau2``."""
    weights = 1.0 / (variances[1:, None] + tau2)
    spread = tau2 + 1.0 / weights.sum(axis=0)
    others = estimates[1:] @ weights / weights.sum(axis=0)
    precision = 1.0 / variances[0] + 1.0 / spread
    return (estimates[0] / variances[0] + others / spread) / precision, precision**-0.5


def run(n_silos: int, tau: float, seed: int) -> dict[str, bool]:
    """Which intervals of one simulation cover the truth."""
    rng = np.random.default_rng([seed, n_silos, round(10 * tau)])
    silos, doses = [], []
    with threadpool_limits(1):
        for j in range(n_silos):
            own, dose = _silo(rng, tau, f"silo-{j}")
            silos.append(own)
            doses.append(dose)
        product_, varying = (kf.fuse(silos, pooling=p) for p in ("product", "hierarchical"))
        dose = varying.heterogeneity()["dose"]
        new = MEAN["dose"] + tau * rng.normal()
        first = _interval(varying.site("silo-0"), "dose")
    low, high = dose.prediction_interval
    return {
        "age, product": _covers(product_.posterior, "age", MEAN["age"]),
        "age, hierarchical": _covers(varying.posterior, "age", MEAN["age"]),
        "mean dose, hierarchical": _covers(varying.posterior, "dose", MEAN["dose"]),
        "mean dose, meta-analysis": dose.interval[0] <= MEAN["dose"] <= dose.interval[1],
        "dose of a new silo": low <= new <= high,
        "dose of one silo": first[0] <= doses[0] <= first[1],
    }


def _silo(rng: np.random.Generator, tau: float, name: str) -> tuple[kf.Posterior, float]:
    n, dose = int(rng.integers(*ROWS)), MEAN["dose"] + tau * rng.normal()
    x = pd.DataFrame(rng.normal(size=(n, 2)), columns=["age", "dose"])
    predictor = INTERCEPT_SD * rng.normal() + MEAN["age"] * x["age"] + dose * x["dose"]
    y = (rng.random(n) < expit(predictor)).astype(int)
    settings: dict[str, Any] = {"prior_sd": PRIOR_SD, "local": ["intercept"]}
    return kf.extract(LogisticRegression(), name=name, data=(x, y), **settings), dose


def _interval(posterior: kf.Posterior, name: str) -> tuple[float, float]:
    assert posterior.structure is not None
    k = posterior.structure.info["coordinates"].index(name)
    params = posterior.params()
    mean, deviation = params["mean"][0][k], np.sqrt(params["covariance"][0][k, k])
    return float(mean - QUANTILE * deviation), float(mean + QUANTILE * deviation)


def _covers(posterior: kf.Posterior, name: str, truth: float) -> bool:
    low, high = _interval(posterior, name)
    return low <= truth <= high
