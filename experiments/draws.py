"""Draws of NUTS at sites, fused, against reference draws of all data and NumPyro's own ways.

The regressions are those of posteriordb, dealt to 4 and 10 sites, at random or by a covariate.
Label switching is made and undone in draws of a mixture and of a hidden Markov model. Mixtures of
three and five components are sampled at three sites, and pooled.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import klfusion as kf
from experiments import data
from experiments.tables import by_name
from klfusion._utils.arrays import FloatArray
from klfusion.draws.convergence import ess
from klfusion.draws.fused import joint_normal

DESCRIPTION = "draws of NUTS at sites against reference draws of posteriordb"
SITES, HOW = (4, 10), ("random", "covariate")
POINTS = 4000  # at which sites are asked in a second round
_SAMPLE = 100_000  # draws of a fused posterior, so that their noise is none of the result
Moments = tuple[FloatArray, FloatArray]  # mean (d,), covariance (d, d)
Rows = dict[str, dict[str, float]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Command-line options."""
    data.add_argument(parser)
    parser.add_argument("--draws", type=int, default=10_000, help="of each chain (default: 10000)")
    parser.add_argument("--seed", type=int, default=0, help="of deals and chains (default: 0)")
    parser.add_argument("--only", default="", help="what has a name that begins so, as mixture-3")


def main(args: argparse.Namespace, console: Console) -> None:
    """Run all, print tables, and write ``draws.json``."""
    import numpyro  # noqa: PLC0415 (an extra)

    numpyro.enable_x64()
    results: dict[str, Any] = {"relabelling": relabelling(args.data_dir, args.seed)}
    console.print(by_name("relabelling", results["relabelling"]))
    found = regressions(args, console)
    results["regressions"] = found
    if found:
        results["summary"] = summarised(found)
        title = "divergence from the reference in nats, mean over deals"
        console.print(by_name(title, results["summary"]))
    results["mixtures"] = {
        f"{size} components": mixtures(size, args.seed, args.draws)
        for size in (3, 5)
        if f"mixture-{size}".startswith(args.only)
    }
    if results["mixtures"]:
        console.print(by_name("mixtures at three sites", results["mixtures"]))
    path = args.out / "draws.json"
    path.write_text(json.dumps(results, indent=1), encoding="utf-8")


# Regressions --------------------------------------------------------------------------------------


def moments(draws: dict[str, FloatArray]) -> Moments:
    """Of coefficients and noise, as the reference has them."""
    keys = [key for key in ("beta", "sigma") if key in draws]
    lead = draws["beta"].ndim - 1
    table = np.column_stack([draws[k].reshape(np.prod(draws[k].shape[:lead]), -1) for k in keys])
    return table.mean(axis=0), np.cov(table.T)


def compared(found: Moments, reference: Moments) -> dict[str, float]:
    """Largest errors of means and deviations, and the divergence of the Normals of the moments."""
    (mean, covariance), (true, own) = found, reference
    deviation = np.sqrt(np.diag(own))
    family = kf.families.Normal(len(mean))
    first, second = (family.natural(m[None], c[None]) for m, c in (reference, found))
    return {
        "mean": float(np.abs((mean - true) / deviation).max()),
        "deviation": float(np.abs(np.sqrt(np.diag(covariance)) / deviation - 1.0).max()),
        "nats": float(family.kl(first, second)[0, 0]),
    }


def regressions(args: argparse.Namespace, console: Console) -> dict[str, Rows]:
    """Errors by regression, deal and method."""
    from experiments import draws_models as nuts  # noqa: PLC0415 (needs NumPyro)

    out: dict[str, Rows] = {}
    for name, model in nuts.regressions(args.data_dir).items():
        if not name.startswith(args.only):
            continue
        deals = {(n, how): nuts.dealt(model, n, how, args.seed) for n in SITES for how in HOW}
        flat = [rows for own in deals.values() for rows in own]
        sampled = iter(nuts.nuts(model, flat, args.seed, args.draws))
        if model.logistic:  # posteriordb has no draws of it
            every = [np.arange(len(model.y))]
            reference = moments(nuts.nuts(model, every, args.seed + 1, args.draws)[0][0])
        else:
            reference = moments(nuts.reference(name, args.data_dir))
        out[name] = {}
        for (n, how), own in deals.items():
            sites = [next(sampled) for _ in own]
            for method, found in methods(model, own, sites).items():
                out[name][f"{n} sites, {how}, {method}"] = compared(found, reference)
        console.print(by_name(name, out[name]))
    return out


