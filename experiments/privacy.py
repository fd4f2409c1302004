"""Sums with noise: heart disease at four hospitals, coverage of intervals, audits by canaries.

Heart disease has FLamby's split, a budget per hospital at delta 1e-4, and standardisation by
rounded constants: no number is computed from the data. Coverage is that of simulated regressions at
20 sites, coefficients drawn from the prior. Noise of the simulations has seeds, by the test mode of
the mechanism. Audits play the game of the definition with the mechanism's own random numbers: is
the canary there or not? The bound on epsilon is that of Clopper and Pearson, of 95 % confidence.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from scipy.stats import beta, chi2, norm
from sklearn.linear_model import LinearRegression, LogisticRegression
from threadpoolctl import threadpool_limits

import klfusion as kf
from experiments import data, hospitals_data, tables
from experiments.hospitals_data import FLAMBY_SEED, Hospitals, Split
from klfusion.pooling.noisy_sums import NoisySums, by_name, noise_aware
from klfusion.privacy import regressions
from klfusion.privacy.bounds import ClippedWarning
from klfusion.privacy.mechanism import Budget, Noised, Statistic, noised, seeds_allowed
from klfusion.privacy.plan import Request

DESCRIPTION = "accuracy, coverage and audits of sums with noise, by epsilon"
HEART_DELTA = 1e-4
EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
# Means and standard deviations of columns, agreed on before; none is computed from the data.
STANDARD = {"age": (54, 9), "pressure": (132, 18), "cholesterol": (220, 80), "rate": (140, 25)}
STANDARD |= {"depression": (1, 1)}
HEART_NORM, HEART_SD, INTERCEPT_SD = 1.5, 1.0, 10.0  # set on other splits; see the page
FLAMBY = {None: 0.7125, 1.0: 0.685, 0.1: 0.606}  # published, delta 1e-4
SITES = 20
Floats = NDArray[np.float64]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Command-line options."""
    data.add_argument(parser)
    parser.add_argument("--quick", action="store_true", help="a few draws of each")
    parser.add_argument("--parts", nargs="*", default=["heart", "coverage", "shares", "audits"])


def main(args: argparse.Namespace, console: Console) -> None:
    """Run all, print tables, and write ``privacy.json``."""
    warnings.simplefilter("ignore", ClippedWarning)
    few = args.quick
    results: dict[str, Any] = {}
    with threadpool_limits(1):
        if "heart" in args.parts:
            results["heart"] = heart(args.data_dir, 3 if few else 200)
        if "coverage" in args.parts:
            for rows in (100, 400):
                title = f"coverage, {SITES} sites of {rows} rows"
                results[title] = coverage(rows, 10 if few else 300)
        if "shares" in args.parts:
            results["shares"] = shares(args.data_dir, 2 if few else 24)
        if "audits" in args.parts:
            results["audits"] = audits(2 if few else 20, 2_000 if few else 20_000)
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


def heart_sites(train: Hospitals, epsilon: float | None, seed: int) -> list[kf.Posterior]:
    """What hospitals send; without epsilon the same sums without noise."""
    sites = []
    for number, (name, own) in enumerate(train.items()):
        bounds = {c: (-2.0, 2.0) if c in STANDARD else (0.0, 1.0) for c in own.x}
        prior = {c: HEART_SD / bounds[c][1] for c in own.x} | {"intercept": INTERCEPT_SD}
        common: Any = {"bounds": bounds, "norm": HEART_NORM, "prior_sd": prior, "classes": [0, 1]}
        if epsilon is None:
            rows = (own.x.to_numpy(), own.y, tuple(own.x.columns), True)
            request = Request(name, *rows, **common, local=("intercept",))
            plan = regressions.logistic(LogisticRegression(), request)
            sites.append(plan.posterior(without_noise(plan.statistics)))
        else:
            with seeds_allowed():
                site = kf.privatize(
                    LogisticRegression(), data=(own.x, own.y), name=name, epsilon=epsilon,
                    delta=HEART_DELTA, local=["intercept"], random_state=[seed, number], **common,
                )  # fmt: skip
            sites.append(site)
    return sites


def without_noise(statistics: Any) -> Noised:
    """Sums as they are."""
    sums = {name: own.rows.sum(axis=0) for name, own in statistics.items()}
    return Noised(sums, dict.fromkeys(sums, 1e-6), {})


def scores(fusion: kf.Fusion, test: Hospitals) -> tuple[float, float]:
    """Accuracy and log-loss, means of hospitals."""
    accuracy, loss = [], []
    for name, own in test.items():
        p = np.clip(fusion.model(name).predict_proba(own.x)[:, 1], 1e-12, 1.0 - 1e-12)
        accuracy.append(np.mean((p > 0.5) == own.y))
        loss.append(-np.mean(np.where(own.y == 1, np.log(p), np.log1p(-p))))
    return float(np.mean(accuracy)), float(np.mean(loss))


