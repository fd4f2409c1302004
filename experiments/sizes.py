"""Accuracy of the default's size on simulated neurons, topics and mixtures."""

from __future__ import annotations

import argparse
import csv
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from rich.console import Console
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

import klfusion as kf
from experiments.simulation import (
    IntArray,
    Simulation,
    fit_once,
    fit_silo,
    simulate,
    true_component,
)
from experiments.tables import of_rows

DESCRIPTION = "the default's size on simulated neurons, topics and difficult mixtures"
FIRST_SEED = 17000  # of consecutive seeds, none of which served development
N_SILOS = (2, 5, 20, 50)
NEURON_NOISE = (0.3, 0.6, 0.9, 1.2)  # standard deviation of a silo's weights; global ones have 1
TOPIC_CONCENTRATION = (1_000, 10_000)  # of a silo's topic, Dirichlet around the global one

Problem = tuple[list[kf.Posterior], IntArray]  # silos, true component of each local component


@dataclass(frozen=True)
class Run:
    """The default on one problem: a row of the CSV."""

    kind: str
    setting: str
    n_silos: int
    seed: int
    true_size: int
    size: int
    ari: float
    ari_given_size: float


def neurons(rng: np.random.Generator, n_silos: int, noise: float) -> Problem:
    """Units with 800 weights; a silo has 20 of 40."""
    dim, total = 800, 40
    family = kf.families.DiagonalNormal(dim)
    weights = rng.normal(size=(total, dim))
    silos, truth = [], []
    for j in range(n_silos):
        chosen = rng.permutation(total)[: total // 2]
        mean = weights[chosen] + noise * rng.normal(size=(len(chosen), dim))
        variance = np.exp(rng.normal(-3.0, 0.5, size=mean.shape))
        silos.append(kf.Posterior(family, family.natural(mean, variance), name=f"silo-{j}"))
        truth.append(chosen)
    return silos, np.concatenate(truth)


def topics(rng: np.random.Generator, n_silos: int, n_words: int, concentration: float) -> Problem:
    """Sparse topics from 500 to 20,000 words each; a silo has 10 of 20."""
    total = 20
    family = kf.families.Dirichlet(n_words)
    words = rng.dirichlet(np.full(n_words, 0.05), size=total)
    silos, truth = [], []
    for j in range(n_silos):
        chosen = rng.permutation(total)[: total // 2]
        own = [rng.dirichlet(concentration * words[k] + 1e-3) for k in chosen]
        sizes = np.exp(rng.uniform(np.log(500), np.log(20_000), size=len(chosen))).astype(int)
        counts = [rng.multinomial(n, q) for n, q in zip(sizes, own, strict=True)]
        silos.append(kf.Posterior(family, 0.1 + np.array(counts, dtype=float), name=f"silo-{j}"))
        truth.append(chosen)
    return silos, np.concatenate(truth)


def mixtures(rng: np.random.Generator, n_silos: int, settings: Simulation) -> Problem:
    """Mixtures fitted to data of the paper's simulation."""
    settings = Simulation(**{**asdict(settings), "n_silos": n_silos})
    silos = simulate(settings, rng)
    seed = int(rng.integers(2**31))
    models = [
        fit_silo(settings, x, len(components), seed, n_init=8)
        for x, components in zip(silos.data, silos.components, strict=True)
    ]
    truth = [
        true_component(m, x, p) for m, x, p in zip(models, silos.data, silos.points, strict=True)
    ]
    return [kf.extract(m, f"silo-{j}") for j, m in enumerate(models)], np.concatenate(truth)


def bare(rng: np.random.Generator, n_silos: int) -> Problem:
    """Mixtures from one start of k-means, some of which fail, without priors and counts."""
    silos, truth = simulate(Simulation(n_silos=n_silos), rng), list[IntArray]()
    seed, posteriors = int(rng.integers(2**31)), list[kf.Posterior]()
    for j, (x, points) in enumerate(zip(silos.data, silos.points, strict=True)):
        model = fit_once(x, len(silos.components[j]), seed)
        truth.append(true_component(model, x, points))
        full = kf.extract(model, f"silo-{j}")
        posteriors.append(kf.Posterior(full.family, full.natural, name=full.name))
    return posteriors, np.concatenate(truth)


DIFFICULT = {
    "noise 2": ((5, 15), Simulation(noise=2.0)),
    "two components too many": ((25,), Simulation(separation=1.0, extra_components=2)),
    "100 to 3,000 points": ((50,), Simulation(separation=1.0, most_points=3000, n_points=100)),
}


def scenarios() -> list[tuple[str, str, int, Callable[[np.random.Generator], Problem]]]:
    """Kind, setting, number of silos, and the function that makes the problem."""
    out: list[tuple[str, str, int, Callable[[np.random.Generator], Problem]]] = []
    for n_silos in N_SILOS:
        for noise in NEURON_NOISE:
            make = partial(neurons, n_silos=n_silos, noise=noise)
            out.append(("neurons", f"800 weights, noise {noise:g}", n_silos, make))
        for n_words in (1_000, 12_500):
            for concentration in TOPIC_CONCENTRATION:
                words = partial(
                    topics, n_silos=n_silos, n_words=n_words, concentration=concentration
                )
                name = f"{n_words:,} words, concentration {concentration:,}"
                out.append(("topics", name, n_silos, words))
    for name, (numbers, settings) in DIFFICULT.items():
        for n_silos in numbers:
            mixed = partial(mixtures, n_silos=n_silos, settings=settings)
            out.append(("mixtures", name, n_silos, mixed))
    out.append(("mixtures", "one start, no priors, no counts", 50, partial(bare, n_silos=50)))
    return out


def run_one(number: int, seed: int) -> Run:
    """The default on one problem, and a fusion with the true size."""
    kind, setting, n_silos, make = scenarios()[number]
    with threadpool_limits(1):
        silos, truth = make(np.random.default_rng([seed, number]))
        size = len(np.unique(truth[truth >= 0]))
        fusion = kf.fuse(silos)
        # With the true size, the remaining error is not one of the size.
        least = max(silo.n_components for silo in silos)
        given = kf.fuse(silos, n_components=max(size, least), method="binary")

    def ari(found: kf.Fusion) -> float:
        labels = np.concatenate(found.labels)
        known = (truth >= 0) & (labels >= 0)  # no true component, or unmatched
        return float(adjusted_rand_score(truth[known], labels[known]))

    return Run(kind, setting, n_silos, seed, size, fusion.n_components, ari(fusion), ari(given))


def summary(runs: list[Run]) -> list[dict[str, Any]]:
    """Means of each kind and setting, and of each kind."""
    groups: dict[tuple[str, str, str], list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.kind, run.setting, str(run.n_silos)].append(run)
        groups[run.kind, "all", ""].append(run)
    return [
        {
            "kind": kind, "setting": setting, "n_silos": n_silos, "runs": len(group),
            "right_size": float(np.mean([r.size == r.true_size for r in group])),
            "size_error": float(np.mean([abs(r.size - r.true_size) / r.true_size for r in group])),
            "ari": float(np.mean([r.ari for r in group])),
            "ari_given_size": float(np.mean([r.ari_given_size for r in group])),
        }
        for (kind, setting, n_silos), group in sorted(groups.items(), key=lambda g: g[0][:2])
    ]  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m experiments sizes``."""
    parser.add_argument("--seeds", type=int, default=4, help="runs per setting")
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 is one per core")


def main(args: argparse.Namespace, console: Console) -> None:
    """Run everything, write ``runs.csv`` and ``results.json``, show the table."""
    tasks = [(i, FIRST_SEED + k) for k in range(args.seeds) for i in range(len(scenarios()))]
    runs = list(Parallel(n_jobs=args.jobs)(delayed(run_one)(i, seed) for i, seed in tasks))
    with (args.out / "runs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(asdict(runs[0])))
        writer.writeheader()
        writer.writerows(asdict(run) for run in runs)
    rows = summary(runs)
    settings = {"seeds": args.seeds, "first_seed": FIRST_SEED}
    (args.out / "results.json").write_text(
        json.dumps({"settings": settings, "rows": rows}, indent=1)
    )
    console.print(of_rows(rows))
