"""Probabilities that two local components are the same, against how often they are.

The problems are those of ``python -m experiments users`` on seeds of their own, and the same with
clusters that lie nearer, where more is in doubt. A decision is a pair of matched components of two
silos that describe a true cluster each. They are the same if it is one cluster. A match is false
if most other members of the global component describe another cluster.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from rich.console import Console
from rich.table import Table
from scipy.special import softmax
from threadpoolctl import threadpool_limits

import klfusion as kf
from experiments import linkage_figure
from experiments.simulation import FloatArray, IntArray
from experiments.users import SCENARIOS, draw

DESCRIPTION = "probabilities of matches against how often they are right"
FIRST_SEED = 60000  # of consecutive seeds, none of which served development
NEARER = 0.6  # factor of the separation of the harder problems
RATES = (0.05, 0.1)  # shares of false matches that are asked for
BINS = 10
LEAST = 50  # decisions of a bin that counts


@dataclass(frozen=True, eq=False)
class Run:
    """One problem: bins of pairs, and false matches at each rate."""

    nearer: bool
    stated: FloatArray  # sum of the probabilities in each bin, (BINS,)
    same: FloatArray  # number of pairs that are the same, (BINS,)
    pairs: FloatArray  # (BINS,)
    matched: dict[float, int]  # number of matched components, by the rate asked for; 1 is none
    false: dict[float, int]
    n_components: dict[float, int]
    size: (
        tuple[float, bool] | None
    )  # stated probability of the size on the path; whether it is right


def run_one(name: str, seed: int, nearer: bool) -> Run:
    """Fuse one problem by default, and at each rate of false matches."""
    scenario = SCENARIOS[name]
    if nearer:
        scenario = replace(scenario, separation=NEARER * scenario.separation)
    problem = draw(scenario, np.random.default_rng([seed, list(SCENARIOS).index(name)]))
    size = problem.true_size if scenario.ask_size else None
    matched, false, sizes = {}, {}, {}
    with threadpool_limits(1):
        fusion = kf.fuse(problem.models, n_components=size, progress=False)
        bins = binned(fusion, problem.truth)
        for rate in (1.0, *RATES):
            asked = fusion
            if rate < 1.0 and not scenario.ask_size:
                method = kf.Auto(false_matches=rate)
                asked = kf.fuse(problem.models, method=method, progress=False)
            matched[rate], false[rate] = false_matches(asked, problem.truth)
            sizes[rate] = asked.n_components
    stated = None
    if fusion.path is not None and fusion.path.evidence is not None:
        best = int(fusion.path.evidence.argmax())
        right = int(fusion.path.n_components[best]) == problem.true_size
        stated = float(softmax(fusion.path.evidence)[best]), right
    return Run(nearer, *bins, matched, false, sizes, stated)


def binned(fusion: kf.Fusion, truth: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sum of the stated probabilities, number of same pairs and number of pairs in each bin."""
    silo = np.repeat(np.arange(fusion.n_silos), [len(own) for own in fusion.labels])
    stated = fusion.probabilities_same()
    first, second = np.nonzero(np.triu(np.isfinite(stated) & (silo[:, None] != silo)))
    known = (truth[first] >= 0) & (truth[second] >= 0)
    first, second = first[known], second[known]
    chance, is_same = stated[first, second], truth[first] == truth[second]
    place = np.minimum((BINS * chance).astype(int), BINS - 1)
    return tuple(np.bincount(place, w, BINS) for w in (chance, is_same, np.ones(len(place))))  # type: ignore[return-value]


def false_matches(fusion: kf.Fusion, truth: IntArray) -> tuple[int, int]:
    """Number of local components matched to others, and of those that most others differ from."""
    labels = np.concatenate(fusion.labels)
    silo = np.repeat(np.arange(fusion.n_silos), [len(own) for own in fusion.labels])
    matched = false = 0
    for row in np.flatnonzero((labels >= 0) & (truth >= 0)):
        others = truth[(labels == labels[row]) & (silo != silo[row]) & (truth >= 0)]
        if len(others):
            matched += 1
            counts = np.bincount(others)
            most = np.flatnonzero(counts == counts.max())
            false += int(truth[row] not in most)
    return matched, false