def heart(data_dir: Any, draws: int) -> dict[str, dict[str, float]]:
    """Accuracy and log-loss over draws of the noise, by epsilon."""
    train, test = heart_split(hospitals_data.heart(data_dir), FLAMBY_SEED)
    rows: dict[str, dict[str, float]] = {}
    for epsilon in (None, *EPSILONS[::-1]):
        seeds: Iterable[int] = range(1 if epsilon is None else draws)
        found = [scores(kf.fuse(heart_sites(train, epsilon, seed)), test) for seed in seeds]
        accuracy, loss = np.array(found).T
        rows["no noise" if epsilon is None else f"epsilon {epsilon:g}"] = {
            "accuracy": float(accuracy.mean()),
            "sd": float(accuracy.std()),
            "log-loss": float(loss.mean()),
        } | ({"FLamby": FLAMBY[epsilon]} if epsilon in FLAMBY else {})
    return rows


def shares(data_dir: Any, draws: int) -> dict[str, dict[str, float]]:
    """Accuracy by the share of the budget that second derivatives get, on other splits."""
    hospitals = hospitals_data.heart(data_dir)
    splits = [heart_split(hospitals, seed) for seed in range(4)]
    rows, kept = {}, dict(regressions.SHARES)
    for share in (0.1, 0.2, 0.4):
        regressions.SHARES |= {"gram": share, "moment": 0.9 - share}
        row = {}
        for epsilon in (0.1, 1.0):
            found = []
            for seed in range(draws):
                train, test = splits[seed % len(splits)]
                found.append(scores(kf.fuse(heart_sites(train, epsilon, seed)), test))
            row[f"epsilon {epsilon:g}"] = float(np.mean(found, axis=0)[0])
        rows[f"share {share:g}"] = row
    regressions.SHARES |= kept
    return rows


# Coverage ---------------------------------------------------------------------------------------


def coverage(rows: int, repeats: int) -> dict[str, dict[str, float]]:
    """Shares of 95 % intervals, and regions, that hold the coefficients: aware, and naive."""
    out = {}
    for epsilon in EPSILONS:
        found = [_covered(rows, epsilon, seed) for seed in range(repeats)]
        out[f"epsilon {epsilon:g}"] = {
            key: float(np.mean([one[key] for one in found])) for key in found[0]
        }
    return out


def simulated_sums(
    rows: int, epsilon: float, seed: int
) -> tuple[list[NoisySums], Floats, dict[str, float]]:
    """Sums of all sites, true coefficients, and prior deviations."""
    rng = np.random.default_rng([seed, rows])
    d, names = 4, ["x0", "x1", "x2", "x3"]
    prior = dict.fromkeys(["intercept", *names], 0.5)
    theta = rng.normal(scale=0.5, size=d + 1)
    mixing = np.linalg.cholesky(0.3 + 0.7 * np.eye(d))
    bounds: dict[str, Any] = dict.fromkeys(names, (-1.0, 1.0)) | {"y": (-3.0, 3.0)}
    first, sums = None, []
    with seeds_allowed():
        for number in range(SITES):
            x = np.clip(0.4 * rng.normal(size=(rows, d)) @ mixing.T + 0.1, -1.0, 1.0)
            y = theta[0] + x @ theta[1:] + 0.4 * rng.normal(size=rows)
            request = Request(
                f"{number:02d}", x, y, tuple(names), True, bounds, None, prior, (), None
            )
            plan = regressions.linear(LinearRegression(), request)
            noise = noised(plan.statistics, Budget(epsilon, 1e-5), random_state=rng)
            first = first or NoisySums.of(plan.posterior(noise))
            assert first is not None
            sent: dict[str, Any] = {key: np.squeeze(value) for key, value in noise.sums.items()}
            sent["squares"] = float(sent["squares"])
            sums.append(replace(first, name=request.name, **sent))
    return sums, theta, prior


def _covered(rows: int, epsilon: float, seed: int) -> dict[str, float]:
    sums, theta, prior = simulated_sums(rows, epsilon, seed)
    mean, covariance, _, _ = noise_aware(by_name(sums))
    precision = np.diag([deviation**-2 for deviation in prior.values()])
    one = sums[0].matrix
    gram, moment = (sum(getattr(s, key) for s in sums) for key in ("gram", "moment"))
    squares = sum(s.squares or 0.0 for s in sums)
    gram = gram + 1e-9 * np.eye(len(gram))
    fit = np.linalg.lstsq(gram, moment, rcond=None)[0]
    variance = max(float(squares - fit @ moment) / sum(s.mass for s in sums), 1e-4)
    inverse = np.linalg.inv(one)
    shape = inverse.T @ gram @ inverse / variance + precision
    naive = np.linalg.pinv(shape, hermitian=True)
    centre = naive @ (inverse.T @ moment / variance)
    result = {}
    for name, m, c in (("", mean, covariance), ("naive ", centre, naive)):
        off, width = m - theta, np.sqrt(np.maximum(np.diag(c), 0.0))
        result[f"{name}intervals"] = float(np.mean(np.abs(off) <= norm.ppf(0.975) * width))
        squared = off @ np.linalg.pinv(c, hermitian=True) @ off
        valid = np.linalg.eigvalsh(c)[0] > 0.0  # noise may leave a naive posterior without any
        result[f"{name}regions"] = float(valid and squared <= chi2.ppf(0.95, len(off)))
    result["sd"] = float(np.mean(np.sqrt(np.diag(covariance))))
    result["naive sd"] = float(np.mean(np.sqrt(np.maximum(np.diag(naive), 0.0))))
    return result


