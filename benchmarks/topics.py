"""Fusion of topics against AMPS with five starts."""

from __future__ import annotations

from functools import partial

import numpy as np

import klfusion as kf
from benchmarks.measure import Row, compare, measure

# Silos, topics per silo, words, true topics.
LARGE = (100, 10, 50_000, 40)
SIZES = {"50 topics x 12,500 words": (5, 10, 12_500, 30), "200 x 12,500": (20, 10, 12_500, 60)}


def simulated(
    n_silos: int, per_silo: int, n_words: int, total: int
) -> tuple[list[kf.Posterior], int]:
    """Posteriors of sparse topics from tens of thousands of words each; number of true topics."""
    rng = np.random.default_rng(0)
    family = kf.families.Dirichlet(n_words)
    words = rng.dirichlet(np.full(n_words, 0.02), size=total)
    silos, seen = [], set()
    for j in range(n_silos):
        sizes = rng.integers(5_000, 80_000, size=per_silo)
        chosen = rng.permutation(total)[:per_silo]
        seen |= set(chosen.tolist())
        counts = [rng.multinomial(n, words[k]) for n, k in zip(sizes, chosen, strict=True)]
        silos.append(kf.Posterior(family, 0.1 + np.array(counts, dtype=float), name=f"silo-{j}"))
    return silos, len(seen)


def run(quick: bool = False) -> list[Row]:
    """All rows; ``quick`` leaves out the larger problem."""
    rows, repeats = [], 1 if quick else 3
    for problem, sizes in list(SIZES.items())[: 1 if quick else None]:
        silos, truth = simulated(*sizes)
        ours = measure(partial(kf.fuse, silos), repeats=repeats)
        peer = measure(partial(kf.baselines.amps, silos, n_init=5), repeats=repeats)
        found = [side.result.n_components for side in (ours, peer)]
        rows.append(
            compare(
                f"fusion of {problem}", "AMPS, five starts", ours, peer,
                size=found[0], peer_size=found[1], true_size=truth,
                note=f"size {found[0]} of {truth}, peer {found[1]}",
            )
        )  # fmt: skip
    return rows if quick else [*rows, _large()]


def _large() -> Row:
    """A thousand topics against half as many; AMPS cannot run on so many."""
    silos, truth = simulated(*LARGE)
    ours, half = (measure(partial(kf.fuse, own)) for own in (silos, silos[: len(silos) // 2]))
    size = ours.result.n_components
    return compare(
        "fusion of 1,000 topics x 50,000 words", "half as many silos", ours, half,
        size=size, true_size=truth, note=f"size {size} of {truth}",
    )  # fmt: skip
