"""Classifiers under label skew: MNIST and Fashion-MNIST, few classes per site, one round.

An *entrant* is a function in `ENTRANTS`. It gets a `Split` (a data set, the rows of each site, a
seed) and yields one `Result` per method: its name, its function ``predict_proba`` for test images,
and the bytes that the largest site sends. To add one, write it in a module of its own and list it
in `ENTRANTS`; partitions, scores and tables are here. What depends on the data set alone, such as
features, is cached by `functools.cache` of a function of `Problem`. These types are in
`experiments.skew_problem`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from sklearn.metrics import roc_auc_score

from experiments import data, tables
from experiments.bnn import calibration_error, calibration_floor
from experiments.images import IntArray, deal, load
from experiments.skew_heads import heads
from experiments.skew_networks import networks
from experiments.skew_problem import Entrant, Predict, Problem, Split
from experiments.skew_refit import refitted

DESCRIPTION = "classifiers where every site has few classes"
# First of consecutive seeds of partitions, none of which served development.
FIRST_SEED = 401
DATASETS = ("mnist", "fashion_mnist")
CONCENTRATIONS = (0.01, 0.05, 0.1, 0.5)
CLASSES_PER_SITE = (1, 2, 3)
N_SITES = (5, 10, 100)
_N_CLASSES = 10
_LEAST = 1e-30  # probability in logarithms
Row = dict[str, Any]


def by_class(labels: IntArray, n_sites: int, per_site: int, seed: int) -> list[IntArray]:
    """Rows of sites with ``per_site`` classes each; the sites of a class share it equally."""
    rng = np.random.default_rng(seed)
    used, sites = np.zeros(_N_CLASSES), defaultdict(list)
    for site in range(n_sites):
        for k in np.lexsort((rng.random(_N_CLASSES), used))[:per_site]:
            used[k] += 1
            sites[int(k)].append(site)
    rows: list[list[IntArray]] = [[] for _ in range(n_sites)]
    for k, have in sites.items():
        parts = np.array_split(rng.permutation(np.flatnonzero(labels == k)), len(have))
        for site, part in zip(have, parts, strict=True):
            rows[site].append(part)
    return [np.sort(np.concatenate(own)) for own in rows]


def partitions(labels: IntArray, n_sites: int, seed: int) -> Iterator[tuple[str, list[IntArray]]]:
    """Every partition over so many sites by name; those that would lack a class are left out."""
    for concentration in CONCENTRATIONS:
        yield f"Dirichlet {concentration:g}", deal(labels, seed, n_sites, concentration)
    for per_site in CLASSES_PER_SITE:
        if n_sites * per_site >= _N_CLASSES:
            yield f"classes {per_site}", by_class(labels, n_sites, per_site, seed)


def problem(name: str, data_dir: Path | None, n_train: int | None = None) -> Problem:
    """A data set, or its first ``n_train`` training images and as many test images."""
    own, other = load(name, data_dir), load(next(d for d in DATASETS if d != name), data_dir)
    few = slice(n_train)
    return Problem(
        name, own.train[few], own.train_digits[few], own.test[few], own.test_digits[few],
        other.test[few],
    )  # fmt: skip


def scores(predict_proba: Predict, given: Problem) -> Row:
    """Accuracy, log-likelihood and calibration on test images; AUROC of entropy outside."""
    p, outside, y = predict_proba(given.test), predict_proba(given.outside), given.test_labels
    is_outside = np.repeat([0, 1], [len(p), len(outside)])
    return {
        "accuracy": 100.0 * float((p.argmax(axis=1) == y).mean()),
        "log_likelihood": float(np.log(np.maximum(p[np.arange(len(y)), y], _LEAST)).mean()),
        "calibration_error": calibration_error(p, y),
        "calibration_floor": calibration_floor(p),
        "auroc": float(roc_auc_score(is_outside, entropy(np.concatenate([p, outside])))),
    }


def entropy(p: Any) -> Any:
    """Of each row of probabilities (n, k), in nats."""
    return -(p * np.log(np.maximum(p, _LEAST))).sum(axis=1)


def run_split(split: Split, entrants: list[str]) -> Iterator[Row]:
    """One row per method of the entrants."""
    for name in entrants:
        start = time.perf_counter()
        for method, predict_proba, n_bytes in ENTRANTS[name](split):
            seconds = time.perf_counter() - start
            row = {
                "dataset": split.problem.name, "partition": split.partition,
                "sites": len(split.rows), "seed": split.seed, "method": method,
            }  # fmt: skip
            found = {**scores(predict_proba, split.problem), "megabytes": n_bytes / 1e6}
            yield {**row, **found, "seconds": seconds}
            start = time.perf_counter()


def summary(rows: list[Row]) -> list[Row]:
    """Means over seeds per data set, partition, number of sites and method."""
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[k] for k in ("dataset", "asked", "partition", "method"))].append(row)
    numbers = (
        "accuracy", "log_likelihood", "calibration_error", "calibration_floor", "auroc",
        "megabytes", "seconds",
    )  # fmt: skip
    return [
        dict(zip(("dataset", "sites", "partition", "method"), key, strict=True))
        | {"seeds": len(group)}
        | {k: float(np.mean([row[k] for row in group])) for k in numbers}
        for key, group in groups.items()
    ]


def spread(rows: list[Row]) -> list[Row]:
    """Per data set and method, the worst scores over partitions, and how much they differ."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["dataset"], row["method"]].append(row)
    out = []
    for (dataset, method), group in groups.items():
        likelihood = [row["log_likelihood"] for row in group]
        out.append({
            "dataset": dataset, "method": method, "runs": len(group),
            "least accuracy": min(row["accuracy"] for row in group),
            "largest calibration error": max(row["calibration_error"] for row in group),
            "spread of log-likelihood": f"{max(likelihood) - min(likelihood):.1e}",
            "largest megabytes": max(row["megabytes"] for row in group),
        })  # fmt: skip
    return out


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m experiments skew``."""
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=list(DATASETS))
    parser.add_argument("--sites", type=int, nargs="+", default=list(N_SITES))
    parser.add_argument("--seeds", type=int, default=3, help="partitions of each kind")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--partitions", nargs="+", default=None, help='such as "classes 2"')
    parser.add_argument("--entrants", nargs="+", choices=[*ENTRANTS], default=[*ENTRANTS])
    parser.add_argument("--images", type=int, default=None, help="the first of the training images")
    parser.add_argument("--quick", action="store_true", help="2,000 images, 10 sites, one seed")
    data.add_argument(parser)


def main(args: argparse.Namespace, console: Console) -> None:
    """Run everything, write ``results.json`` after each partition, show the tables."""
    sites, seeds = ([10], 1) if args.quick else (args.sites, args.seeds)
    rows: list[Row] = []
    for name in args.datasets:
        given = problem(name, args.data_dir, 2000 if args.quick else args.images)
        for n_sites in sites:
            for seed in range(args.first_seed, args.first_seed + seeds):
                for partition, own in partitions(given.labels, n_sites, seed):
                    if args.partitions is not None and partition not in args.partitions:
                        continue
                    console.print(f"{name}, {n_sites} sites, {partition}, seed {seed}")
                    kept = [r for r in own if len(r)]
                    split = Split(given, partition, kept, seed, args.first_seed, args.quick)
                    rows += [row | {"asked": n_sites} for row in run_split(split, args.entrants)]
                    found = {"summary": summary(rows), "spread": spread(rows), "rows": rows}
                    (args.out / "results.json").write_text(json.dumps(found, indent=1))
    console.print(tables.of_rows(summary(rows)))
    console.print(tables.of_rows(spread(rows)))


ENTRANTS: dict[str, Entrant] = {"heads": heads, "refit": refitted, "networks": networks}
