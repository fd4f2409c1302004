"""Section 5.1: fusion of Gaussian mixtures under varying separation and heterogeneity."""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from rich.console import Console
from rich.table import Table
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

import klfusion as kf
from experiments import figures, fuse_by_average
from experiments.simulation import (
    Simulation,
    fit_once,
    fit_pooled,
    fit_silo,
    hausdorff,
    simulate,
    true_component,
)

DESCRIPTION = "Gaussian mixtures under varying separation and heterogeneity (section 5.1)"
SEPARATIONS = (0.1, 0.25, 0.5, 1.0, 1.5, 2.0)  # at noise 0.5
NOISES = (0.1, 0.5, 1.0, 1.5, 2.0)  # at separation 0.5
# First of consecutive seeds, none of which served development.
FIRST_SEED = 15000

Fuse = Callable[[list[kf.Posterior]], kf.Fusion]
METHODS: dict[str, Fuse] = {
    "klfusion": fuse_by_average,
    "klfusion, random effects": lambda silos: kf.fuse(silos, pooling="random-effects"),
    "paper's letter": lambda silos: fuse_by_average(silos, method="relaxed"),
    "SPAHM": kf.baselines.spahm,
    "DP clustering": kf.baselines.dp_clustering,
}
ONE_START, ORACLE, REFERENCE = "pooled VI, one start", "pooled VI, true size", "true assignment"


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
    """Simulate, fit every silo, fuse with every method, fit the pooled data."""
    key = [seed, round(1000 * settings.separation), round(1000 * settings.noise)]
    silos = simulate(settings, np.random.default_rng(key))
    start = time.perf_counter()
    models = [
        fit_silo(settings, x, len(components), seed, n_init)
        for x, components in zip(silos.data, silos.components, strict=True)
    ]
    fit_seconds = time.perf_counter() - start
    truth = [
        true_component(m, x, p) for m, x, p in zip(models, silos.data, silos.points, strict=True)
    ]
    posteriors = [kf.extract(m, name=f"silo-{j}") for j, m in enumerate(models)]

    def row(method: str, means: Any, labels: Any, seconds: float) -> Run:
        known = np.concatenate(truth) >= 0
        return Run(
            settings.separation, settings.noise, seed, method, len(silos.means), len(means),
            hausdorff(means, silos.means),
            float(adjusted_rand_score(np.concatenate(truth)[known], labels[known])), seconds,
        )  # fmt: skip

    natural, labels = np.concatenate([p.natural for p in posteriors]), np.concatenate(truth)
    centres = np.stack([natural[labels == g].mean(axis=0) for g in np.unique(labels[labels >= 0])])
    # The time of the reference is that of the local fits.
    means = posteriors[0].family.params(centres)["mean"]
    runs = [row(REFERENCE, means, labels, fit_seconds)]
    for name, method in METHODS.items():
        start = time.perf_counter()
        with threadpool_limits(1):
            fusion = method(posteriors)
        seconds = time.perf_counter() - start
        found = fusion.posterior.params()["mean"]
        runs.append(row(name, found, np.concatenate(fusion.labels), seconds))
    pooled, size = np.concatenate(silos.data), len(silos.means)
    for name, fit in ((ONE_START, fit_once), (ORACLE, partial(fit_pooled, n_init=n_init))):
        start = time.perf_counter()
        model = fit(pooled, size, seed)
        runs.append(row(name, model.means_, labels, time.perf_counter() - start))
    return runs


def summary(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Mean figures of each point and method, with standard errors."""
    groups = defaultdict(list)
    for run in runs:
        groups[run.separation, run.noise, run.method].append(run)
    rows = []
    for (separation, noise, method), group in groups.items():
        errors = np.array([abs(r.size - r.true_size) for r in group], dtype=np.float64)
        distances = np.array([r.hausdorff for r in group])
        rows.append(
            {
                "separation": separation, "noise": noise, "method": method, "runs": len(group),
                "right_size": float((errors == 0).mean()),
                "size_error": float(errors.mean()), "size_error_se": _standard_error(errors),
                "hausdorff": float(distances.mean()), "hausdorff_se": _standard_error(distances),
                "ari": float(np.mean([r.ari for r in group])),
                "seconds": float(np.mean([r.seconds for r in group])),
            }
        )  # fmt: skip
    return rows


def _standard_error(values: Any) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m experiments simulated``."""
    parser.add_argument("--seeds", type=int, default=10, help="runs per point")
    parser.add_argument("--quick", action="store_true", help="few points, two seeds")
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 is one per core")


def main(args: argparse.Namespace, console: Console) -> None:
    """Run everything, show the table."""
    console.print(shown(run(args.out, args.seeds, args.quick, args.jobs)))


def run(out: Path, seeds: int, quick: bool, n_jobs: int) -> list[dict[str, Any]]:
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
    figures.curves(table, out)
    figures.illustration(out)
    return table


def shown(rows: list[dict[str, Any]]) -> Table:
    """A table of rows."""
    table = Table("separation", "noise", "method", "right size", "size error", "Hausdorff", "ARI")
    for row in sorted(rows, key=lambda r: (r["separation"], r["noise"], r["method"])):
        table.add_row(
            f"{row['separation']:g}",
            f"{row['noise']:g}",
            row["method"],
            f"{row['right_size']:.0%}",
            f"{row['size_error']:.2f}",
            f"{row['hausdorff']:.2f} ± {row['hausdorff_se']:.2f}",
            f"{row['ari']:.3f}",
        )
    return table
