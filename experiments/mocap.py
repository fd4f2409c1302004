"""Section 5.2: fusion of hidden Markov models of two subjects' exercises."""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score
from threadpoolctl import threadpool_limits

import klfusion as kf
from experiments import data, fuse_by_average
from klfusion.learners import StickyHDPHMM

DESCRIPTION = "hidden Markov models of motion capture (section 5.2)"
# First of consecutive seeds, none of which served development.
FIRST_SEED = 210
SUBJECTS = {"subject 13": (0, 1, 2), "subject 14": (3, 4, 5)}

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
Silos = dict[str, kf.Posterior]
OURS, POOLED, APART = "KL-fusion", "pooled HDP-HMM", "no matching"
N_EXERCISES = 12  # which people labelled


def of_known_size(silos: Silos) -> kf.Fusion:
    """As many states as there are exercises, where that is possible."""
    sizes = [silo.n_components for silo in silos.values()]
    size = min(max(N_EXERCISES, *sizes), sum(sizes))
    return fuse_by_average(silos, n_components=size)


METHODS: dict[str, Callable[[Silos], kf.Fusion]] = {
    OURS: fuse_by_average,
    "KL-fusion, twelve states asked for": of_known_size,
    "KL-fusion, paper's letter": lambda silos: fuse_by_average(silos, method="relaxed"),
    "SPAHM": kf.baselines.spahm,
    "SPAHM, standardised channels": lambda silos: kf.baselines.spahm(standardised(silos)),
}


@dataclass(frozen=True)
class Recordings:
    """The six sequences."""

    frames: list[FloatArray]  # (T_i, 12)
    labels: list[IntArray]  # (T_i,), from 0
    exercises: list[str]

    def part(self, which: Iterable[int]) -> tuple[FloatArray, list[int], IntArray]:
        """Frames, lengths and labels of some of them."""
        chosen = list(which)
        return (
            np.concatenate([self.frames[i] for i in chosen]),
            [len(self.frames[i]) for i in chosen],
            np.concatenate([self.labels[i] for i in chosen]),
        )


@dataclass(frozen=True)
class Run:
    """One method, one seed: a row of ``runs.csv``.

    ``local``: the local model decodes frames, and labels map to global states. ``decoded``: the
    fused model decodes frames.
    """

    seed: int
    method: str
    states: int
    ari_local: float
    ami_local: float
    ari_decoded: float
    ami_decoded: float


@dataclass(frozen=True)
class HeldOut:
    """One model on one held-out sequence: a row of ``held_out.csv``."""

    seed: int
    model: str
    sequence: int
    subject: str
    ari: float
    log_likelihood: float  # nats per frame


def load(data_dir: Path | None = None) -> Recordings:
    """Read ``mocap6/dataset.npz``."""
    with np.load(data.find("mocap6/dataset.npz", data_dir)) as file:
        edges = file["doc_range"][1:-1]
        return Recordings(
            np.split(file["X"], edges),
            np.split(file["TrueZ"].astype(np.intp) - 1, edges),
            [name.decode() for name in file["true_state_names"]],
        )


def fit(recordings: Recordings, which: Iterable[int], seed: int, n_init: int) -> Any:
    """A learner with its defaults, which follow the paper."""
    frames, lengths, _ = recordings.part(which)
    with threadpool_limits(1):
        return StickyHDPHMM(n_init=n_init, random_state=seed).fit(frames, lengths)


def standardised(silos: Silos) -> list[kf.Posterior]:
    """Posteriors with every channel divided by the standard deviation of the states' means.

    SPAHM uses distances between means, which depend on units. KL divergences do not.
    """
    posteriors = list(silos.values())
    family = posteriors[0].family
    assert isinstance(family, kf.families.NormalWishart)
    scale = np.concatenate([p.params()["mean"] for p in posteriors]).std(axis=0)
    out = []
    for p in posteriors:
        params = p.params()
        spread = params["scale_inv"] / np.outer(scale, scale)
        natural = family.natural(params["mean"] / scale, params["kappa"], spread, params["dof"])
        out.append(kf.Posterior(family, natural, name=p.name, counts=p.counts))
    return out


def run_one(recordings: Recordings, seed: int, n_init: int) -> tuple[list[Run], dict[str, Any]]:
    """Fit both subjects and all data, fuse with every method; scores and labels of frames."""
    frames, lengths, truth = recordings.part(range(6))
    models = {name: fit(recordings, own, seed, n_init) for name, own in SUBJECTS.items()}
    local = [
        models[name].predict(*recordings.part(own)[:2]) for name, own in SUBJECTS.items()
    ]  # fmt: skip
    silos = {name: kf.extract(model, name=name) for name, model in models.items()}
    runs, labels = [], {}

    def row(method: str, states: int, mapped: IntArray, decoded: IntArray) -> None:
        scores = [
            float(score(truth, found))
            for found in (mapped, decoded)
            for score in (adjusted_rand_score, adjusted_mutual_info_score)
        ]
        runs.append(Run(seed, method, states, *scores))
        labels[method] = decoded

    for method, fuse in METHODS.items():
        fusion = fuse(silos)
        mapped = np.concatenate([own[z] for own, z in zip(fusion.labels, local, strict=True)])
        in_units = fusion.posterior.structure is not None
        decoded = fusion.model().predict(frames, lengths) if in_units else mapped
        row(method, fusion.n_components, mapped, decoded)
    sizes = [model.n_states_ for model in models.values()]
    apart = np.concatenate([local[0], local[1] + sizes[0]])
    row(APART, sum(sizes), apart, apart)
    pooled = fit(recordings, range(6), seed, n_init)
    found = pooled.predict(frames, lengths)
    row(POOLED, pooled.n_states_, found, found)
    return runs, labels


