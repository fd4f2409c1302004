"""What one hostile silo of ten costs, and whether `diagnose` names it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from rich.console import Console
from rich.table import Table
from sklearn.mixture import BayesianGaussianMixture

import klfusion as kf
from experiments.simulation import FloatArray
from klfusion.pooling.pool import Pooling

DESCRIPTION = "loss that one hostile silo of ten causes, in nats per observation, by attack"
CENTRES = np.array([[-6.0, 0.0], [0.0, 6.0], [6.0, 0.0], [0.0, -6.0]])
FIRST_SEED = 68000  # of consecutive seeds, none of which served development
N_SILOS, N_POINTS, N_TEST = 10, 100, 2000  # points per component
HOSTILE = "hostile"
CERTAIN = 1e6
COLUMNS: dict[str, tuple[Pooling, int]] = {  # pooling, and fewest silos of a component
    "average": ("average", 1),
    "robust": ("robust", 1),
    "robust, two silos": ("robust", 2),
}


def draw(rng: np.random.Generator, n: int) -> FloatArray:
    """``n`` observations of each component."""
    return np.concatenate([centre + rng.normal(size=(n, 2)) for centre in CENTRES])


def honest_silos(rng: np.random.Generator) -> list[kf.Posterior]:
    """Ten silos with the same four components."""
    silos = []
    for j in range(N_SILOS):
        model = BayesianGaussianMixture(n_components=len(CENTRES), random_state=j, n_init=5)
        silos.append(kf.extract(model.fit(draw(rng, N_POINTS)), name=f"silo-{j}"))
    return silos


def changed(
    silo: kf.Posterior,
    *,
    shift: float = 0.0,
    narrow: float = 1.0,
    certain: float | None = None,
    counts: ArrayLike | None = None,
) -> kf.Posterior:
    """A silo that lies: means shifted, covariances scaled, certainty and counts invented."""
    p, structure = silo.params(), silo.structure
    assert structure is not None and silo.counts is not None
    n = silo.n_components
    kappa, dof = p["kappa"], p["dof"]
    scale = narrow * p["scale_inv"] / dof[:, None, None]
    if certain is not None:
        kappa, dof = np.full(n, certain), np.full(n, certain + 2.0)
    scatter = scale * dof[:, None, None]
    natural = silo.family.natural(p["mean"] + [shift, 0.0], kappa, scatter, dof)
    claimed = silo.counts if counts is None else np.broadcast_to(np.asarray(counts, float), n)
    around = replace(structure, arrays={**structure.arrays, "counts": claimed})
    return replace(silo, name=HOSTILE, natural=natural, counts=claimed, structure=around)


def invented(silo: kf.Posterior, rng: np.random.Generator, n: int = 50) -> kf.Posterior:
    """A silo of components that nobody has."""
    covariance = np.stack([np.eye(2)] * n)
    mean, kappa = rng.uniform(-10.0, 10.0, size=(n, 2)), np.full(n, 100.0)
    natural = silo.family.natural(mean, kappa, 30.0 * covariance, kappa + 2.0)
    assert silo.structure is not None
    around = replace(silo.structure, arrays={**silo.structure.arrays, "counts": kappa})
    return replace(silo, name=HOSTILE, natural=natural, counts=kappa, structure=around)


def attacks(silos: Sequence[kf.Posterior], rng: np.random.Generator) -> dict[str, kf.Posterior]:
    """By name, what the last silo sends instead of the truth."""
    silo, first, second = silos[-1], silos[0], silos[1]
    mixed = np.concatenate([first.natural[:2], second.natural[:2]])
    return {
        "means shifted by 0.3": changed(silo, shift=0.3),
        "means shifted by 1": changed(silo, shift=1.0),
        "means shifted by 0.3, certain": changed(silo, shift=0.3, certain=CERTAIN),
        "means shifted by 1, certain": changed(silo, shift=1.0, certain=CERTAIN),
        "narrow, certain, many": changed(silo, narrow=1e-4, certain=CERTAIN, counts=CERTAIN),
        "50 invented components": invented(silo, rng),
        "copy of another silo": replace(first, name=HOSTILE),
        "copies from two silos": replace(first, name=HOSTILE, natural=mixed),
        "counts 3,000 for 100": changed(silo, counts=[3e3, 100, 100, 100]),
        "counts 1e5 for 100": changed(silo, counts=[1e5, 100, 100, 100]),
        "counts 1e9 for 100": changed(silo, counts=[1e9, 100, 100, 100]),
        "all counts on one": changed(silo, counts=[0, 0, 0, 400]),
    }


def run(seed: int) -> list[dict[str, Any]]:
    """One row per attack: what each pooling loses against ten honest silos, and the findings."""
    rng = np.random.default_rng(seed)
    silos, test = honest_silos(rng), draw(rng, N_TEST)
    best = {name: _score(_fused(silos, *how), test) for name, how in COLUMNS.items()}
    rows = []
    for name, lie in attacks(silos, rng).items():
        all_silos = [*silos[:-1], lie]
        found = kf.diagnose(kf.fuse(all_silos)).findings
        row: dict[str, Any] = {"attack": name}
        for column, how in COLUMNS.items():
            row[column] = _score(_fused(all_silos, *how), test) - best[column]
        row["named"] = any(f.silo == HOSTILE for f in found)
        row["others named"] = len({f.silo for f in found} - {HOSTILE})
        rows.append(row)
    return rows


def _fused(silos: list[kf.Posterior], pooling: Pooling, min_support: int) -> kf.Fusion:
    return kf.fuse(silos, pooling=pooling).with_min_support(min_support)


def _score(fusion: kf.Fusion, test: FloatArray) -> float:
    return float(fusion.model().score(test))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)


def main(args: argparse.Namespace, console: Console) -> None:
    """Worst loss over the seeds, how often the silo is named, and how many others on average."""
    runs = [run(seed) for seed in range(args.first_seed, args.first_seed + args.seeds)]
    (args.out / "results.json").write_text(json.dumps(runs))
    table = Table("attack", *COLUMNS, "named", "others")
    for of_one in zip(*runs, strict=True):
        losses = [f"{min(row[column] for row in of_one):.4f}" for column in COLUMNS]
        named = [f"{sum(row['named'] for row in of_one)} of {len(runs)}"]
        others = [f"{np.mean([row['others named'] for row in of_one]):.1f}"]
        table.add_row(of_one[0]["attack"], *losses, *named, *others)
    console.print(table)
