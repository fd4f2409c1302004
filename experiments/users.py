"""The default on mixtures fitted as people fit them: one start, guessed sizes, default priors.

Clusters of random covariance lie in a box; no two centres are nearer than the separation. A silo
holds some of them and fits a mixture of scikit-learn with default settings, from one start. The
right size is the number of clusters that some silo describes by a component of its own. A component
describes the cluster of most of its observations if it holds half of that cluster's in its silo.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from rich.console import Console
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from threadpoolctl import threadpool_limits

import klfusion as kf
from experiments.simulation import FloatArray, IntArray
from experiments.tables import of_rows

DESCRIPTION = "the default's size on mixtures fitted as people fit them"
FIRST_SEED = 51000  # of consecutive seeds, none of which served development


@dataclass(frozen=True)
class Scenario:
    """How data are dealt to silos, and how silos fit them."""

    n_silos: int
    n_clusters: int  # of all silos
    held: tuple[int, int]  # clusters of one silo, at least and at most; the shared ones included
    dim: int
    rows: tuple[int, ...] = (400,)  # observations per silo, in turn
    shared: int = 0  # clusters that all silos hold
    private: bool = False  # whether no other cluster is in two silos
    surplus: tuple[int, int] = (0, 0)  # components beyond the clusters held, at least and at most
    bayesian: bool = True
    covariance: str = "full"
    separation: float = 4.5  # standard deviations between the nearest centres, at least
    shift: float = 0.25  # standard deviation of a silo's centres, in each dimension
    ask_size: bool = False


SCENARIOS = {
    "two silos, right size": Scenario(2, 5, (5, 5), 2),
    "two silos, guessed size": Scenario(2, 6, (5, 5), 4, shared=4, private=True, surplus=(-1, 2)),
    "five silos, guessed size": Scenario(5, 6, (3, 6), 3, surplus=(-1, 2)),
    "ten silos, right size": Scenario(10, 8, (4, 6), 5),
    "ten silos, over-fitted": Scenario(10, 5, (3, 5), 3, surplus=(4, 7)),
    "ten silos, 60 rows": Scenario(10, 4, (2, 3), 3, rows=(60,)),
    "ten silos, 20 dimensions": Scenario(10, 6, (4, 6), 20, rows=(500,)),
    "fifteen silos, shifted": Scenario(15, 6, (3, 5), 4, shift=0.6, separation=6.0),
    "forty silos, right size": Scenario(40, 7, (3, 5), 3),
    "forty silos, over-fitted": Scenario(40, 6, (3, 4), 2, surplus=(4, 6)),
    "maximum likelihood, right size": Scenario(10, 6, (3, 5), 3, bayesian=False),
    "maximum likelihood, guessed size": Scenario(8, 6, (3, 5), 4, bayesian=False, surplus=(-1, 2)),
    "diagonal": Scenario(10, 6, (3, 5), 6, covariance="diag", surplus=(0, 2)),
    "spherical": Scenario(8, 6, (3, 5), 3, covariance="spherical", surplus=(0, 1)),
    "tied": Scenario(8, 6, (3, 5), 3, covariance="tied"),
    "half shared": Scenario(4, 11, (5, 5), 3, shared=3, private=True),
    "one shared": Scenario(3, 10, (4, 4), 3, shared=1, private=True),
    "none shared": Scenario(4, 16, (4, 4), 3, private=True),
    "two clusters per silo": Scenario(3, 2, (2, 2), 2),
    "two clusters per silo, none shared": Scenario(3, 6, (2, 2), 2, private=True),
    "one component per silo, size asked for": Scenario(20, 4, (1, 1), 3, ask_size=True),
    "ten silos, 30 or 2,000 rows": Scenario(10, 6, (3, 5), 3, rows=(30, 30, 30, 30, 2000)),
    "thirty silos, 40 or 1,000 rows": Scenario(30, 8, (1, 5), 3, rows=(40, 1000)),
}


@dataclass(frozen=True)
class Run:
    """The default on one problem: a row of the CSV."""

    scenario: str
    seed: int
    true_size: int
    size: int
    ari: float
    seconds: float
    by_files: int  # size by `fuse_files`; 0 if that was not asked for


@dataclass(frozen=True, eq=False)
class Problem:
    """Local models, the true cluster of each of their components (-1: none), and the size."""

    models: list[kf.Posterior]
    truth: IntArray
    true_size: int
    data: list[FloatArray]
    held_out: list[FloatArray]  # as many observations of each silo


def draw(scenario: Scenario, rng: np.random.Generator) -> Problem:
    """Draw clusters, deal them to silos, and fit each silo."""
    centres, roots = _clusters(scenario, rng)
    models, truth, described = [], [], set[int]()
    data, mixtures = [], []

    def observations(points: IntArray, local: FloatArray) -> FloatArray:
        noise = rng.normal(size=(len(points), scenario.dim))
        return np.asarray(local[points] + np.einsum("nij,nj->ni", roots[points], noise))

    for j, held in enumerate(_dealt(scenario, rng)):
        shares = rng.dirichlet(np.full(len(held), 4.0))
        points = rng.choice(held, p=shares, size=scenario.rows[j % len(scenario.rows)])
        local = centres + scenario.shift * rng.normal(size=centres.shape)
        x = observations(points, local)
        size = max(1, len(held) + int(rng.integers(*scenario.surplus, endpoint=True)))
        model = fit(scenario, x, size, int(rng.integers(2**31)))
        count = {} if scenario.bayesian else {"n_observations": len(x)}
        models.append(kf.extract(model, f"silo-{j}", **count))
        own, whole = _true_clusters(model, x, points, scenario.n_clusters)
        truth.append(own)
        described |= set(own[whole].tolist())
        data.append(x)
        mixtures.append((held, shares, local))
    held_out = [
        observations(rng.choice(held, p=shares, size=len(x)), local)
        for x, (held, shares, local) in zip(data, mixtures, strict=True)
    ]
    return Problem(models, np.concatenate(truth), len(described), data, held_out)


def _clusters(scenario: Scenario, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Centres (clusters, dim) and roots of covariances (clusters, dim, dim)."""
    side = 1.2 * scenario.separation * scenario.n_clusters ** (1.0 / scenario.dim)
    centres = np.empty((0, scenario.dim))
    while len(centres) < scenario.n_clusters:
        place = rng.uniform(0.0, side, size=scenario.dim)
        if (np.linalg.norm(centres - place, axis=1) >= scenario.separation).all():
            centres = np.vstack([centres, place])
    scales = np.sqrt(rng.uniform(0.25, 2.0, size=centres.shape))
    turns = np.linalg.qr(rng.normal(size=(len(centres), scenario.dim, scenario.dim)))[0]
    if scenario.covariance == "tied":
        scales, turns = np.broadcast_to(scales[0], scales.shape), turns[:1]
    if scenario.covariance == "diag":
        turns = np.eye(scenario.dim)[None]
    if scenario.covariance == "spherical":
        scales = np.broadcast_to(scales[:, :1], scales.shape)
    return centres, np.broadcast_to(turns, (len(centres), *turns.shape[1:])) * scales[:, None, :]


