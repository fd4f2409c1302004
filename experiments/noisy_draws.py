"""Draws of sums of squares with noise: how far other settings of the sampler are from a long run.

Errors are those of the posterior of simulated regressions: of means, in their standard deviations,
and of variances, relative. Both are roots of mean squares over coefficients and tables. Work is the
number of rounds that were needed, and of coefficients per draw: both have a limit, far above.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from klfusion.pooling import noisy_gram
from klfusion.pooling.noisy_gram import NoisyGram
from klfusion.pooling.noisy_regression import NoisyRegression
from klfusion.pooling.noisy_sums import NoisySums, by_name, noise_aware

LONG = {"_MOVES": 200, "_STEPS": 64, "_DEGREES": 64}
SETTINGS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "5 moves": {"_MOVES": 5},
    "45 moves": {"_MOVES": 45},
    "16 chains": {"_CHAINS": 16},
    "one round for units": {"_ROUNDS": 1},
    "four rounds for units": {"_ROUNDS": 4},
    "100 effective draws": {"ENOUGH": 100.0},
    "1600 effective draws": {"ENOUGH": 1600.0},
    "at most 4 steps": {"_STEPS": 4},
    "at most 64 steps": {"_STEPS": 64},
    "4 degrees of freedom": {"_DEGREES": 4},
    "64 degrees of freedom": {"_DEGREES": 64},
    "acceptance .65": {"_ACCEPTED": 0.65},
    "acceptance .9": {"_ACCEPTED": 0.9},
}


@contextmanager
def settings(changed: dict[str, Any]) -> Iterator[None]:
    """The sampler with other settings."""
    kept = {name: getattr(noisy_gram, name) for name in changed}
    try:
        for name, value in changed.items():
            setattr(noisy_gram, name, value)
        yield
    finally:
        for name, value in kept.items():
            setattr(noisy_gram, name, value)


def study(tables: Sequence[Sequence[NoisySums]]) -> dict[str, dict[str, float]]:
    """Errors and seconds of each setting, over sums of several tables."""
    with settings(LONG):
        exact = [_moments(own) for own in tables]
    out = {}
    for title, changed in SETTINGS.items():
        start = time.process_time()
        with settings(changed):
            found = [_moments(own) for own in tables]
        seconds = (time.process_time() - start) / len(tables)
        pairs = list(zip(found, exact, strict=True))
        means = [(m - m0) ** 2 / v0 for (m, _), (m0, v0) in pairs]
        variances = [v / v0 - 1.0 for (_, v), (_, v0) in pairs]
        out[title] = {
            "error of means": float(np.sqrt(np.mean(means))),
            "of variances": float(np.sqrt(np.mean(np.square(variances)))),
            "bias of variances": float(np.mean(variances)),
            "seconds": seconds,
        }
    return out


def _moments(sums: Sequence[NoisySums]) -> tuple[Any, Any]:
    noise_aware.cache_clear()
    found = noise_aware(by_name(sums))
    return found.mean, np.diag(found.covariance)


def work(tables: Sequence[Sequence[NoisySums]]) -> dict[str, float]:
    """Rounds that are kept, coefficients per draw, the least effective draws, and seconds."""
    rounds, repeats, drawn, weighted = [], [], [], []
    draws, averaged = NoisyGram.draws, NoisyRegression.averaged
    each = NoisyRegression._drawn

    def counted(*given: Any) -> Any:
        found = draws(*given)
        rounds.append(len(found[0]) / (noisy_gram._CHAINS * noisy_gram._MOVES))
        drawn.append(found[1])
        return found

    def repeated(own: NoisyRegression, *given: Any) -> Any:
        repeats.append(0)
        found = averaged(own, *given)
        weighted.append(found[-1])
        return found

    def one(*given: Any) -> Any:
        repeats[-1] += 1
        return each(*given)

    start = time.process_time()
    with (
        patch.object(NoisyGram, "draws", counted),
        patch.object(NoisyRegression, "averaged", repeated),
        patch.object(NoisyRegression, "_drawn", one),
    ):
        for own in tables:
            _moments(own)
    return {
        "rounds, median": float(np.median(rounds)),
        "rounds, most": float(max(rounds)),
        "per draw, most": float(max(repeats)),
        "fewest draws": float(min(drawn)),
        "fewest weighted": float(min(weighted)),
        "seconds": (time.process_time() - start) / len(tables),
    }
