"""How often the default matches rightly where few silos share all, some or none of their clusters.

Silos hold four or six clusters of unit deviation in three dimensions. No two clusters of a problem
are nearer to each other than the separation. A silo sees each of its clusters shifted by up to so
many deviations, and fits a `BayesianGaussianMixture` of the right size to 75 observations per
cluster.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from rich.console import Console
from rich.table import Table
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

import klfusion as kf
from experiments.simulation import FloatArray, IntArray, fit_once, true_component
from experiments.tables import of_rows

DESCRIPTION = "the default's matching of few silos that share all, some or none of their clusters"
# Development used other seeds.
FIRST_SEED = 27000
N_SILOS = (2, 3, 5)
SEPARATIONS = (6.0, 12.0)  # deviations between the nearest clusters, at least
SIZES = (4, 6)  # clusters per silo
SHIFTS = (0.0, 1.0, 2.0)  # deviations, at most
SHARED: dict[str, Callable[[int], int]] = {  # clusters that all silos hold, of so many per silo
    "all": lambda size: size,
    "half": lambda size: size // 2,
    "one": lambda _: 1,
    "none": lambda _: 0,
}
DIM = 3
POINTS = 75  # observations per cluster, on average
# The box in which clusters lie has this many separations per side for one cluster, and grows with
# their number. With less room, random places at the separation would hardly be found.
ROOM = 1.2


@dataclass(frozen=True)
class Setting:
    """One kind of problem."""

    sharing: str
    n_silos: int
    separation: float
    size: int
    shift: float

    @property
    def n_shared(self) -> int:
        """Clusters that every silo holds."""
        return SHARED[self.sharing](self.size)

    @property
    def n_clusters(self) -> int:
        """Clusters of all silos."""
        return self.n_shared + self.n_silos * (self.size - self.n_shared)


@dataclass(frozen=True)
class Run:
    """The default on one problem: a row of the CSV.

    ``fitted`` is False where a local fit has no component for some cluster. Such a problem has no
    right matching; it is not fused.
    """

    sharing: str
    n_silos: int
    separation: float
    size: int
    shift: float
    seed: int
    fitted: bool
    true_size: int
    found_size: int
    right: bool
    ari: float


def grid(quick: bool = False) -> list[Setting]:
    """All settings; ``quick`` keeps those of four clusters per silo."""
    sizes = SIZES[:1] if quick else SIZES
    return [Setting(*values) for values in product(SHARED, N_SILOS, SEPARATIONS, sizes, SHIFTS)]


def centres(setting: Setting, rng: np.random.Generator) -> FloatArray:
    """Random places in a box, (clusters, dimensions), none nearer than the separation."""
    side = ROOM * setting.separation * setting.n_clusters ** (1.0 / DIM)
    found = np.empty((0, DIM))
    while len(found) < setting.n_clusters:
        place = rng.uniform(0.0, side, size=DIM)
        if (np.linalg.norm(found - place, axis=1) >= setting.separation).all():
            found = np.vstack([found, place])
    return found


def held(setting: Setting, silo: int) -> IntArray:
    """The clusters of a silo: those that all share, and its own."""
    own = setting.size - setting.n_shared
    first = setting.n_shared + silo * own
    return np.concatenate([np.arange(setting.n_shared), np.arange(first, first + own)])


def shifts(setting: Setting, rng: np.random.Generator) -> FloatArray:
    """Uniform in a ball, (clusters of a silo, dimensions)."""
    direction = rng.normal(size=(setting.size, DIM))
    length = setting.shift * rng.uniform(size=(setting.size, 1)) ** (1.0 / DIM)
    return np.asarray(length * direction / np.linalg.norm(direction, axis=1, keepdims=True))


def run_one(setting: Setting, seed: int) -> Run:
    """Draw a problem, fit its silos, fuse, and compare the matching with the truth."""
    numbers = [list(SHARED).index(setting.sharing), setting.n_silos, round(setting.separation)]
    rng = np.random.default_rng([seed, *numbers, setting.size, round(10 * setting.shift)])
    places = centres(setting, rng)
    models, truth = {}, []
    for j in range(setting.n_silos):
        clusters = held(setting, j)
        local = places[clusters] + shifts(setting, rng)
        points = rng.integers(setting.size, size=POINTS * setting.size)
        x = local[points] + rng.normal(size=(len(points), DIM))
        models[f"silo-{j}"] = fit_once(x, setting.size, seed)
        truth.append(true_component(models[f"silo-{j}"], x, clusters[points]))
    if any(set(own) != set(held(setting, j)) for j, own in enumerate(truth)):
        return Run(**asdict(setting), seed=seed, fitted=False, true_size=setting.n_clusters,
                   found_size=0, right=False, ari=0.0)  # fmt: skip
    with threadpool_limits(1):
        fusion = kf.fuse(models, progress=False)
    true, labels = np.concatenate(truth), np.concatenate(list(fusion.labels))
    kept = labels >= 0
    ari = float(adjusted_rand_score(true[kept], labels[kept]))
    return Run(
        **asdict(setting), seed=seed, fitted=True, true_size=setting.n_clusters,
        found_size=fusion.n_components, right=same_partition(true, labels), ari=ari,
    )  # fmt: skip


def same_partition(true: IntArray, labels: IntArray) -> bool:
    """Whether components are of one cluster where they have one label, and none is left out."""
    pairs = set(zip(true.tolist(), labels.tolist(), strict=True))
    sizes = {len(pairs), len(set(true.tolist())), len(set(labels.tolist()))}
    return bool((labels >= 0).all()) and len(sizes) == 1


def summary(runs: list[Run]) -> list[dict[str, Any]]:
    """Shares per level of sharing, over all problems and per value of each other setting."""
    rows = []
    for sharing in dict.fromkeys(run.sharing for run in runs):
        group = [run for run in runs if run.sharing == sharing]
        rows.append({"sharing": sharing, "setting": "all", **_figures(group)})
        for key in ("n_silos", "separation", "size", "shift"):
            for value in dict.fromkeys(getattr(run, key) for run in group):
                part = [run for run in group if getattr(run, key) == value]
                rows.append({"sharing": sharing, "setting": f"{key} {value:g}", **_figures(part)})
    return rows


def _figures(group: list[Run]) -> dict[str, Any]:
    fitted = [run for run in group if run.fitted]

    def mean(values: list[Any]) -> float | None:
        return float(np.mean(values)) if values else None

    return {
        "problems": len(fitted),
        "failed_fits": len(group) - len(fitted),
        "right_matching": mean([run.right for run in fitted]),
        "right_size": mean([run.found_size == run.true_size for run in fitted]),
        "ari": mean([run.ari for run in fitted]),
    }


def run(out: Path, seeds: int, quick: bool, n_jobs: int) -> list[dict[str, Any]]:
    """Run everything; write ``runs.csv`` and ``results.json``."""
    tasks = [(setting, FIRST_SEED + k) for k in range(seeds) for setting in grid(quick)]
    runs = list(Parallel(n_jobs=n_jobs)(delayed(run_one)(setting, seed) for setting, seed in tasks))
    out.mkdir(parents=True, exist_ok=True)
    with (out / "runs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(asdict(runs[0])))
        writer.writeheader()
        writer.writerows(asdict(one) for one in runs)
    rows = summary(runs)
    settings = {"seeds": seeds, "first_seed": FIRST_SEED, "quick": quick, "problems": len(runs)}
    (out / "results.json").write_text(json.dumps({"settings": settings, "rows": rows}, indent=1))
    return rows


def shown(rows: list[dict[str, Any]]) -> Table:
    """One row per level of sharing and setting."""
    return of_rows(rows, section=("setting", "all"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m experiments sharing``."""
    parser.add_argument("--seeds", type=int, default=5, help="problems per setting")
    parser.add_argument("--quick", action="store_true", help="a tenth: one seed, four clusters")
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 is one per core")


def main(args: argparse.Namespace, console: Console) -> None:
    """Run everything, show the table."""
    seeds = 1 if args.quick else args.seeds
    console.print(shown(run(args.out, seeds, args.quick, args.jobs)))
