"""Coverage of intervals and regions of simulated regressions from sums with noise, at 20 sites.

Coefficients are drawn from their prior. Noise has seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm
from sklearn.linear_model import LinearRegression

from experiments import noisy_bounds, noisy_draws
from klfusion.pooling.noisy_sums import NoisySums, by_name, noise_aware
from klfusion.privacy import regressions
from klfusion.privacy.mechanism import Budget, Noised, noised, seeds_allowed
from klfusion.privacy.plan import Plan, Request

SITES = 20
FIRST = 90_000  # seed of the simulations; development used others
Floats = NDArray[np.float64]


def sums_of(plan: Plan, name: str, found: Noised, prior: dict[str, float]) -> NoisySums:
    """Of a site's file, without the posterior of the site alone, which no fusion of sums needs.

    Units and prior are the same at all sites of a study.
    """
    key = tuple(prior.items())
    if key not in _PUBLIC:
        _PUBLIC[key] = NoisySums.of(plan.posterior(found))
    sent: dict[str, Any] = {own: np.squeeze(value) for own, value in found.sums.items()}
    if "squares" in sent:
        sent["squares"] = float(sent["squares"])
    public: NoisySums = _PUBLIC[key]
    return replace(public, name=name, deviations=found.deviations, **sent)


_PUBLIC: dict[Any, Any] = {}


def coverage(
    rows: int, repeats: int, epsilons: Sequence[float], first: int = FIRST
) -> dict[str, dict[str, float]]:
    """Shares of 95 % intervals, and regions, that hold the coefficients: aware, and naive."""
    out = {}
    for epsilon in epsilons:
        found = [_covered(rows, epsilon, first + seed) for seed in range(repeats)]
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
    sums = []
    with seeds_allowed():
        for number in range(SITES):
            x = np.clip(0.4 * rng.normal(size=(rows, d)) @ mixing.T + 0.1, -1.0, 1.0)
            y = theta[0] + x @ theta[1:] + 0.4 * rng.normal(size=rows)
            request = Request(
                f"{number:02d}", x, y, tuple(names), True, bounds, None, prior, (), None
            )
            plan = regressions.linear(LinearRegression(), request)
            noise = noised(plan.statistics, Budget(epsilon, 1e-5), random_state=rng)
            sums.append(sums_of(plan, request.name, noise, prior))
    return sums, theta, prior


def _covered(rows: int, epsilon: float, seed: int) -> dict[str, float]:
    sums, theta, prior = simulated_sums(rows, epsilon, seed)
    aware = noise_aware(by_name(sums))
    mean, covariance = aware.mean, aware.covariance
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
        result[f"{name}Normal regions"] = float(valid and squared <= chi2.ppf(0.95, len(off)))
        if m is mean:
            result["regions"] = float(squared <= aware.radius**2)
    result["sd"] = float(np.mean(np.sqrt(np.diag(covariance))))
    result["naive sd"] = float(np.mean(np.sqrt(np.maximum(np.diag(naive), 0.0))))
    return result


def sampler(repeats: int) -> dict[str, dict[str, dict[str, float]]]:
    """Errors of other settings of the draws, on seeds of development."""
    out = {}
    for rows, epsilon in ((100, 0.5), (100, 1.0), (400, 1.0), (400, 10.0)):
        tried = [simulated_sums(rows, epsilon, seed)[0] for seed in range(repeats)]
        title = f"sampler, {SITES} sites of {rows} rows, epsilon {epsilon:g}"
        out[title] = noisy_draws.study(tried)
    return out


def work(repeats: int) -> dict[str, dict[str, float]]:
    """How many rounds draws take, and how many of them there are, on seeds of development."""
    out = {}
    for rows, epsilon in ((30, 0.5), (100, 0.5), (100, 2.0), (400, 0.5)):
        tried = [simulated_sums(rows, epsilon, seed)[0] for seed in range(repeats)]
        out[f"{SITES} sites of {rows} rows, epsilon {epsilon:g}"] = noisy_draws.work(tried)
    for kind in noisy_bounds.EFFECTS:
        for centre in noisy_bounds.CENTRES:
            tables = [
                [noisy_bounds.simulated(kind, centre, 10.0, epsilon, seed)[0]]
                for seed in range(max(repeats // 2, 1))
                for epsilon in (1.0, 10.0)
            ]
            out[f"{kind}, columns about {centre:g}, bounds x 10"] = noisy_draws.work(tables)
    return out