def _dealt(scenario: Scenario, rng: np.random.Generator) -> list[IntArray]:
    """The clusters of each silo."""
    shared, total = scenario.shared, scenario.n_clusters
    least, most = scenario.held
    if scenario.private:
        own = np.split(np.arange(shared, total), scenario.n_silos)
        return [np.concatenate([np.arange(shared), some]) for some in own]
    sizes = rng.integers(least, most, endpoint=True, size=scenario.n_silos)
    return [rng.choice(total, size=size, replace=False) for size in sizes]


def fit(scenario: Scenario, x: FloatArray, size: int, seed: int) -> Any:
    """A mixture of scikit-learn's default settings, from one start."""
    kind = BayesianGaussianMixture if scenario.bayesian else GaussianMixture
    model = kind(n_components=size, covariance_type=scenario.covariance, random_state=seed)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(x)


def _true_clusters(
    model: Any, x: FloatArray, points: IntArray, total: int
) -> tuple[IntArray, FloatArray]:
    """Cluster of most observations of each component, -1 for none; whether it holds half of it."""
    table = np.zeros((model.n_components, total))
    np.add.at(table, (model.predict(x), points), 1.0)
    own = np.where(table.sum(axis=1) > 0, table.argmax(axis=1), -1)
    whole = table.max(axis=1) > 0.5 * table.sum(axis=0)[own]
    return own, whole & (table.max(axis=1) > 0.5 * table.sum(axis=1))


