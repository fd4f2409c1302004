"""Sums with noise: heart disease at four hospitals, coverage of intervals, audits by canaries.

Heart disease has FLamby's split, a budget per hospital at delta 1e-4, and standardisation by
rounded constants: no number is computed from the data. Coverage is that of simulated regressions at
20 sites, coefficients drawn from the prior. Noise of the simulations has seeds, by the test mode of
the mechanism. Audits play the game of the definition with the mechanism's own random numbers: is
the canary there or not? Bounds on epsilon have 95 % confidence, by Clopper and Pearson.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from experiments import data, hospitals_data, noisy_bounds, noisy_classes, tables
from experiments.canaries import gaussian_bound, lower_bound, play_count, play_regression
from experiments.hospitals_data import FLAMBY_SEED, Hospitals, Split
from experiments.noisy_coverage import FIRST, SITES, coverage, sampler, sums_of, work
from klfusion.pooling.noisy_sums import NoisySums, of_silo
from klfusion.privacy import regressions
from klfusion.privacy.bounds import ClippedWarning
from klfusion.privacy.mechanism import Budget, Noised, noised, seeds_allowed
from klfusion.privacy.plan import Request

DESCRIPTION = "accuracy, coverage and audits of sums with noise, by epsilon"
HEART_DELTA = 1e-4
EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
# Means and standard deviations of columns, agreed on before; none is computed from the data.
STANDARD = {"age": (54, 9), "pressure": (132, 18), "cholesterol": (220, 80), "rate": (140, 25)}
STANDARD |= {"depression": (1, 1)}
HEART_NORM, HEART_SD, INTERCEPT_SD = 1.5, 1.0, 1.0  # set on other splits; see the page
OTHER_SPLITS = range(4)
FLAMBY = {None: 0.7125, 1.0: 0.685, 0.1: 0.606}  # published, delta 1e-4
PARTS = ("heart", "coverage", "bounds", "classes", "shares", "audits", "sampler", "work")
Floats = NDArray[np.float64]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Command-line options."""
    data.add_argument(parser)
    parser.add_argument("--quick", action="store_true", help="a few draws of each")
    parser.add_argument("--rows", type=int, nargs="*", default=[100, 400], help="of coverage")
    parser.add_argument("--epsilons", type=float, nargs="*", default=EPSILONS)
    parser.add_argument("--draws", type=int, help="of the noise: of heart disease and coverage")
    parser.add_argument("--first", type=int, default=FIRST, help="seed of noise and tables")
    parser.add_argument("--parts", nargs="*", default=PARTS, help="some of " + ", ".join(PARTS))


def main(args: argparse.Namespace, console: Console) -> None:
    """Run all, print tables, and write ``privacy.json``."""
    warnings.simplefilter("ignore", ClippedWarning)
    few = args.quick
    results: dict[str, Any] = {}
    with threadpool_limits(1):
        if "heart" in args.parts:
            results["heart"] = heart(
                args.data_dir, args.draws or (3 if few else 200), args.epsilons, args.first
            )
        if "coverage" in args.parts:
            for rows in args.rows:
                title = f"coverage, {SITES} sites of {rows} rows"
                draws = args.draws or (10 if few else 1200)
                results[title] = coverage(rows, draws, args.epsilons, args.first)
        if "bounds" in args.parts:
            repeats = args.draws or (2 if few else 100)
            results["bounds"] = noisy_bounds.study(repeats, (1.0, 10.0), args.first)
        if "classes" in args.parts:
            repeats = args.draws or (2 if few else 100)
            results["classes"] = noisy_classes.study(repeats, (1.0, 10.0), args.first)
        if "sampler" in args.parts:
            results |= sampler(args.draws or (1 if few else 6))
        if "work" in args.parts:
            results["work of the sampler"] = work(args.draws or (2 if few else 50))
        if "shares" in args.parts:
            results["shares"] = shares(args.data_dir, 2 if few else 24)
        if "audits" in args.parts:
            results["audits"] = audits(2 if few else 20, 1_000 if few else 10_000, args.epsilons)
    for title, found in results.items():
        console.print(tables.by_name(title, found, "", ".4f"))
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "privacy.json"
    path.write_text(json.dumps(results, indent=1), encoding="utf-8")


# Heart disease ----------------------------------------------------------------------------------


def heart_split(hospitals: Hospitals, seed: int) -> Split:
    """FLamby's rows of a seed, columns standardised by constants."""
    frames = {}
    for name, own in hospitals.items():
        x = own.x.copy()
        for column, (mean, deviation) in STANDARD.items():
            x[column] = (x[column] - mean) / deviation
        frames[name] = hospitals_data.Hospital(x, own.y)
    return hospitals_data.split_rows(frames, seed)


def heart_sums(
    train: Hospitals, epsilon: float | None, seed: int, deviation: float = HEART_SD
) -> list[NoisySums]:
    """Sums that hospitals send; without epsilon those without noise."""
    sites = []
    for number, (name, own) in enumerate(train.items()):
        bounds = {c: (-2.0, 2.0) if c in STANDARD else (0.0, 1.0) for c in own.x}
        prior = {c: deviation / bounds[c][1] for c in own.x} | {"intercept": INTERCEPT_SD}
        request = Request(
            name, own.x.to_numpy(), own.y, tuple(own.x.columns), True, bounds, HEART_NORM, prior,
            ("intercept",), [0, 1],
        )  # fmt: skip
        plan = regressions.logistic(LogisticRegression(), request)
        if epsilon is None:
            found = without_noise(plan.statistics)
        else:
            with seeds_allowed():
                budget = Budget(epsilon, HEART_DELTA)
                found = noised(plan.statistics, budget, random_state=[seed, number])
        sites.append(sums_of(plan, name, found, prior))
    return sites


