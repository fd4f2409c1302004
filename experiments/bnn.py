"""Section 5.4: one network fused from five local ones, and its predictive uncertainty."""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.metrics import roc_auc_score

import klfusion as kf
from experiments import data, fuse_by_average
from experiments.images import Images, deal, load
from klfusion.adapters import rebuild
from klfusion.posteriors.structure.network import kept_units

DESCRIPTION = "Bayesian neural networks on unevenly split digits (section 5.4)"
# First of consecutive seeds of splits, none of which served development.
FIRST_SEED = 201
SIZES = {"mnist": (200, 281, 400, 550), "fashion_mnist": (281,), "digits": (60, 100, 150)}
DEEP_SIZES = (350, 300)
_BINS = 15  # of the calibration error
Row = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m experiments bnn``."""
    parser.add_argument("--dataset", choices=("mnist", "fashion_mnist", "digits"), default="mnist")
    parser.add_argument("--splits", type=int, default=5, help="random splits over five silos")
    parser.add_argument(
        "--first-seed", type=int, default=FIRST_SEED, help="seed of the first split"
    )
    parser.add_argument(
        "--hidden", type=int, nargs="+", default=[150], help="units per hidden layer"
    )
    parser.add_argument(
        "--filters", type=int, nargs="*", default=[], help="of convolutional layers before these"
    )
    parser.add_argument("--prior", choices=("normal", "horseshoe"), default="normal")
    parser.add_argument(
        "--tempering",
        type=float,
        default=0.05,
        help="weight of the prior; 1 gives the evidence lower bound",
    )
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument(
        "--basis", choices=("pixels", "cosines"), default="pixels", help="inputs of the network"
    )
    parser.add_argument("--pooled", action="store_true", help="train on all the data as well")
    data.add_argument(parser)


def main(args: argparse.Namespace, console: Console) -> None:
    """Run all splits, write ``results.json`` and the figures, show the table."""
    images = load(args.dataset, args.data_dir)
    if args.basis == "cosines":
        images = images.in_cosines()
    rows: list[Row] = []
    first: dict[str, Any] = {}
    for number in range(args.splits):
        seed = args.first_seed + number
        console.print(f"split {seed}")
        for row, network in run_split(args, images, seed):
            rows.append(row)
            if number == 0:
                first[row["method"]] = network
        table = summary(rows)
        settings = {k: str(v) for k, v in vars(args).items() if k not in ("out", "data_dir")}
        found = {"settings": settings, "summary": table, "rows": rows}
        (args.out / "results.json").write_text(json.dumps(found, indent=1))
    console.print(shown(table))
    from experiments import bnn_figures  # noqa: PLC0415 (matplotlib is an extra)

    bnn_figures.draw(rows, first, images, args.out)


def run_split(args: argparse.Namespace, images: Images, seed: int) -> Iterator[tuple[Row, Any]]:
    """Train the silos' networks, fuse and evaluate them: one row per method."""
    silos, seconds = local_networks(args, images, deal(images.train_digits, seed), seed)
    networks = {p.name: rebuild(p) for p in silos}

    def row(method: str, network: Any, units: int, elapsed: float) -> tuple[Row, Any]:
        found = {"split": seed, "method": method, "units": units, "seconds": elapsed}
        return found | evaluate(network.predict_proba, images), network

    for posterior in silos:
        yield row(posterior.name, networks[posterior.name], posterior.n_components, seconds)
    one = len(args.hidden) == 1 and not args.filters
    sizes: dict[str, Any] = {"size chosen": None}
    if one:
        on = units_on(silos)  # few under a horseshoe prior
        sizes |= {f"{size} units": size for size in SIZES[args.dataset] if size < on}
        sizes["nothing merged"] = on
    elif args.filters:
        layers = range(1, len([*args.filters, *args.hidden]) + 1)
        sizes["nothing merged"] = tuple(units_on(silos, layer) for layer in layers)
    else:
        sizes[f"{DEEP_SIZES} units"] = DEEP_SIZES
    for label, size in sizes.items():
        start = time.perf_counter()
        fusion = fuse_by_average(silos, n_components=size)
        elapsed = time.perf_counter() - start
        name = f"fused, {label}"
        yield row(name, fusion.model(), units_of(fusion), elapsed)
        if size == 281:
            plain = rebuild(kf.baselines.plain_average(silos, fusion))
            yield row("plain average, 281 units", plain, size, elapsed)
    for name, weighted in (("ensemble", False), ("class-weighted ensemble", True)):
        ensemble = kf.baselines.Ensemble(silos, class_weighted=weighted)
        yield row(name, ensemble, sum(p.n_components for p in silos), 0.0)
    if one:
        start = time.perf_counter()
        matched = kf.baselines.pfnm(silos)
        elapsed = time.perf_counter() - start
        yield row("PFNM", matched.model(), matched.n_components, elapsed)
        averaged = rebuild(kf.baselines.coordinate_average(silos))
        yield row("coordinate average", averaged, args.hidden[0], 0.0)
    if args.pooled:
        everything = [np.arange(len(images.train))]
        pooled, elapsed = local_networks(args, images, everything, seed, "pooled")
        yield row("pooled", rebuild(pooled[0]), pooled[0].n_components, elapsed)


def units_on(silos: list[kf.Posterior], layer: int = 1) -> int:
    """Number of active units in these hidden layers."""
    return sum(len(kept_units(p.structure, layer)) for p in silos if p.structure is not None)


def units_of(fusion: kf.Fusion) -> Any:
    """Hidden units of a fused network, a list if it has several hidden layers."""
    sizes = [layer.shape[0] for layer in fusion.model().layers[:-1]]
    return sizes[0] if len(sizes) == 1 else sizes


