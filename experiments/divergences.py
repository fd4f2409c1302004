"""Every divergence on the simulated mixtures of section 5.1, at the true size."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from rich.console import Console
from rich.table import Table
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

import klfusion as kf
from experiments import fuse_by_average
from experiments.simulation import Simulation, fit_mixture, hausdorff, simulate, true_component
from klfusion.objective.divergences import DIVERGENCES

DESCRIPTION = "every divergence on the simulated mixtures, at their true size"
POINTS = ((0.25, 0.5), (0.5, 0.5), (2.0, 0.5), (0.5, 1.0), (0.5, 2.0))  # separation, noise
# First of consecutive seeds, none of which served development.
FIRST_SEED = 8000
POSTERIORS, GAUSSIANS = "posteriors", "Gaussians"


@dataclass(frozen=True)
class Run:
    """One divergence on one simulated set of silos."""

    separation: float
    noise: float
    seed: int
    components: str
    divergence: str
    hausdorff: float
    ari: float
    seconds: float


def gaussians(posterior: kf.Posterior) -> kf.Posterior:
    """The components as Gaussians with their expected parameters."""
    p = posterior.params()
    family = kf.families.Normal(p["mean"].shape[1])
    covariance = p["scale_inv"] / p["dof"][:, None, None]
    return kf.Posterior(family, family.natural(p["mean"], covariance), name=posterior.name)


def run_one(settings: Simulation, seed: int) -> list[Run]:
    """Simulate, fit every silo, fuse with every divergence at the true size."""
    key = [seed, round(1000 * settings.separation), round(1000 * settings.noise)]
    silos = simulate(settings, np.random.default_rng(key))
    models = [
        fit_mixture(x, len(components), seed, n_init=4)
        for x, components in zip(silos.data, silos.components, strict=True)
    ]
    truth = np.concatenate(
        [true_component(m, x, p) for m, x, p in zip(models, silos.data, silos.points, strict=True)]
    )
    posteriors = [kf.extract(m, name=f"silo-{j}") for j, m in enumerate(models)]
    runs = []
    for components in (POSTERIORS, GAUSSIANS):
        given = posteriors if components == POSTERIORS else [gaussians(p) for p in posteriors]
        for name in DIVERGENCES:
            if name == "wasserstein" and components == POSTERIORS:
                continue  # defined between Gaussians only
            start = time.perf_counter()
            with threadpool_limits(1):
                fusion = fuse_by_average(
                    given, method=kf.Binary(divergence=name), n_components=len(silos.means)
                )
            seconds = time.perf_counter() - start
            labels, known = np.concatenate(fusion.labels), truth >= 0
            runs.append(
                Run(
                    settings.separation,
                    settings.noise,
                    seed,
                    components,
                    name,
                    hausdorff(fusion.posterior.params()["mean"], silos.means),
                    float(adjusted_rand_score(truth[known], labels[known])),
                    seconds,
                )
            )
    return runs


def summary(runs: list[Run]) -> list[dict[str, Any]]:
    """Means over seeds."""
    keys = dict.fromkeys((r.components, r.divergence, r.separation, r.noise) for r in runs)
    rows = []
    for components, divergence, separation, noise in keys:
        own = [
            r
            for r in runs
            if (r.components, r.divergence, r.separation, r.noise)
            == (components, divergence, separation, noise)
        ]
        rows.append(
            {
                "components": components, "divergence": divergence,
                "separation": separation, "noise": noise, "runs": len(own),
                "hausdorff": float(np.mean([r.hausdorff for r in own])),
                "ari": float(np.mean([r.ari for r in own])),
                "seconds": float(np.mean([r.seconds for r in own])),
            }
        )  # fmt: skip
    return rows


def shown(rows: list[dict[str, Any]]) -> Table:
    """Hausdorff distance / adjusted Rand index at each point."""
    points = list(dict.fromkeys((r["separation"], r["noise"]) for r in rows))
    table = Table("components", "divergence", *(f"s {s:g}, n {n:g}" for s, n in points), "seconds")
    for components, divergence in dict.fromkeys((r["components"], r["divergence"]) for r in rows):
        own = [r for r in rows if (r["components"], r["divergence"]) == (components, divergence)]
        cells = [f"{r['hausdorff']:.2f} / {r['ari']:.2f}" for r in own]
        seconds = float(np.mean([r["seconds"] for r in own]))
        table.add_row(components, divergence, *cells, f"{seconds:.2f}")
    return table


def run(out: Path, seeds: int, n_jobs: int, points: list[Simulation]) -> list[dict[str, Any]]:
    """Run everything and write ``results.json``."""
    tasks = [(point, FIRST_SEED + k) for k in range(seeds) for point in points]
    done = Parallel(n_jobs=n_jobs)(delayed(run_one)(point, seed) for point, seed in tasks)
    runs = [one for group in done for one in group]
    rows = summary(runs)
    out.mkdir(parents=True, exist_ok=True)
    results = {"seeds": seeds, "first_seed": FIRST_SEED, "rows": rows}
    results["runs"] = [asdict(one) for one in runs]
    (out / "results.json").write_text(json.dumps(results, indent=1))
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m experiments divergences``."""
    parser.add_argument("--seeds", type=int, default=5, help="runs per point")
    parser.add_argument("--silos", type=int, default=20, help="silos per run")
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 is one per core")


def main(args: argparse.Namespace, console: Console) -> None:
    """Run everything, show the table."""
    points = [Simulation(separation=s, noise=n, n_silos=args.silos) for s, n in POINTS]
    console.print(shown(run(args.out, args.seeds, args.jobs, points)))
