"""Gain of later rounds of communication, on mixtures and topics."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

import klfusion as kf
from experiments import conjugate
from experiments.simulation import FloatArray

DESCRIPTION = "gain of later rounds of communication, on mixtures and topics"
ROUNDS = 5
N_SILOS = 10
# First of consecutive seeds, none of which served development.
FIRST_SEED = 6000
_GAUSSIAN = kf.families.NormalWishart(2)
_N_WORDS, _N_TOPICS, _WORDS_IN_DOCUMENT = 50, 5, 15


def gaussian_statistics(x: FloatArray) -> FloatArray:
    """Contribution of each observation (N, 2) to the natural parameters: ``x, 1, xx', 1``."""
    root = np.sqrt(2.0)
    square = np.stack([x[:, 0] ** 2, root * x[:, 0] * x[:, 1], x[:, 1] ** 2], axis=1)
    one = np.ones((len(x), 1))
    return np.concatenate([x, one, square, one], axis=1)


def mixture(separation: float, rng: np.random.Generator) -> list[FloatArray]:
    """Three unit Gaussians at distance ``2 separation``; 60 observations per silo."""
    centres = separation * np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.5]])
    return [
        gaussian_statistics(centres[rng.integers(3, size=60)] + rng.normal(size=(60, 2)))
        for _ in range(N_SILOS)
    ]


def topics(concentration: float, rng: np.random.Generator) -> list[FloatArray]:
    """60 documents of one topic each per silo; a larger concentration gives similar topics."""
    words = rng.dirichlet(np.full(_N_WORDS, concentration), size=_N_TOPICS)
    return [
        np.stack(
            [rng.multinomial(_WORDS_IN_DOCUMENT, words[rng.integers(_N_TOPICS)]) for _ in range(60)]
        ).astype(np.float64)
        for _ in range(N_SILOS)
    ]


Make = Callable[[float, np.random.Generator], list[FloatArray]]
_WEAK = _GAUSSIAN.natural(np.zeros((1, 2)), [0.1], np.eye(2)[None], [3.0])[0]
_DIRICHLET = kf.families.Dirichlet(_N_WORDS)
PROBLEMS: dict[str, tuple[Make, float, kf.families.Family, FloatArray, int]] = {
    "mixture, 4 deviations apart": (mixture, 2.0, _GAUSSIAN, _WEAK, 3),
    "mixture, 5 deviations apart": (mixture, 2.5, _GAUSSIAN, _WEAK, 3),
    "mixture, 6 deviations apart": (mixture, 3.0, _GAUSSIAN, _WEAK, 3),
    "topics, distinct": (topics, 0.2, _DIRICHLET, np.full(_N_WORDS, 0.5), _N_TOPICS),
    "topics, alike": (topics, 0.5, _DIRICHLET, np.full(_N_WORDS, 0.5), _N_TOPICS),
}


def run_one(problem: str, seed: int) -> list[float]:
    """Mean ``KL(global || pooled)`` of the components after each round.

    The pooled fit has all observations and starts from the last round.
    """
    make, value, family, prior, size = PROBLEMS[problem]
    data = make(value, np.random.default_rng([seed, round(1000 * value)]))
    sites = {
        f"silo-{j}": conjugate.site(family, prior, x, size, seed=j) for j, x in enumerate(data)
    }
    with threadpool_limits(1):
        found = kf.refine_rounds(sites, rounds=ROUNDS, n_components=size, progress=False)
        priors = np.repeat(prior[None], size, axis=0)
        pooled, _ = conjugate.fit(family, priors, np.concatenate(data), found.posterior.natural)
        return [float(np.diag(family.kl(p.natural, pooled)).mean()) for p in found.rounds]


def run(out: Path, seeds: int, n_jobs: int, problems: list[str]) -> list[dict[str, Any]]:
    """Run everything and write ``results.json``."""
    rows: list[dict[str, Any]] = []
    for problem in problems:
        distances = Parallel(n_jobs=n_jobs)(
            delayed(run_one)(problem, FIRST_SEED + k) for k in range(seeds)
        )
        row = {"problem": problem, "runs": seeds, "mean": np.mean(distances, axis=0).tolist()}
        rows.append({**row, "median": np.median(distances, axis=0).tolist()})
    out.mkdir(parents=True, exist_ok=True)
    settings = {"seeds": seeds, "first_seed": FIRST_SEED}
    (out / "results.json").write_text(json.dumps({"settings": settings, "rows": rows}, indent=1))
    return rows


def shown(rows: list[dict[str, Any]]) -> Table:
    """Mean / median distance to the pooled fit after each round."""
    table = Table("problem", *(f"round {k + 1}" for k in range(ROUNDS)))
    for row in rows:
        both = zip(row["mean"], row["median"], strict=True)
        table.add_row(row["problem"], *(f"{mean:.3g} / {median:.3g}" for mean, median in both))
    return table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m experiments rounds``."""
    parser.add_argument("--seeds", type=int, default=20, help="runs per problem")
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 is one per core")


def main(args: argparse.Namespace, console: Console) -> None:
    """Run everything, show the table."""
    console.print(shown(run(args.out, args.seeds, args.jobs, list(PROBLEMS))))