def held_out(recordings: Recordings, seed: int, n_init: int) -> list[HeldOut]:
    """Hold out one sequence per subject; the seed selects it."""
    left = {name: own[seed % 3] for name, own in SUBJECTS.items()}
    kept = {name: [i for i in own if i != left[name]] for name, own in SUBJECTS.items()}
    models = {name: fit(recordings, own, seed, n_init) for name, own in kept.items()}
    models[OURS] = fuse_by_average(dict(models)).model()
    models[POOLED] = fit(recordings, [i for own in kept.values() for i in own], seed, n_init)
    rows = []
    for subject, sequence in left.items():
        frames, lengths, truth = recordings.part([sequence])
        for name, model in models.items():
            agreement = adjusted_rand_score(truth, model.predict(frames, lengths))
            density = model.score(frames, lengths) / len(frames)
            rows.append(HeldOut(seed, name, sequence, subject, float(agreement), density))
    return rows


def confusion(truth: IntArray, found: IntArray, exercises: list[str]) -> dict[str, list[int]]:
    """Frames of each exercise (row) in each state (column), states by falling size."""
    counts = np.zeros((len(exercises), int(found.max()) + 1), dtype=np.intp)
    np.add.at(counts, (truth, found), 1)
    counts = counts[:, np.argsort(-counts.sum(axis=0), kind="stable")]
    counts = counts[:, counts.any(axis=0)]
    return {name: row.tolist() for name, row in zip(exercises, counts, strict=True)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m experiments mocap``."""
    data.add_argument(parser)
    parser.add_argument("--seeds", type=int, default=10, help="runs")
    parser.add_argument("--quick", action="store_true", help="two seeds, two starts each")
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 is one per core")


def main(args: argparse.Namespace, console: Console) -> None:
    """Run everything, show the tables."""
    recordings = load(args.data_dir)
    results = run(recordings, args.out, args.seeds, args.quick, args.jobs)
    console.print(shown(results["methods"]))
    console.print(shown(results["held_out"]))
    table = Table(
        "exercise", *[str(k) for k in range(len(next(iter(results["confusion"].values()))))]
    )
    for name, row in results["confusion"].items():
        table.add_row(name, *[str(n) if n else "" for n in row])
    console.print(table)


def run(recordings: Recordings, out: Path, seeds: int, quick: bool, n_jobs: int) -> dict[str, Any]:
    """Run everything; write ``runs.csv``, ``held_out.csv``, ``results.json`` and the figure."""
    from experiments import timelines  # noqa: PLC0415 (matplotlib is an extra)

    n_init = 2 if quick else 5
    start = time.perf_counter()
    tasks = [FIRST_SEED + k for k in range(min(seeds, 2) if quick else seeds)]
    parallel = Parallel(n_jobs=n_jobs, verbose=0 if quick else 5)
    done = parallel(delayed(run_one)(recordings, seed, n_init) for seed in tasks)
    checks = parallel(delayed(held_out)(recordings, seed, n_init) for seed in tasks)
    runs = [r for group, _ in done for r in group]
    rows = [r for group in checks for r in group]
    out.mkdir(parents=True, exist_ok=True)
    write_rows(out / "runs.csv", runs)
    write_rows(out / "held_out.csv", rows)
    truth, labels = np.concatenate(recordings.labels), done[0][1][OURS]
    results = {
        "settings": {"seeds": tasks, "n_init": n_init, "seconds": time.perf_counter() - start},
        "methods": summary(runs, ["method"]),
        "held_out": summary(rows, ["model", "subject"]),
        "confusion": confusion(truth, labels, recordings.exercises),
    }
    (out / "results.json").write_text(json.dumps(results, indent=1))
    lengths = [len(x) for x in recordings.frames]
    timelines.draw(out, truth, labels, lengths, recordings.exercises)
    return results


def summary(rows: Iterable[Any], by: list[str]) -> list[dict[str, Any]]:
    """Means and standard errors of all figures, grouped by columns."""
    groups = defaultdict(list)
    for row in map(asdict, rows):
        groups[tuple(row[key] for key in by)].append(row)
    table = []
    for key, group in groups.items():
        line: dict[str, Any] = dict(zip(by, key, strict=True)) | {"runs": len(group)}
        for name, value in group[0].items():
            if name not in ("seed", "sequence") and not isinstance(value, str):
                values = np.array([row[name] for row in group], dtype=np.float64)
                error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
                line |= {name: float(values.mean()), f"{name}_se": float(error)}
        table.append(line)
    return table


def shown(rows: list[dict[str, Any]]) -> Table:
    """A table of rows."""
    names = [k for k in rows[0] if not k.endswith("_se")]
    table = Table(*names)
    for row in rows:
        cells = [
            f"{row[k]:.3f} ± {row[f'{k}_se']:.3f}" if f"{k}_se" in row else str(row[k])
            for k in names
        ]
        table.add_row(*cells)
    return table


def write_rows(path: Path, rows: list[Any]) -> None:
    """Dataclasses as a table."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(asdict(rows[0])))
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
