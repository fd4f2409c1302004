"""An iteration of `StickyHDPHMM` against one of hmmlearn's `VariationalGaussianHMM`."""

from __future__ import annotations

import logging
import time
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
from hmmlearn.vhmm import VariationalGaussianHMM
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from klfusion.families import NormalWishart
from klfusion.learners import _starts
from klfusion.learners._inference import Frames, Model
from klfusion.learners._transitions import TransitionPrior

FloatArray = NDArray[np.float64]
# Frames of each sequence, features, states: motion capture, and one long recording.
SIZES = {
    "six sequences, 2,058 frames x 12, 15 states": ([382, 205, 251, 446, 387, 387], 12, 15),
    "six sequences, 2,058 frames x 12, 25 states": ([382, 205, 251, 446, 387, 387], 12, 25),
    "one sequence, 50,000 frames x 12, 15 states": ([50_000], 12, 15),
    "one sequence, 50,000 frames x 12, 30 states": ([50_000], 12, 30),
}


def simulated(lengths: list[int], dim: int, n_states: int, seed: int = 0) -> FloatArray:
    """Frames of a chain that stays twenty frames in a state."""
    rng = np.random.default_rng(seed)
    state = np.repeat(rng.integers(n_states, size=sum(lengths) // 20 + 1), 20)[: sum(lengths)]
    return np.asarray(
        2.0 * rng.normal(size=(n_states, dim))[state] + rng.normal(size=(len(state), dim))
    )


def seconds_of_ours(x: FloatArray, lengths: list[int], n_states: int, n_iter: int) -> float:
    """Median time of an iteration: statistics, all posteriors, the bound."""
    family = NormalWishart(x.shape[1])
    d = family.dim
    prior = family.natural(np.zeros((1, d)), [0.1], np.eye(d)[None], [d + 2.0])[0]
    model = Model(family, prior, TransitionPrior(kappa=10.0, gamma=5.0, eta=0.5))
    sizes = np.array(lengths)
    frames = Frames.of(x, sizes)
    labels = _starts.by_place(x, n_states, np.random.default_rng(0))
    statistics, sticks, times = _starts.statistics_of(frames, labels, sizes), None, []
    for _ in range(n_iter):
        start = time.perf_counter()
        estimate = model.maximise(statistics, sticks)
        sticks = estimate.transitions.sticks
        statistics, _ = model.expect(frames, estimate)
        times.append(time.perf_counter() - start)
    return median(times[1:])


def seconds_of_peer(
    x: FloatArray, lengths: list[int], n_states: int, n_iter: int, implementation: str
) -> float:
    """Median time between two reports of hmmlearn's monitor."""
    model = VariationalGaussianHMM(
        n_states, covariance_type="full", n_iter=n_iter, tol=0.0, random_state=0,
        implementation=implementation,
    )  # fmt: skip
    times: list[float] = []
    report = model.monitor_.report

    def timed(bound: float) -> Any:
        times.append(time.perf_counter())
        return report(bound)

    model.monitor_.report = timed
    model.fit(x, lengths)
    return median(b - a for a, b in pairwise(times))


def run(quick: bool = False) -> list[dict[str, Any]]:
    """All rows; ``quick`` leaves out the long recordings."""
    logging.getLogger("hmmlearn").setLevel(logging.ERROR)
    rows = []
    for problem, (lengths, dim, n_states) in SIZES.items():
        if quick and sum(lengths) > 10_000:
            continue
        n_iter = 6 if sum(lengths) > 10_000 else 40
        x = simulated(lengths, dim, n_states)
        with threadpool_limits(1):
            ours = seconds_of_ours(x, lengths, n_states, n_iter)
            for implementation in ("log", "scaling"):
                peer = seconds_of_peer(x, lengths, n_states, n_iter, implementation)
                rows.append(
                    {
                        "problem": f"HMM iteration: {problem}",
                        "peer": f"hmmlearn VariationalGaussianHMM, {implementation}",
                        "ours_s": ours, "peer_s": peer, "ratio": peer / ours,
                    }
                )  # fmt: skip
    return rows
