"""Share of `fuse` in the total time, with sequential local fits by scikit-learn."""

from __future__ import annotations

import numpy as np

import klfusion as kf
from benchmarks.measure import Row, compare, measure
from experiments.simulation import Simulation, fit_mixture, simulate

# Silos, components, observations per silo; starts of a local fit.
SHAPES = [(10, 5, 300), (50, 5, 300), (50, 5, 3_000), (50, 20, 3_000)]
N_INIT = 1


def run(quick: bool = False) -> list[Row]:
    """One row per shape; ``quick`` keeps the smallest."""
    rows = []
    for n_silos, size, n_points in SHAPES[: 1 if quick else None]:
        settings = Simulation(separation=1.0, n_silos=n_silos, n_components=size, n_points=n_points)
        made = simulate(settings, np.random.default_rng(0))
        pairs = list(zip(made.data, made.components, strict=True))
        fits = measure(lambda: [fit_mixture(x, len(c), 0, N_INIT) for x, c in pairs])  # noqa: B023
        models = dict(zip((f"silo-{j}" for j in range(n_silos)), fits.result, strict=True))
        ours = measure(lambda: kf.fuse(models), repeats=5)  # noqa: B023
        share = ours.cpu / (ours.cpu + fits.cpu)
        rows.append(
            compare(
                f"fusing {n_silos} silos of {n_points:,} observations, {size} components",
                "their local fits (scikit-learn, one start)", ours, fits,
                share=share, note=f"fusion is {share:.1%} of the whole",
            )
        )  # fmt: skip
    return rows
