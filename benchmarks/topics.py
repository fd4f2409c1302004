"""Fusion of topics against AMPS with five starts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

import klfusion as kf
from benchmarks.measure import Row, compare, high_water_mb, measure

# Silos, topics per silo, words, true topics.
LARGE = (100, 10, 50_000, 40)
IN_FILES, QUICK_FILES, MEMORY_LIMIT = (250, 20, 50_000, 100), (4, 3, 10_000, 6), "1GB"
SIZES = {"50 topics x 12,500 words": (5, 10, 12_500, 30), "200 x 12,500": (20, 10, 12_500, 60)}


def simulated(
    n_silos: int, per_silo: int, n_words: int, total: int
) -> Iterator[tuple[kf.Posterior, set[int]]]:
    """Posteriors of sparse topics from tens of thousands of words each; which topics they have."""
    rng = np.random.default_rng(0)
    family = kf.families.Dirichlet(n_words)
    words = rng.dirichlet(np.full(n_words, 0.02), size=total)
    for j in range(n_silos):
        sizes = rng.integers(5_000, 80_000, size=per_silo)
        chosen = rng.permutation(total)[:per_silo].tolist()
        counts = [rng.multinomial(n, words[k]) for n, k in zip(sizes, chosen, strict=True)]
        natural = 0.1 + np.array(counts, dtype=float)
        yield kf.Posterior(family, natural, name=f"silo-{j}"), set(chosen)


def in_memory(*sizes: int) -> tuple[list[kf.Posterior], int]:
    """All silos, and the number of true topics."""
    silos, topics = zip(*simulated(*sizes), strict=True)
    return list(silos), len(set.union(*topics))


def run(quick: bool = False) -> list[Row]:
    """All rows; ``quick`` leaves out the larger problem."""
    rows, repeats = [], 1 if quick else 3
    for problem, sizes in list(SIZES.items())[: 1 if quick else None]:
        silos, truth = in_memory(*sizes)
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
    rows.append(_in_files(*(QUICK_FILES if quick else IN_FILES)))
    return rows if quick else [*rows, _large()]


def _large() -> Row:
    """A thousand topics against half as many; AMPS cannot run on so many."""
    silos, truth = in_memory(*LARGE)
    ours, half = (measure(partial(kf.fuse, own)) for own in (silos, silos[: len(silos) // 2]))
    size = ours.result.n_components
    return compare(
        "fusion of 1,000 topics x 50,000 words", "half as many silos", ours, half,
        size=size, true_size=truth, note=f"size {size} of {truth}",
    )  # fmt: skip


def _in_files(*sizes: int) -> Row:
    """More topics than memory should hold, against half as many."""
    with tempfile.TemporaryDirectory(prefix="klfusion-topics-") as folder:
        paths, seen = [], set[int]()
        for silo, topics in simulated(*sizes):
            paths.append(Path(folder) / f"{silo.name}.safetensors")
            kf.save(paths[-1], silo)
            seen |= topics
        fused = partial(kf.fuse_files, memory_limit=MEMORY_LIMIT)
        ours = measure(partial(fused, paths))
        most = high_water_mb()
        half = measure(partial(fused, paths[: len(paths) // 2]))
    size = ours.result.n_components
    memory = "" if most is None else f", {most:,.0f} MB in all"
    return compare(
        f"fusion of {sizes[0] * sizes[1]:,} topics x {sizes[2]:,} words in files, memory_limit "
        f"{MEMORY_LIMIT}", "half as many silos", ours, half,
        size=size, true_size=len(seen), process_mb=most, note=f"size {size} of {len(seen)}{memory}",
    )  # fmt: skip
