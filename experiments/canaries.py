"""The game of differential privacy: is the canary there? And what its outcomes say of epsilon."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import beta, norm
from sklearn.linear_model import LogisticRegression

from klfusion.privacy import regressions
from klfusion.privacy.mechanism import Budget, Statistic, library, noised
from klfusion.privacy.plan import Request

Floats = NDArray[np.float64]


def play_count(budget: Budget, plays: int) -> tuple[Floats, Floats, float]:
    """Scores without and with the canary, one of a class that is counted, and their middle."""
    single = noised({"n": Statistic(np.zeros((1, 1)), 1.0)}, budget)
    # Each entry has noise of its own: so many plays at once, each of a count with bound 1.
    without, there = (canary + _many(single.deviations["n"], plays) for canary in (0.0, 1.0))
    return without, there, 0.5


def _many(deviation: float, plays: int) -> Floats:
    """Noise of so many independent releases of one count, by the library's own sampler."""
    dp = library()
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    unit = 2**20  # of the mechanism's grid
    drawn = dp.m.make_gaussian(*space, scale=deviation * unit)([0] * plays)
    return np.array(drawn, dtype=np.float64) / unit


def play_regression(budget: Budget, plays: int, number: int) -> tuple[Floats, Floats, float]:
    """Scores by the projection on the canary's own sums, which is the likelihood ratio."""
    rng = np.random.default_rng(number)
    x, y = rng.uniform(-1.0, 1.0, size=(20, 2)), rng.integers(2, size=20)
    x[0], bounds = [1.0, 1.0], {"x0": (-1.0, 1.0), "x1": (-1.0, 1.0)}
    request = Request("canary", x, y, ("x0", "x1"), True, bounds, None, 1.0, (), [0, 1])
    whole = regressions.logistic(LogisticRegression(), request).statistics
    without = {name: replace(own, rows=own.rows[1:]) for name, own in whole.items()}

    def score(sums: Any, deviations: Any) -> float:
        parts = (float((sums[n] * whole[n].rows[0]).sum()) / deviations[n] ** 2 for n in whole)
        return float(sum(parts))

    worlds, exact = [], []
    for statistics in (without, whole):
        found = [noised(statistics, budget) for _ in range(plays)]
        worlds.append(np.array([score(one.sums, one.deviations) for one in found]))
        sums = {name: own.rows.sum(axis=0) for name, own in statistics.items()}
        exact.append(score(sums, found[0].deviations))
    return worlds[0], worlds[1], 0.5 * (exact[0] + exact[1])


def gaussian_bound(without: Floats, there: Floats, middle: float, delta: float) -> float:
    """On epsilon, of 95 % confidence, of a mechanism whose noise is Normal (Nasr et al., 2023).

    Errors of the test at the middle bound the distance of the two worlds in deviations of the
    noise, and this distance has one epsilon at each delta.
    """
    wrong, missed = int((without > middle).sum()), int((there <= middle).sum())
    high = [
        float(beta.ppf(0.975, k + 1, n - k)) if k < n else 1.0
        for k, n in ((wrong, len(without)), (missed, len(there)))
    ]
    distance = -float(np.sum(norm.ppf(high)))
    if distance <= 0.0:
        return 0.0

    def exceeds(epsilon: float) -> float:
        shift = epsilon / distance
        tail = norm.logcdf(-0.5 * distance - shift) + epsilon
        return float(norm.cdf(0.5 * distance - shift) - np.exp(tail)) - delta

    if exceeds(0.0) <= 0.0:
        return 0.0
    return float(brentq(exceeds, 0.0, 100.0))


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
