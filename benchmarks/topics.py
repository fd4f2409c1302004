"""Fusion of topics against AMPS with five starts, CPU seconds in one run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import klfusion as kf

# Silos, topics of each, words, true topics.
SIZES = {"50 topics x 12,500 words": (5, 10, 12_500, 30), "200 x 12,500": (20, 10, 12_500, 60)}


def simulated(n_silos: int, per_silo: int, n_words: int, total: int) -> list[kf.Posterior]:
    """Sparse topics, each seen through some tens of thousands of words."""
    rng = np.random.default_rng(0)
    family = kf.families.Dirichlet(n_words)
    words = rng.dirichlet(np.full(n_words, 0.02), size=total)
    silos = []
    for j in range(n_silos):
        sizes = rng.integers(5_000, 80_000, size=per_silo)
        chosen = rng.permutation(total)[:per_silo]
        counts = [rng.multinomial(n, words[k]) for n, k in zip(sizes, chosen, strict=True)]
        silos.append(kf.Posterior(family, 0.1 + np.array(counts, dtype=float), name=f"silo-{j}"))
    return silos


def cpu_seconds(fuse: Callable[[], kf.Fusion], repeats: int = 3) -> float:
    """The least of several runs; both sides use one thread."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        fuse()
        times.append(time.process_time() - start)
    return min(times)


def run(quick: bool = False) -> list[dict[str, Any]]:
    """All rows; ``quick`` leaves out the larger problem."""
    rows = []
    for problem, sizes in list(SIZES.items())[: 1 if quick else None]:
        silos = simulated(*sizes)
        ours = cpu_seconds(lambda own=silos: kf.fuse(own))  # type: ignore[misc]
        peer = cpu_seconds(lambda own=silos: kf.baselines.amps(own, n_init=5))  # type: ignore[misc]
        rows.append(
            {"problem": f"fusion of {problem}", "peer": "AMPS, five starts"}
            | {"ours_s": ours, "peer_s": peer, "ratio": peer / ours}
        )
    return rows