def summary(runs: list[Run], nearer: bool) -> dict[str, Any]:
    """Bins and rates of the problems of one separation."""
    own = [run for run in runs if run.nearer == nearer]
    stated, is_same, pairs = (
        np.sum([getattr(run, key) for run in own] or np.zeros((1, BINS)), axis=0)
        for key in ("stated", "same", "pairs")
    )
    bins = [
        {"stated": stated[k] / pairs[k], "frequency": is_same[k] / pairs[k], "pairs": int(pairs[k])}
        for k in range(BINS)
        if pairs[k]
    ]
    rates = []
    for rate in (1.0, *RATES):
        matched, false = (
            sum(getattr(run, key)[rate] for run in own) for key in ("matched", "false")
        )
        size = float(np.mean([run.n_components[rate] for run in own] or [0]))
        share = false / max(matched, 1)
        rates.append({"asked": rate, "matched": matched, "false": share, "mean_size": size})
    worst = max(
        (abs(b["stated"] - b["frequency"]) for b in bins if b["pairs"] >= LEAST), default=0.0
    )
    best = np.array([run.size for run in own if run.size is not None]).reshape(-1, 2)
    of_size = dict(zip(("stated", "right"), best.sum(axis=0) / max(len(best), 1), strict=True))
    found = {"nearer": nearer, "problems": len(own), "bins": bins, "rates": rates}
    return {**found, "worst": worst, "size": of_size}


def run(out: Path, seeds: int, n_jobs: int) -> list[dict[str, Any]]:
    """Run everything; write ``results.json``."""
    tasks = [
        (name, FIRST_SEED + k, nearer)
        for k in range(seeds)
        for nearer in (False, True)
        for name in SCENARIOS
    ]
    runs = list(Parallel(n_jobs=n_jobs)(delayed(run_one)(*task) for task in tasks))
    found = [summary(runs, nearer) for nearer in (False, True)]
    out.mkdir(parents=True, exist_ok=True)
    settings = {"seeds": seeds, "first_seed": FIRST_SEED, "nearer": NEARER}
    (out / "results.json").write_text(json.dumps({"settings": settings, "found": found}, indent=1))
    return found


def shown(found: dict[str, Any]) -> list[Table]:
    """Bins and rates as tables."""
    where = "nearer clusters" if found["nearer"] else "the users' problems"
    title = f"{where}: {found['problems']} problems, largest error {found['worst']:.3f}"
    bins = Table("stated", "frequency", "pairs", title=title)
    for one in found["bins"]:
        bins.add_row(f"{one['stated']:.3f}", f"{one['frequency']:.3f}", str(one["pairs"]))
    rates = Table("false matches asked for", "found", "matched components", "mean size")
    for one in found["rates"]:
        asked = "any" if one["asked"] == 1.0 else f"{one['asked']:.2f}"
        rates.add_row(asked, f"{one['false']:.4f}", str(one["matched"]), f"{one['mean_size']:.2f}")
    size = Table("stated probability of the size", "right")
    size.add_row(*(f"{value:.3f}" for value in found["size"].values()))
    return [bins, rates, size]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m experiments probabilities``."""
    parser.add_argument("--seeds", type=int, default=10, help="problems per scenario")
    parser.add_argument("--quick", action="store_true", help="one problem per scenario")
    parser.add_argument("--picture", type=Path, help="draw densities and evidence here, no more")
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 is one per core")


def main(args: argparse.Namespace, console: Console) -> None:
    """Run everything, show the tables; or draw the picture alone."""
    if args.picture is not None:
        console.print(linkage_figure.draw(args.picture).explain())
        return
    for found in run(args.out, 1 if args.quick else args.seeds, args.jobs):
        for table in shown(found):
            console.print(table)
