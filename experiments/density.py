"""Log-density of held-out observations: fused and predictive mixtures, rivals, pooled data."""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from rich.console import Console
from rich.table import Table
from scipy.special import logsumexp
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import klfusion as kf
from experiments import data as data_sets
from experiments import density_limit as limit
from experiments import images, users
from experiments.simulation import FloatArray, IntArray
from klfusion.posteriors.structure.structure import with_prior

DESCRIPTION = "log-density of held-out data by fused mixtures, rivals and pooled data"
FIRST_SEED = 9300  # of consecutive seeds, none of which served development
_FEWEST = 30  # observations of a silo; fewer fit no mixture
_Data = tuple[list[FloatArray], FloatArray]  # of each silo, and held out


@dataclass(frozen=True)
class Cell:
    """Data, and the local mixtures of scikit-learn's defaults that are fitted to them."""

    name: str
    load: Callable[[int, Path | None], _Data]
    n_components: tuple[int, int]  # range from which each silo guesses its size
    covariance_type: str = "full"


@lru_cache(maxsize=1)
def _mnist(data_dir: Path | None) -> tuple[FloatArray, IntArray, FloatArray]:
    found = images.load("mnist", data_dir)
    pca = PCA(12, random_state=0).fit(found.train)
    train, test = (pca.transform(x).astype(np.float64) for x in (found.train, found.test))
    return train, found.train_digits.astype(np.intp), test


def mnist(concentration: float, seed: int, data_dir: Path | None) -> _Data:
    """Twelve principal components of images, dealt to ten silos by digit."""
    train, digits, test = _mnist(data_dir)
    silos = images.deal(digits.astype(np.int64), seed, 10, concentration)
    return [train[rows] for rows in silos if len(rows) >= _FEWEST], test