def local_networks(
    args: argparse.Namespace, images: Images, rows: list[Any], seed: int, label: str = "silo"
) -> tuple[list[kf.Posterior], float]:
    """Posteriors of the silos, cached under ``--out``, and the seconds of their training."""
    folder = args.out / "locals"
    folder.mkdir(parents=True, exist_ok=True)
    shape = "-".join(map(str, [*(f"{n}f" for n in args.filters), *args.hidden]))
    key = f"{args.dataset}-{args.prior}-{args.tempering:g}-{args.epochs}-{args.batch_size}-{shape}"
    if images.basis != "pixels":
        key += f"-{images.basis}"
    posteriors, total = [], 0.0
    for j, own in enumerate(rows):
        path = folder / f"{key}-{seed}-{label}-{j}.safetensors"
        if not path.is_file():
            start = time.perf_counter()
            net = learner(args, random_state=1000 * seed + j)
            net.fit(images.train[own], images.train_digits[own])
            posterior = kf.extract(net, name=f"{label} {j}")
            seconds = time.perf_counter() - start
            kf.save(
                path, replace(posterior, provenance={**posterior.provenance, "seconds": seconds})
            )
        loaded = kf.load(path)
        assert isinstance(loaded, kf.Posterior)
        total += float(loaded.provenance["seconds"])
        posteriors.append(loaded)
    return posteriors, total


def learner(args: argparse.Namespace, random_state: int) -> Any:
    """An untrained network."""
    from klfusion import learners  # noqa: PLC0415 (PyTorch is an extra)

    horseshoe = args.prior == "horseshoe"
    filters = {} if horseshoe else {"filters": tuple(args.filters)}
    return (learners.HorseshoeBNN if horseshoe else learners.MeanFieldBNN)(
        hidden=tuple(args.hidden), classes=range(10), epochs=args.epochs, tempering=args.tempering,
        batch_size=args.batch_size, random_state=random_state, **filters,
    )  # fmt: skip


def evaluate(predict_proba: Callable[[Any], Any], images: Images) -> Row:
    """Accuracy, log-likelihood, entropy and calibration on test images; entropy on fonts."""
    p, y = predict_proba(images.test), images.test_digits
    entropy = _entropy(p)
    found: Row = {
        "accuracy": 100.0 * float((p.argmax(axis=1) == y).mean()),
        "log_likelihood": float(np.log(np.maximum(p[np.arange(len(y)), y], 1e-30)).mean()),
        "entropy": float(entropy.mean()),
        "calibration_error": calibration_error(p, y),
        "entropy_by_digit": [float(entropy[y == k].mean()) for k in range(10)],
    }
    if images.fonts is not None:
        outside = _entropy(predict_proba(images.fonts))
        both = np.concatenate([entropy, outside])
        is_font = np.repeat([0, 1], [len(entropy), len(outside)])
        found["font_entropy"] = float(outside.mean())
        found["font_auroc"] = float(roc_auc_score(is_font, both))
        found["font_entropy_by_digit"] = [
            float(outside[images.font_digits == k].mean()) for k in range(10)
        ]
    return found


def calibration_error(p: Any, y: Any) -> float:
    """Expected calibration error over bins of confidence."""
    confidence, right = p.max(axis=1), p.argmax(axis=1) == y
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    gap = np.bincount(bins, weights=right - confidence, minlength=_BINS)
    return float(np.abs(gap).sum() / len(y))


def calibration_floor(p: Any, n_draws: int = 20) -> float:
    """Expected calibration error of labels drawn from ``p``: that of a classifier without one."""
    rng, cumulative = np.random.default_rng(0), p.cumsum(axis=1)[:, :-1]
    draws = ((rng.random((len(p), 1)) > cumulative).sum(axis=1) for _ in range(n_draws))
    return float(np.mean([calibration_error(p, y) for y in draws]))


def _entropy(p: Any) -> Any:
    return -(p * np.log(np.maximum(p, 1e-30))).sum(axis=1)


def summary(rows: list[Row]) -> list[Row]:
    """Means per method over the splits, and the lowest accuracy."""
    groups = defaultdict(list)
    for one in rows:
        groups[one["method"]].append(one)
    numbers = (
        "units", "accuracy", "log_likelihood", "entropy", "calibration_error", "font_entropy",
        "font_auroc", "seconds",
    )  # fmt: skip
    out = []
    for method, group in groups.items():
        row: Row = {"method": method, "splits": len(group)}
        for key in numbers:
            if key in group[0]:
                row[key] = np.mean([r[key] for r in group], axis=0).tolist()
        row["least_accuracy"] = min(r["accuracy"] for r in group)
        out.append(row)
    return out


def shown(rows: list[Row]) -> Table:
    """A table of rows."""
    table = Table(
        "method", "units", "accuracy", "log-lik.", "entropy", "calibration", "fonts", "AUROC", "s"
    )
    for row in rows:
        units = row["units"]
        table.add_row(
            row["method"],
            f"{units:.0f}" if isinstance(units, float) else str([round(u) for u in units]),
            f"{row['accuracy']:.2f}",
            f"{row['log_likelihood']:.3f}",
            f"{row['entropy']:.3f}",
            f"{row['calibration_error']:.3f}",
            f"{row.get('font_entropy', float('nan')):.3f}",
            f"{row.get('font_auroc', float('nan')):.3f}",
            f"{row['seconds']:.1f}",
        )
    return table


def results(path: Path) -> dict[str, Any]:
    """Results that `main` wrote."""
    found: dict[str, Any] = json.loads((path / "results.json").read_text())
    return found