def methods(model: Any, rows: list[Any], sites: list[Any]) -> dict[str, Moments]:
    """Moments of coefficients and noise by each way to combine the same draws."""
    from jax import tree  # noqa: PLC0415
    from numpyro.infer import hmc_util  # noqa: PLC0415

    prior = model.prior.for_silos()
    silos = [
        kf.from_draws(
            draws, name=f"site-{k}", prior=prior, diverging=diverging, n_observations=len(rows[k]),
            scales={"beta": "sigma"} if "sigma" in draws else None,
        )
        for k, (draws, diverging) in enumerate(sites)
    ]  # fmt: skip
    fusion = kf.fuse(silos)
    values = fusion.proposals(POINTS)
    asked = {p.name: model.log_likelihood(own, values) for p, own in zip(silos, rows, strict=True)}
    again = fusion.reweighted(asked, prior=prior, draws=POINTS)
    one, two = (joint_normal(f.posterior).sample(1, _SAMPLE, 0) for f in (fusion, again))
    flat = [{k: v.reshape(-1, *v.shape[2:]) for k, v in draws.items()} for draws, _ in sites]
    flat = [{k: draws[k] for k in sorted(draws)} for draws in flat]  # as JAX orders a mapping
    merged = {k: np.asarray(v) for k, v in tree.map(np.asarray, hmc_util.consensus(flat)).items()}
    mean, covariance = (np.asarray(part) for part in hmc_util.parametric(flat))
    return {
        "klfusion": moments(one),
        "two rounds": moments(two),
        "consensus": moments(merged),
        "parametric": (mean, covariance),
    }


def summarised(found: dict[str, Rows]) -> Rows:
    """Mean divergence over deals by regression, and in how many klfusion is nearest."""
    names = ("klfusion", "consensus", "parametric", "two rounds")
    out: Rows = {}
    for name, rows in found.items():
        out[name] = {
            m: float(np.mean([row["nats"] for key, row in rows.items() if key.endswith(m)]))
            for m in names
        }
        four = [row for key, row in rows.items() if key.startswith("4") and "klfusion" in key]
        out[name] |= {
            "mean, 4 sites": max(row["mean"] for row in four),
            "deviation, 4 sites": max(row["deviation"] for row in four),
        }
    nearest = [min(names[:3], key=row.__getitem__) == "klfusion" for row in out.values()]
    out["nearest in"] = {"klfusion": float(np.sum(nearest))}
    return out


# Label switching ----------------------------------------------------------------------------------


def switched(draws: dict[str, FloatArray], axes: dict[str, int], seed: int) -> tuple[Any, Any]:
    """Components of each draw permuted at random along the first ``axes`` axes of each variable."""
    rng = np.random.default_rng(seed)
    some = next(iter(draws.values()))
    size = some.shape[2]
    order = rng.permuted(np.tile(np.arange(size), (*some.shape[:2], 1)), axis=2)
    out = dict(draws)
    for key, n_axes in axes.items():
        for axis in range(2, 2 + n_axes):
            shape = [1] * out[key].ndim
            shape[:2], shape[axis] = order.shape[:2], size
            out[key] = np.take_along_axis(out[key], order.reshape(shape), axis)
    return out, order