def by_files(models: list[kf.Posterior], size: int | None) -> int:
    """The size that `fuse_files` finds."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{model.name}.safetensors" for model in models]
        for path, model in zip(paths, models, strict=True):
            kf.save(path, model)
        return kf.fuse_files(paths, n_components=size).n_components


def run_one(name: str, seed: int, files: bool = False) -> Run:
    """Draw a problem, fuse it by default, and compare the matching with the truth."""
    scenario = SCENARIOS[name]
    problem = draw(scenario, np.random.default_rng([seed, list(SCENARIOS).index(name)]))
    size = problem.true_size if scenario.ask_size else None
    with threadpool_limits(1):
        start = time.process_time()
        fusion = kf.fuse(problem.models, n_components=size, progress=False)
        seconds = time.process_time() - start
        found = by_files(problem.models, size) if files else 0
    labels = np.concatenate(list(fusion.labels))
    known = (labels >= 0) & (problem.truth >= 0)
    ari = float(adjusted_rand_score(problem.truth[known], labels[known]))
    return Run(name, seed, problem.true_size, fusion.n_components, ari, seconds, found)


def summary(runs: list[Run]) -> list[dict[str, Any]]:
    """Shares of right sizes and mean indices per scenario, and of all."""
    groups = {name: [run for run in runs if run.scenario == name] for name in SCENARIOS}
    groups["all"] = runs
    return [
        {
            "scenario": name,
            "runs": len(group),
            "right_size": float(np.mean([run.size == run.true_size for run in group])),
            "mean_error": float(np.mean([run.size - run.true_size for run in group])),
            "ari": float(np.mean([run.ari for run in group])),
            "cpu_seconds": float(np.mean([run.seconds for run in group])),
        }
        | _of_files(group)
        for name, group in groups.items()
        if group
    ]


def _of_files(group: list[Run]) -> dict[str, float]:
    """The share of problems in which `fuse_files` found the same size, if it was called."""
    same = [run.size == run.by_files for run in group if run.by_files]
    return {"same_by_files": float(np.mean(same))} if same else {}


def run(out: Path, seeds: int, n_jobs: int, files: bool = False) -> list[dict[str, Any]]:
    """Run everything; write ``runs.csv`` and ``results.json``."""
    tasks = [(name, FIRST_SEED + k, files) for k in range(seeds) for name in SCENARIOS]
    runs = list(Parallel(n_jobs=n_jobs)(delayed(run_one)(*task) for task in tasks))
    out.mkdir(parents=True, exist_ok=True)
    with (out / "runs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(asdict(runs[0])))
        writer.writeheader()
        writer.writerows(asdict(one) for one in runs)
    rows = summary(runs)
    settings = {"seeds": seeds, "first_seed": FIRST_SEED, "problems": len(runs)}
    (out / "results.json").write_text(json.dumps({"settings": settings, "rows": rows}, indent=1))
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m experiments users``."""
    parser.add_argument("--seeds", type=int, default=10, help="problems per scenario")
    parser.add_argument("--quick", action="store_true", help="one problem per scenario")
    parser.add_argument("--files", action="store_true", help="also by fuse_files: the same size?")
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 is one per core")


def main(args: argparse.Namespace, console: Console) -> None:
    """Run everything, show the table."""
    console.print(of_rows(run(args.out, 1 if args.quick else args.seeds, args.jobs, args.files)))
