"""One iteration of `StickyHDPHMM` against one of hmmlearn's `VariationalGaussianHMM`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Measured, Row, compare, has, measure
from klfusion.families import NormalWishart
from klfusion.learners._inference import Frames, Model, by_place, statistics_of
from klfusion.learners._transitions import TransitionPrior

FloatArray = NDArray[np.float64]
# Frames per sequence, features, states: motion capture, and one long recording.
SIZES = {
    "six sequences, 2,058 frames x 12, 15 states": ([382, 205, 251, 446, 387, 387], 12, 15),
    "six sequences, 2,058 frames x 12, 25 states": ([382, 205, 251, 446, 387, 387], 12, 25),
    "one sequence, 50,000 frames x 12, 15 states": ([50_000], 12, 15),
    "one sequence, 50,000 frames x 12, 30 states": ([50_000], 12, 30),
}


def simulated(lengths: list[int], dim: int, n_states: int, seed: int = 0) -> FloatArray:
    """Frames of a chain with twenty frames per visit of a state."""
    rng = np.random.default_rng(seed)
    state = np.repeat(rng.integers(n_states, size=sum(lengths) // 20 + 1), 20)[: sum(lengths)]
    return np.asarray(
        2.0 * rng.normal(size=(n_states, dim))[state] + rng.normal(size=(len(state), dim))
    )


def clocks() -> tuple[float, float]:
    """Wall and CPU time now."""
    return time.perf_counter(), time.process_time()


def ours(x: FloatArray, lengths: list[int], n_states: int, n_iter: int) -> list[Any]:
    """Clocks around our iterations: statistics, all posteriors, the bound."""
    family = NormalWishart(x.shape[1])
    d = family.dim
    prior = family.natural(np.zeros((1, d)), [0.1], np.eye(d)[None], [d + 2.0])[0]
    model = Model(family, prior, TransitionPrior(kappa=10.0, gamma=5.0, eta=0.5))
    sizes = np.array(lengths)
    frames = Frames.of(x, sizes)
    labels = by_place(x, n_states, np.random.default_rng(0))
    statistics, times = statistics_of(frames, labels, sizes), [clocks()]
    for _ in range(n_iter):
        statistics, _ = model.expect(frames, model.maximise(statistics))
        times.append(clocks())
    return times[1:]  # the first iteration includes imports


def peers(
    x: FloatArray, lengths: list[int], n_states: int, n_iter: int, implementation: str
) -> list[Any]:
    """Clocks at each report of hmmlearn's monitor."""
    from hmmlearn.vhmm import VariationalGaussianHMM

    model = VariationalGaussianHMM(
        n_states, covariance_type="full", n_iter=n_iter, tol=0.0, random_state=0,
        implementation=implementation,
    )  # fmt: skip
    times: list[tuple[float, float]] = []
    report = model.monitor_.report

    def timed(bound: float) -> Any:
        times.append(clocks())
        return report(bound)

    model.monitor_.report = timed
    model.fit(x, lengths)
    return times


def an_iteration(call: Callable[[], list[Any]]) -> Measured:
    """Median times between the clocks a call returns; memory of the whole call."""
    whole = measure(call)
    wall, cpu = (median(b - a for a, b in pairwise(c)) for c in zip(*whole.result, strict=True))
    return replace(whole, wall=wall, cpu=cpu)


def run(quick: bool = False) -> list[Row]:
    """All rows; ``quick`` keeps the smallest problem."""
    if not has("hmmlearn"):
        return []
    logging.getLogger("hmmlearn").setLevel(logging.ERROR)
    rows = []
    for problem, (lengths, dim, n_states) in list(SIZES.items())[: 1 if quick else None]:
        n_iter = 6 if quick or sum(lengths) > 10_000 else 40
        given = simulated(lengths, dim, n_states), lengths, n_states, n_iter
        own = an_iteration(partial(ours, *given))
        for implementation in ("log", "scaling"):
            peer = f"hmmlearn VariationalGaussianHMM, {implementation}"
            theirs = an_iteration(partial(peers, *given, implementation))
            rows.append(compare(f"HMM iteration: {problem}", peer, own, theirs))
    return rows