def without_noise(statistics: Any) -> Noised:
    """Sums as they are."""
    sums = {name: own.rows.sum(axis=0) for name, own in statistics.items()}
    return Noised(sums, dict.fromkeys(sums, 1e-6), {})


def scores(sums: Sequence[NoisySums], test: Hospitals) -> tuple[float, float]:
    """Accuracy and log-loss, means of hospitals, of the fusion of the sums."""
    accuracy, loss = [], []
    columns = [c for c in sums[0].columns if c != "intercept"]
    for name, own in test.items():
        found, names = of_silo(sums, columns, name)
        means = np.linalg.solve(found.precision, found.shift)
        mean = dict(zip(names, means.tolist(), strict=True))
        score = own.x[columns].to_numpy() @ [mean[c] for c in columns] + mean["intercept"]
        p = np.clip(expit(score), 1e-12, 1.0 - 1e-12)
        accuracy.append(np.mean((p > 0.5) == own.y))
        loss.append(-np.mean(np.where(own.y == 1, np.log(p), np.log1p(-p))))
    return float(np.mean(accuracy)), float(np.mean(loss))


def heart(
    data_dir: Any, draws: int, epsilons: Sequence[float] = EPSILONS, first: int = FIRST
) -> dict[str, dict[str, float]]:
    """Accuracy and log-loss over draws of the noise, by epsilon; without noise by prior, too.

    Noise shrinks effects, and so does a narrower prior. Other splits, with half as many draws in
    all, show what is chance.
    """
    hospitals = hospitals_data.heart(data_dir)
    own = heart_split(hospitals, FLAMBY_SEED)
    others = [heart_split(hospitals, seed) for seed in OTHER_SPLITS]
    rows: dict[str, dict[str, float]] = {}
    for deviation in (HEART_SD, 0.5 * HEART_SD, 0.25 * HEART_SD):
        found = [scores(heart_sums(a, None, 0, deviation), b) for a, b in (own, *others)]
        elsewhere = np.mean(found[1:], axis=0)
        rows[f"no noise, prior deviation {deviation:g}"] = {
            "accuracy": found[0][0],
            "log-loss": found[0][1],
            "other splits": float(elsewhere[0]),
            "log-loss there": float(elsewhere[1]),
            "FLamby": FLAMBY[None],
        }
    for epsilon in epsilons[::-1]:
        accuracy, loss = _noisy_scores([own], epsilon, range(first, first + draws))
        half = range(first, first + max(draws // (2 * len(others)), 1))
        elsewhere = np.mean(_noisy_scores(others, epsilon, half), axis=1)
        rows[f"epsilon {epsilon:g}"] = {
            "accuracy": float(accuracy.mean()),
            "sd": float(accuracy.std()),
            "log-loss": float(loss.mean()),
            "other splits": float(elsewhere[0]),
            "log-loss there": float(elsewhere[1]),
        } | ({"FLamby": FLAMBY[epsilon]} if epsilon in FLAMBY else {})
    return rows


def _noisy_scores(splits: Sequence[Split], epsilon: float, seeds: range) -> Floats:
    """Accuracies and log-losses, (2, n), of each draw of the noise at each split."""
    pairs = [(a, b, seed) for a, b in splits for seed in seeds]
    return np.array([scores(heart_sums(a, epsilon, seed), b) for a, b, seed in pairs]).T


def shares(data_dir: Any, draws: int) -> dict[str, dict[str, float]]:
    """Accuracy by the share of the budget that second derivatives get, on other splits."""
    hospitals = hospitals_data.heart(data_dir)
    splits = [heart_split(hospitals, seed) for seed in OTHER_SPLITS]
    rows, kept = {}, dict(regressions.SHARES)
    for share in (0.1, 0.2, 0.4):
        regressions.SHARES |= {"gram": share, "moment": 0.9 - share}
        row = {}
        for epsilon in (0.1, 1.0):
            found = []
            for seed in range(draws):
                train, test = splits[seed % len(splits)]
                found.append(scores(heart_sums(train, epsilon, seed), test))
            row[f"epsilon {epsilon:g}"] = float(np.mean(found, axis=0)[0])
        rows[f"share {share:g}"] = row
    regressions.SHARES |= kept
    return rows


# Audits -----------------------------------------------------------------------------------------


def audits(
    n_audits: int, plays: int, epsilons: Sequence[float] = EPSILONS
) -> dict[str, dict[str, float]]:
    """The largest lower bound on epsilon that any of the audits measures, by mechanism.

    Counts have as many more plays as a small epsilon needs: the error of a shift falls with their
    root.
    """
    out = {}
    for epsilon in epsilons:
        budget, row = Budget(epsilon, HEART_DELTA), {}
        bounds: dict[str, list[float]] = {"count": [], "Gaussian count": [], "regression": []}
        for number in range(n_audits):
            games = play_count(budget, int(plays * max(1.0, 1.0 / epsilon)))
            bounds["count"].append(lower_bound(*games[:2], budget.delta))
            bounds["Gaussian count"].append(gaussian_bound(*games, budget.delta))
            released = play_regression(budget, 100, number)  # a release per play is slow
            bounds["regression"].append(gaussian_bound(*released, budget.delta))
        for name, found in bounds.items():
            row[f"{name}, largest"] = max(found)
            row[f"{name}, smallest"] = min(found)
        out[f"epsilon {epsilon:g}"] = row
    return out
