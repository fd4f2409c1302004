"""Section 5.1: fusing Gaussian-mixture posteriors under varying separation and heterogeneity."""

from __future__ import annotations

import csv
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.metrics import adjusted_rand_score

import klfusion as kf
from experiments.simulation import (
    Silos,
    Simulation,
    fit_mixture,
    hausdorff,
    simulate,
    true_component,
)

SEPARATIONS = (0.1, 0.25, 0.5, 1.0, 1.5, 2.0)  # at noise 0.5
NOISES = (0.1, 0.5, 1.0, 1.5, 2.0)  # at separation 0.5
# Runs use the seeds FIRST_SEED, FIRST_SEED + 1, ...; development used others.
FIRST_SEED = 7000

METHODS: dict[str, Callable[[list[kf.Posterior]], kf.Fusion]] = {
    "default": kf.fuse,
    "paper's letter": lambda silos: kf.fuse(silos, method="relaxed"),
}


@dataclass(frozen=True)
class Run:
    """One method on one simulated set of silos: a row of the CSV."""

    separation: float
    noise: float
    seed: int
    method: str
    true_size: int
    size: int
    hausdorff: float
    ari: float
    seconds: float


def grid(quick: bool) -> list[Simulation]:
    """The points of both figures."""
    base = Simulation()
    separations = (0.25, 2.0) if quick else SEPARATIONS
    noises = (0.1, 1.0) if quick else NOISES
    points = [replace(base, separation=s) for s in separations]
    points += [replace(base, noise=n) for n in noises]
    return list(dict.fromkeys(points))


def run_one(settings: Simulation, seed: int, n_init: int) -> list[Run]:
    """Simulate, fit every silo, fuse with every method."""
    key = [seed, round(1000 * settings.separation), round(1000 * settings.noise)]
    silos = simulate(settings, np.random.default_rng(key))
    start = time.perf_counter()
    models = [
        fit_mixture(x, len(components), seed, n_init)
        for x, components in zip(silos.data, silos.components, strict=True)
    ]
    fit_seconds = time.perf_counter() - start
    truth = [
        true_component(m, x, p) for m, x, p in zip(models, silos.data, silos.points, strict=True)
    ]
    posteriors = [kf.extract(m, name=f"silo-{j}") for j, m in enumerate(models)]
    runs = [_reference(settings, seed, silos, posteriors, truth, fit_seconds)]
    for name, method in METHODS.items():
        start = time.perf_counter()
        fusion = method(posteriors)
        seconds = time.perf_counter() - start
        labels = np.concatenate(fusion.labels)
        runs.append(
            Run(
                settings.separation, settings.noise, seed, name, len(silos.means),
                fusion.n_components,
                hausdorff(fusion.posterior.params()["mean"], silos.means),
                adjusted_rand_score(np.concatenate(truth), labels),
                seconds,
            )
        )  # fmt: skip
    return runs


def _reference(
    settings: Simulation,
    seed: int,
    silos: Silos,
    posteriors: list[kf.Posterior],
    truth: list[Any],
    fit_seconds: float,
) -> Run:
    """Barycenters of the true assignment; its time is that of the local fits."""
    labels, natural = np.concatenate(truth), np.concatenate([p.natural for p in posteriors])
    found = np.unique(labels)
    centres = np.stack([natural[labels == g].mean(axis=0) for g in found])
    means = posteriors[0].family.params(centres)["mean"]
    return Run(
        settings.separation, settings.noise, seed, "true assignment", len(silos.means),
        len(found), hausdorff(means, silos.means), 1.0, fit_seconds,
    )  # fmt: skip


def summary(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Mean figures of each point and method."""
    groups = defaultdict(list)
    for run in runs:
        groups[run.separation, run.noise, run.method].append(run)
    return [
        {
            "separation": separation,
            "noise": noise,
            "method": method,
            "runs": len(group),
            "right_size": float(np.mean([r.size == r.true_size for r in group])),
            "size_error": float(np.mean([abs(r.size - r.true_size) for r in group])),
            "hausdorff": float(np.mean([r.hausdorff for r in group])),
            "hausdorff_se": float(
                np.std([r.hausdorff for r in group], ddof=1) / np.sqrt(len(group))
            )
            if len(group) > 1
            else 0.0,
            "ari": float(np.mean([r.ari for r in group])),
            "seconds": float(np.mean([r.seconds for r in group])),
        }
        for (separation, noise, method), group in groups.items()
    ]


def main(out: Path, seeds: int, quick: bool, n_jobs: int) -> list[dict[str, Any]]:
    """Run everything and write ``runs.csv`` and ``results.json``."""
    tasks = [(point, FIRST_SEED + k) for k in range(2 if quick else seeds) for point in grid(quick)]
    n_init = 4 if quick else 16
    done = Parallel(n_jobs=n_jobs, verbose=0 if quick else 5)(
        delayed(run_one)(point, seed, n_init) for point, seed in tasks
    )
    runs = [run for group in done for run in group]
    out.mkdir(parents=True, exist_ok=True)
    with (out / "runs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(asdict(runs[0])))
        writer.writeheader()
        writer.writerows(asdict(run) for run in runs)
    table = summary(runs)
    settings = {"seeds": seeds, "first_seed": FIRST_SEED, "quick": quick, "n_init": n_init}
    (out / "results.json").write_text(json.dumps({"settings": settings, "rows": table}, indent=1))
    return table
