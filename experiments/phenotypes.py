"""Phenotypes of a simulated consortium, and of heart disease at four hospitals.

The simulated consortium has five phenotypes in twelve columns of five kinds. Each of 3 to 20 sites
has 2 to 4 of them, 10 to 30 % of cells are missing, and a third of the sites never measured one
column. Heart disease has 13 columns, of which hospitals lack up to four nearly or wholly.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from rich.console import Console
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

import klfusion as kf
from experiments import data, phenotypes_data
from experiments.phenotype_sizes import dealt_at_random, fitted
from experiments.phenotypes_data import Consortium, Frame
from experiments.tables import by_name
from klfusion.learners import MixedMixture

DESCRIPTION = "phenotypes of mixed and incomplete data: simulated consortium, heart disease"
SEEDS = range(40)  # development used seeds from 100 on
SPLITS = range(20)
DEALT = 4  # sites to which patients are dealt at random
LOSS = 0.02  # nats per patient that `MaxLoss` may lose
ROUNDS = 4  # of communication, where hospitals answer more than once


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Command-line options."""
    data.add_argument(parser)
    parser.add_argument("--quick", action="store_true", help="four runs and two splits")
    parser.add_argument("--first-seed", type=int, default=0, help="of both; development: 100")
    parser.add_argument("--only", choices=["simulated", "heart"], help="one of the two")


def main(args: argparse.Namespace, console: Console) -> None:
    """Run both, print tables, and write ``phenotypes.json``."""
    results: dict[str, Any] = {}
    first = args.first_seed
    n, m = (4, 2) if args.quick else (len(SEEDS), len(SPLITS))
    with threadpool_limits(1):
        if args.only != "heart":
            rows = [simulated(seed) for seed in range(first, first + n)]
            results["simulated"] = {"runs": rows, "summary": summary_of_simulated(rows)}
        if args.only != "simulated":
            hospitals = phenotypes_data.heart(args.data_dir)
            rows = [heart(hospitals, seed) for seed in range(first, first + m)]
            results["heart"] = {"splits": rows, "summary": summary_of_heart(rows)}
    for title, found in results.items():
        values = {name: {"value": value} for name, value in found["summary"].items()}
        console.print(by_name(title, values, "measure", ".4f"))
    path = args.out / "phenotypes.json"
    path.write_text(json.dumps(results, indent=1), encoding="utf-8")


# Simulated consortium -------------------------------------------------------------------------


def simulated(seed: int) -> dict[str, float]:
    """Size, agreement with the true phenotypes, and imputation error of one consortium."""
    sites = Consortium.drawn(seed)
    models = {name: fitted(sites.schema, frame, seed) for name, frame in sites.train.items()}
    fusion = kf.fuse(models)
    every = phenotypes_data.joined(list(sites.train.values()))
    pooled = fitted(sites.schema, every, seed)
    out = {
        "seed": float(seed),
        "sites": float(len(sites.train)),
        "phenotypes": float(sites.n_phenotypes),
        "fused size": float(fusion.n_components),
        "pooled size": float(pooled.n_components_),
    }
    for name, model in {"fused": fusion.model(), "pooled": pooled}.items():
        labels = model.predict(sites.test)
        out[f"{name} ARI"] = float(adjusted_rand_score(sites.test_labels, labels))
        out[f"{name} error"] = sites.error(model.impute(sites.test))
    return out


def summary_of_simulated(rows: list[dict[str, float]]) -> dict[str, float]:
    """Over runs."""
    mean = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
    right = {
        name: float(np.mean([row[f"{name} size"] == row["phenotypes"] for row in rows]))
        for name in ("fused", "pooled")
    }
    return {
        "runs": float(len(rows)),
        "right number, fused": right["fused"],
        "right number, pooled": right["pooled"],
        "ARI, fused": mean["fused ARI"],
        "ARI, fused over pooled": mean["fused ARI"] / mean["pooled ARI"],
        "imputation error, fused": mean["fused error"],
        "imputation error, fused over pooled": mean["fused error"] / mean["pooled error"],
    }


# Heart disease --------------------------------------------------------------------------------


def heart(hospitals: dict[str, Frame], seed: int) -> dict[str, float]:
    """Held-out log-likelihood per patient; and sizes with patients dealt to sites at random."""
    rng, schema = np.random.default_rng(seed), phenotypes_data.HEART_SCHEMA
    split = {name: phenotypes_data.split(frame, rng) for name, frame in hospitals.items()}
    train = {name: own[0] for name, own in split.items()}
    test = phenotypes_data.joined([own[1] for own in split.values()])
    every = phenotypes_data.joined(list(train.values()))
    models = {name: fitted(schema, frame, seed) for name, frame in train.items()}
    pooled, fusion = fitted(schema, every, seed), kf.fuse(models)
    sites = phenotypes_data.dealt(every, DEALT, rng)
    of_loss = kf.fuse(models, method=kf.MaxLoss(LOSS))
    out = {f"alone, {name}": model.score(test) for name, model in models.items()}
    return out | {
        "fused": fusion.model().score(test),
        "fused, MaxLoss": of_loss.model().score(test),
        "MaxLoss size": float(of_loss.n_components),
        **after_rounds(schema, train, test, seed),
        "pooled": pooled.score(test),
        "fused size": float(fusion.n_components),
        "pooled size": float(pooled.n_components_),
        **dealt_at_random(schema, every, test, pooled, sites, seed),
    }


def after_rounds(
    schema: kf.Schema, train: dict[str, Frame], test: Frame, seed: int
) -> dict[str, float]:
    """Held-out log-likelihood after each round."""

    def site(frame: Frame) -> Any:
        model = MixedMixture(schema, random_state=seed)

        def fit(start: kf.Posterior | None, prior: Any) -> kf.Posterior:
            again = start is not None and prior is not None
            found = model.refit(frame, start, prior) if again else model.fit(frame)
            return kf.extract(found, name="site")

        return fit

    refined = kf.refine_rounds({n: site(f) for n, f in train.items()}, rounds=ROUNDS)
    later = enumerate(refined.rounds[1:], 2)
    return {f"fused, {k} rounds": kf.adapters.rebuild(p).score(test) for k, p in later}


def summary_of_heart(rows: list[dict[str, float]]) -> dict[str, float]:
    """Means over splits."""
    mean = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
    sizes = [row["pooled size"] for row in rows]
    best_alone = [max(v for k, v in row.items() if k.startswith("alone")) for row in rows]
    over = [row["fused"] - alone for row, alone in zip(rows, best_alone, strict=True)]
    return mean | {
        "splits": float(len(rows)),
        "fused less best hospital": float(np.mean(over)),
        "splits in which fused is above every hospital": float(np.mean(np.array(over) > 0)),
        "fused less pooled": mean["fused"] - mean["pooled"],
        "fused, MaxLoss less pooled": mean["fused, MaxLoss"] - mean["pooled"],
        "dealt less pooled": mean["dealt"] - mean["pooled"],
        **{
            f"{key} less pooled": value - mean["pooled"]
            for key, value in mean.items()
            if key.endswith("rounds")
        },
        "dealt size is within one of the pooled size": float(
            np.mean([abs(row["dealt size"] - row["pooled size"]) <= 1 for row in rows])
        ),
        "pooled size is: the most frequent one": max(map(sizes.count, sizes)) / len(sizes),
        **{
            f"pooled size is: {key}": float(
                np.mean([row[key] == size for row, size in zip(rows, sizes, strict=True)])
            )
            for key in rows[0]
            if "size" in key and key.startswith(("dealt", "pooled size,"))
        },
    }