# Audits -----------------------------------------------------------------------------------------


def audits(n_audits: int, plays: int) -> dict[str, dict[str, float]]:
    """The largest lower bound on epsilon that any of the audits measures, by mechanism."""
    out = {}
    for epsilon in EPSILONS:
        budget, row = Budget(epsilon, HEART_DELTA), {}
        for name, play in (("count", play_count), ("regression", play_regression)):
            games = plays if name == "count" else min(plays, 300)  # a release per play is slow
            found = [lower_bound(*play(budget, games, k), budget.delta) for k in range(n_audits)]
            row[f"{name}, largest"] = max(found)
            row[f"{name}, mean"] = float(np.mean(found))
        out[f"epsilon {epsilon:g}"] = row
    return out


def play_count(budget: Budget, plays: int, number: int) -> tuple[Floats, Floats]:
    """Scores without and with the canary: the number of rows of a class, which it is one of."""
    del number  # the random numbers are the mechanism's own
    worlds = []
    for there in (0.0, 1.0):
        # Each entry has noise of its own: so many plays at once, each of a count with bound 1.
        single = noised({"n": Statistic(np.zeros((1, 1)), 1.0)}, budget)
        assert single.sums["n"].shape == (1,)
        worlds.append(there + _many(single.deviations["n"], plays))
    return worlds[0], worlds[1]


def _many(deviation: float, plays: int) -> Floats:
    """Noise of so many independent releases of one count, by the library's own sampler."""
    from klfusion.privacy.mechanism import library  # noqa: PLC0415

    dp = library()
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    unit = 2**20  # of the mechanism's grid
    drawn = dp.m.make_gaussian(*space, scale=deviation * unit)([0] * plays)
    return np.array(drawn, dtype=np.float64) / unit


def play_regression(budget: Budget, plays: int, number: int) -> tuple[Floats, Floats]:
    """Scores by the projection on the canary's own sums, which is the likelihood ratio."""
    rng = np.random.default_rng(number)
    x, y = rng.uniform(-1.0, 1.0, size=(20, 2)), rng.integers(2, size=20)
    x[0], bounds = [1.0, 1.0], {"x0": (-1.0, 1.0), "x1": (-1.0, 1.0)}
    worlds: list[list[float]] = [[], []]
    canary = None
    for there in (True, False):
        rows = slice(None) if there else slice(1, None)
        request = Request(
            "canary", x[rows], y[rows], ("x0", "x1"), True, bounds, None, 1.0, (), [0, 1]
        )
        statistics = regressions.logistic(LogisticRegression(), request).statistics
        if there:
            canary = {name: own.rows[0] for name, own in statistics.items()}
        assert canary is not None
        for _ in range(plays):
            found = noised(statistics, budget)
            score = sum(
                float((found.sums[n] * canary[n]).sum()) / found.deviations[n] ** 2 for n in canary
            )
            worlds[int(there)].append(score)
    return np.array(worlds[0]), np.array(worlds[1])


def lower_bound(without: Floats, there: Floats, delta: float) -> float:
    """On epsilon, of 95 % confidence: the threshold is chosen on one half, tested on the other."""
    best = (0.0, float(np.median(there)), 1)
    half = len(without) // 2
    for sign in (1, -1):
        a, b = sign * without[:half], sign * there[:half]
        a, b = (a, b) if sign == 1 else (b, a)
        for level in np.quantile(a, np.linspace(0.5, 0.999, 40)):
            value = _bound(int((b > level).sum()), int((a > level).sum()), half, delta)
            if value > best[0]:
                best = (value, float(level), sign)
    _, level, sign = best
    a, b = sign * without[half:], sign * there[half:]
    a, b = (a, b) if sign == 1 else (b, a)
    return _bound(int((b > level).sum()), int((a > level).sum()), len(without) - half, delta)


def _bound(found: int, wrong: int, plays: int, delta: float) -> float:
    """Logarithm of the smallest ratio that Clopper and Pearson's limits allow."""
    low = float(beta.ppf(0.025, found, plays - found + 1)) if found else 0.0
    high = float(beta.ppf(0.975, wrong + 1, plays - wrong)) if wrong < plays else 1.0
    return float(np.log((low - delta) / high)) if low > delta and low - delta > high else 0.0