def table(name: str, seed: int, data_dir: Path | None) -> _Data:
    """A data set of scikit-learn, a third held out, dealt to three or five silos by class."""
    del data_dir
    if name == "digits":
        found = images.load("digits", None)
        x = np.concatenate([found.train, found.test]).astype(np.float64)
        y = np.concatenate([found.train_digits, found.test_digits])
        x = PCA(8, random_state=0).fit_transform(x)
    else:
        x, y = (load_wine if name == "wine" else load_breast_cancer)(return_X_y=True)
        x = StandardScaler().fit_transform(np.log1p(x) if name == "cancer" else x)
        x = x[:, :10] if name == "cancer" else x  # means of ten measurements
    rows = np.random.default_rng(seed).permutation(len(x))
    held_out, rows = rows[: len(x) // 3], rows[len(x) // 3 :]
    silos = images.deal(y[rows].astype(np.int64), seed, 3 if name == "wine" else 5, 2.0)
    return [x[rows[own]] for own in silos if len(own) >= _FEWEST], x[held_out]


def simulated(dim: int, n_silos: int, n_points: int, seed: int, data_dir: Path | None) -> _Data:
    """Six components, of which each silo has two to four."""
    del data_dir
    rng = np.random.default_rng([seed, dim, n_silos])
    means = rng.normal(scale=8.0 / np.sqrt(dim), size=(6, dim))
    half = np.linalg.qr(rng.normal(size=(6, dim, dim)))[0] * rng.uniform(0.5, 1.5, (6, 1, dim))

    def draw(which: IntArray) -> FloatArray:
        noise = rng.normal(size=(len(which), dim))
        return np.asarray(means[which] + np.einsum("nij,nj->ni", half[which], noise))

    silos, all_ = [], []
    for _ in range(n_silos):
        own = rng.choice(6, size=rng.integers(2, 5), replace=False)
        which = own[rng.choice(len(own), size=n_points, p=rng.dirichlet(np.full(len(own), 5.0)))]
        silos.append(draw(which))
        all_.append(which)
    return silos, draw(rng.choice(np.concatenate(all_), size=20_000))


CELLS = [
    *(Cell(f"MNIST, {c:g}", partial(mnist, c), (10, 10)) for c in (0.1, 0.5, 5.0)),
    Cell("digits", partial(table, "digits"), (5, 5)),
    Cell("wine, diagonal", partial(table, "wine"), (3, 3), "diag"),
    Cell("breast cancer", partial(table, "cancer"), (2, 2)),
    *(
        Cell(f"{dim} dimensions, {j} silos of {n}", partial(simulated, dim, j, n), (2, 5))
        for dim, j, n in ((2, 40, 60), (2, 5, 300), (5, 10, 300), (10, 20, 300), (20, 10, 600),
                          (20, 2, 2000))
    ),
]  # fmt: skip


def density(model: Any, x: FloatArray) -> float:
    """Average log-density by weights, means and covariances, in nats.

    The `score` of a Bayesian mixture is a lower bound, which depends on what it knows of them.
    """
    n, dim = model.means_.shape
    covariance = model.covariances_
    if model.covariance_type == "tied":
        covariance = np.broadcast_to(covariance, (n, dim, dim))
    elif model.covariance_type != "full":
        covariance = np.reshape(covariance, (n, -1))[:, :, None] * np.eye(dim)
    lower = np.linalg.cholesky(covariance)
    terms = []
    for k in np.flatnonzero(model.weights_ > 0):
        z = np.linalg.solve(lower[k], (x - model.means_[k]).T)
        constant = np.log(np.diag(lower[k])).sum() + 0.5 * dim * np.log(2.0 * np.pi)
        terms.append(np.log(model.weights_[k]) - constant - 0.5 * np.square(z).sum(axis=0))
    return float(logsumexp(terms, axis=0).mean())


@dataclass(frozen=True, eq=False)
class Notes:
    """Log-density of held-out observations, size and CPU seconds of models, by name."""

    test: FloatArray
    found: dict[str, dict[str, float]]

    def note(self, name: str, make: Callable[[], Any]) -> None:
        """Make a model and note them."""
        start = time.process_time()
        model = make()
        seconds = time.process_time() - start
        size = len(model.weights_)
        self.found[name] = {"density": density(model, self.test), "size": size, "seconds": seconds}


@dataclass(frozen=True, eq=False)
class Fits:
    """Silos, what is held out, and the local models."""

    cell: Cell
    seed: int
    silos: list[FloatArray]
    test: FloatArray
    models: dict[str, Any]

    def pooled(self, size: int) -> Any:
        """A mixture of all data."""
        return _fit(self.cell, self.seed, np.concatenate(self.silos), size)


def _fit(cell: Cell, seed: int, x: FloatArray, size: int) -> Any:
    model = BayesianGaussianMixture(
        n_components=min(size, len(x) // 2),
        covariance_type=cell.covariance_type,
        random_state=seed,
    )
    return model.fit(x)


def local_fits(cell: Cell, seed: int, data_dir: Path | None) -> Fits:
    """Every silo fits a mixture of a size that it guesses."""
    silos, test = cell.load(seed, data_dir)
    rng, (low, high) = np.random.default_rng([seed, 1]), cell.n_components
    sizes = [int(rng.integers(low, high + 1)) for _ in silos]
    models = {f"silo-{j}": _fit(cell, seed, x, sizes[j]) for j, x in enumerate(silos)}
    return Fits(cell, seed, silos, test, models)


def run_one(cell: Cell, seed: int, data_dir: Path | None) -> dict[str, Any]:
    """One set of silos: log-density, size and CPU seconds of every model."""
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fits = local_fits(cell, seed, data_dir)
        models, notes = fits.models, Notes(fits.test, {})
        fusion = kf.fuse(models)
        size = fusion.n_components
        note = notes.note
        note("default", fusion.model)
        note("predictive", lambda: fusion.model(predictive=True))
        note("product", lambda: kf.fuse(models, pooling="product").model())
        note("average", lambda: kf.fuse(models, pooling="average").model())
        rival = partial(kf.baselines.fedgen_gmm, models, n_components=size, random_state=seed)
        note("FedGenGMM", rival)
        note("all components", lambda: kf.baselines.concatenation(models))
        note("all, without priors", lambda: kf.baselines.concatenation(models, prior=False))
        note("pooled data", lambda: fits.pooled(size))
    return {"cell": cell.name, "seed": seed, "found": notes.found}


def run_limit(cell: Cell, seed: int, data_dir: Path | None) -> dict[str, Any]:
    """One set of silos: mixtures that the pooled data help; their misfits to what was sent."""
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fits = local_fits(cell, seed, data_dir)
        fusion, all_ = kf.fuse(fits.models), kf.baselines.concatenation(fits.models, prior=False)
        every = limit.sent([*fits.models.values()], all_, fits.silos)
        x = np.concatenate(fits.silos)
        best = limit.with_weights(all_, x)
        pooled, predictive = fits.pooled(fusion.n_components), fusion.model(predictive=True)
        rounds = [*islice(limit.projections(pooled, fits.silos, every), 11)]
        of_predictive = next(limit.projections(predictive, fits.silos, every))
    models = {"default": fusion.model(), "predictive": predictive, "all, best weights": best}
    models |= {f"predictive, {n} steps": limit.refitted(predictive, x, n) for n in (1, 10)}
    models |= {f"pooled data, {n} rounds": rounds[n][0] for n in (0, 1, 3, 10)}
    values = {name: density(model, fits.test) for name, model in models.items()}
    values |= {"misfit of predictive": of_predictive[1], "misfit of pooled data": rounds[0][1]}
    size = fusion.n_components
    found = {name: {"density": v, "size": size, "seconds": 0} for name, v in values.items()}
    return {"cell": cell.name, "seed": seed, "found": found}


def run_user(name: str, seed: int) -> dict[str, Any]:
    """One problem of `experiments.users`: the fused models, all components, and pooled data."""
    scenario = users.SCENARIOS[name]
    problem = users.draw(scenario, np.random.default_rng([seed, [*users.SCENARIOS].index(name)]))
    notes = Notes(np.concatenate(problem.held_out), {})
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        size = problem.true_size if scenario.ask_size else None
        fusion = kf.fuse(problem.models, n_components=size)
        notes.note("default", fusion.model)
        notes.note("predictive", lambda: fusion.model(predictive=True))
        notes.note("all components", lambda: kf.baselines.concatenation(problem.models))
        all_ = partial(kf.baselines.concatenation, problem.models, prior=False)
        notes.note("all, without priors", all_)
        x = np.concatenate(problem.data)
        notes.note("pooled data", lambda: users.fit(scenario, x, fusion.n_components, seed))
        right = partial(users.fit, scenario, x, problem.true_size, seed)
        notes.note("pooled, right size", right)
    return {"cell": name, "seed": seed, "found": notes.found}


POINTS = [(2, 60), (2, 300), (8, 60), (8, 300), (15, 60), (15, 300), (20, 60), (20, 300)]


def run_point(dim: int, n: int, seed: int) -> dict[str, Any]:
    """Five silos fit three clusters, ``n`` observations of each in all, by maximum likelihood."""
    rng = np.random.default_rng([seed, dim, n])
    centres = rng.normal(scale=5.0, size=(3, dim))

    def draw(m: int) -> FloatArray:
        return np.asarray(centres[rng.integers(3, size=m)] + rng.normal(size=(m, dim)))

    def fit(x: FloatArray, size: int, n_init: int = 1) -> Any:
        return GaussianMixture(size, n_init=n_init, random_state=seed).fit(x)

    silos, notes = [draw(3 * n // 5) for _ in range(5)], Notes(draw(10_000), {})
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        models = [
            kf.extract(fit(x, 3), name=f"silo-{j}", n_observations=len(x))
            for j, x in enumerate(silos)
        ]
        fusion = kf.fuse(models)
        notes.note("default", fusion.model)
        notes.note("predictive", lambda: fusion.model(predictive=True))
        kept = replace(fusion.posterior, structure=with_prior(fusion.posterior.structure))
        notes.note("prior left in", lambda: kf.adapters.rebuild(kept))
        notes.note("all components", lambda: kf.baselines.concatenation(models))
        pooled = partial(fit, np.concatenate(silos), fusion.n_components, 5)
        notes.note("pooled data", pooled)
    return {"cell": f"{dim} dimensions, {n} rows", "seed": seed, "found": notes.found}


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over the runs of each cell."""
    rows = []
    for cell in dict.fromkeys(run["cell"] for run in runs):
        own = [run["found"] for run in runs if run["cell"] == cell]
        for name in own[0]:
            values = {
                key: float(np.mean([f[name][key] for f in own]))
                for key in ("density", "size", "seconds")
            }
            rows.append({"cell": cell, "model": name, "runs": len(own), **values})
    return rows


_Task = Callable[[], dict[str, Any]]


def run(out: Path, tasks: list[_Task], seeds: int, n_jobs: int) -> list[dict[str, Any]]:
    """Run everything and write ``results.json``."""
    runs = Parallel(n_jobs=n_jobs)(delayed(task)() for task in tasks)
    rows = summary(runs)
    out.mkdir(parents=True, exist_ok=True)
    written = {"seeds": seeds, "rows": rows, "runs": runs}
    (out / "results.json").write_text(json.dumps(written, indent=1))
    return rows


def shown(rows: list[dict[str, Any]]) -> Table:
    """Densities by cell and model; sizes; CPU seconds of the predictive model and its rival."""
    names = list(dict.fromkeys(r["model"] for r in rows))
    timed = [name for name in ("predictive", "FedGenGMM") if name in names]
    made = Table("cell", "size", *names, *(f"seconds, {name}" for name in timed))
    for cell in dict.fromkeys(r["cell"] for r in rows):
        own = {r["model"]: r for r in rows if r["cell"] == cell}
        seconds = [f"{own[name]['seconds']:.2f}" for name in timed]
        densities = [f"{own[name]['density']:.3f}" for name in names]
        made.add_row(cell, f"{own['default']['size']:.1f}", *densities, *seconds)
    return made


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m experiments density``."""
    data_sets.add_argument(parser)
    parser.add_argument("--seeds", type=int, default=5, help="runs per cell")
    parser.add_argument("--jobs", type=int, default=1, help="processes; -1 is one per core")
    parser.add_argument("--users", action="store_true", help="the problems of `users` instead")
    parser.add_argument("--points", action="store_true", help="fits by maximum likelihood instead")
    parser.add_argument("--limit", action="store_true", help="mixtures that pooled data help")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--cells", default="", help="only cells whose names begin like this")


def main(args: argparse.Namespace, console: Console) -> None:
    """Run everything, show the table."""
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    tasks: list[_Task]
    if args.users:
        names = [name for name in users.SCENARIOS if name.startswith(args.cells)]
        tasks = [partial(run_user, name, seed) for name in names for seed in seeds]
    elif args.points:
        tasks = [partial(run_point, dim, n, seed) for dim, n in POINTS for seed in seeds]
    else:
        one, kinds = (run_limit, ["full"]) if args.limit else (run_one, ["full", "diag"])
        cells = [cell for cell in CELLS if cell.name.startswith(args.cells)]
        cells = [cell for cell in cells if cell.covariance_type in kinds]
        tasks = [partial(one, c, seed, args.data_dir) for c in cells for seed in seeds]
    console.print(shown(run(args.out, tasks, args.seeds, args.jobs)))