def relabelling(data_dir: Path | None, seed: int) -> Rows:
    """Errors in draws of posteriordb whose labels were switched at random."""
    from experiments import draws_models as nuts  # noqa: PLC0415

    mixture = nuts.reference("low_dim_gauss_mix-low_dim_gauss_mix", data_dir)
    share = mixture.pop("theta")
    mixture["w"] = np.stack([share, 1.0 - share], axis=-1)
    hmm = nuts.reference("hmm_example-hmm_example", data_dir)
    hmm = {"mu": hmm["mu"], "theta": np.stack([hmm["theta1"], hmm["theta2"]], axis=2)}
    out: Rows = {}
    for name, draws in {"low_dim_gauss_mix": mixture, "hmm_example": hmm}.items():
        axes = {key: 2 if key == "theta" else 1 for key in draws}
        mixed, order = switched(draws, axes, seed)
        dims = {key: ["state", "to"][:n] for key, n in axes.items()}
        found = kf.relabel(mixed, components=["state", "to"], dims=dims)
        placed = np.take_along_axis(order, found.permutation, axis=2)
        most = np.bincount(placed[..., 0].ravel(), minlength=2).max()
        out[name] = {
            "draws": placed[..., 0].size,
            "switched": int((order[..., 0] != 0).sum()),
            "errors": placed[..., 0].size - int(most),
            "least probability": float(found.probability.min()),
        }
    return out


# Mixtures -----------------------------------------------------------------------------------------


def mixtures(size: int, seed: int, draws: int) -> dict[str, float]:
    """Components of three sites fused, against NUTS of all data, both relabelled."""
    from experiments import draws_models as nuts  # noqa: PLC0415

    rng = np.random.default_rng(seed + size)
    angle = 2 * np.pi * np.arange(size) / size
    true = 1.2 * size * np.column_stack([np.cos(angle), np.sin(angle)])
    every = [true[rng.integers(size, size=100 * size)] for _ in range(3)]
    every = [own + rng.normal(size=own.shape) for own in every]
    *sites, pooled = nuts.nuts_of_mixtures([*every, np.concatenate(every)], size, seed, draws)
    dims = {"mu": ["component", "column"], "sd": ["component"], "w": ["component"]}
    prior = {"mu": nuts.MU_SD, "sd": nuts.SD_SCALE, "w": 1.0}
    silos = [
        kf.from_draws(own, name=f"site-{k}", components="component", dims=dims, prior=prior,
                      scales={"mu": "sd"})
        for k, own in enumerate(sites)
    ]  # fmt: skip
    fusion = kf.fuse(silos, pooling="product")
    reference = kf.relabel(pooled, components="component", dims=dims).draws["mu"]
    found = joint_normal(fusion.posterior).sample(1, _SAMPLE, 0)["mu"][0]
    away = found.mean(axis=0)[:, None] - reference.mean(axis=(0, 1))
    partner = np.square(away).sum(axis=2).argmin(axis=1)
    spread = reference.std(axis=(0, 1))[partner]
    labelled = [kf.relabel(own, components="component", dims=dims).draws for own in sites]
    return {
        "components": fusion.n_components,
        "right": float(_right(fusion, [own["mu"].mean(axis=(0, 1)) for own in labelled], true)),
        "mean": float((np.abs(away[np.arange(len(away)), partner]) / spread).max()),
        "deviation": float(np.abs(found.std(axis=0) / spread - 1.0).max()),
        "least effective draws": min(float(ess(_flat(own)).min()) for own in labelled),
    }


def _flat(draws: dict[str, FloatArray]) -> FloatArray:
    """All columns of the means, (chains, draws, d)."""
    return draws["mu"].reshape(*draws["mu"].shape[:2], -1)


def _right(fusion: kf.Fusion, means: list[FloatArray], true: FloatArray) -> bool:
    """Whether local components match exactly if they are nearest to the same true one."""
    nearest = np.square(np.concatenate(means)[:, None] - true).sum(axis=2).argmin(axis=1)
    labels = np.concatenate(fusion.labels)
    return (
        len({*zip(nearest.tolist(), labels.tolist(), strict=True)}) == len(true) == len({*labels})
    )
