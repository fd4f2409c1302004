"""Regressions of hospitals: one or two rounds of posteriors against FLamby, BFI and pooled fits.

Heart disease at four hospitals is a logistic regression with an intercept per hospital. Breast
cancer in six regions is Cox's model. Trauma at three hospitals is the example of the R package BFI.
The strength of the prior is estimated from what hospitals send in the first round; no test row is
looked at. Intercepts have a prior deviation of 10.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from lifelines import CoxPHFitter
from lifelines.utils import concordance_index
from rich.console import Console
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

import klfusion as kf
from experiments import data, hospitals_data
from experiments.hospitals_data import FLAMBY_SEED, Hospital, Hospitals, Split
from experiments.tables import by_name
from klfusion.adapters import _likelihoods
from klfusion.posteriors.structure.regression import Information

DESCRIPTION = "regressions and survival models of hospitals against FLamby, BFI and pooled fits"
HEART_SEEDS = range(30)  # development used others
SURVIVAL_SEEDS = range(20)
FIRST_SD = 1.0  # prior deviation of coefficients in the first round; scikit-learn's default
INTERCEPT_SD = 10.0
BFI_PRECISION = 0.01  # of all coefficients, in BFI's example
_Models = dict[str, Any]  # by hospital
_Message = Callable[[str, Hospital, float, Any], kf.Posterior]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Command-line options."""
    data.add_argument(parser)
    parser.add_argument("--quick", action="store_true", help="three splits instead of 30 and 20")


def main(args: argparse.Namespace, console: Console) -> None:
    """Run all, print tables, and write ``hospitals.json``."""
    results: dict[str, Any] = {}
    with threadpool_limits(1):
        results["trauma"] = trauma(args.data_dir)
        results["heart"] = heart(args.data_dir, range(3) if args.quick else HEART_SEEDS)
        results["breast cancer"] = breast_cancer(
            args.data_dir, range(3) if args.quick else SURVIVAL_SEEDS
        )
    for title, rows in results.items():
        console.print(by_name(title, rows, "model", ".4f"))
    path = args.out / "hospitals.json"
    path.write_text(json.dumps(results, indent=1), encoding="utf-8")


# Messages and rounds ----------------------------------------------------------------------------


def logistic_message(local: list[str], intercept_sd: float = INTERCEPT_SD) -> _Message:
    """What a hospital sends of a logistic regression."""

    def message(name: str, own: Hospital, sd: float, at: Any) -> kf.Posterior:
        prior = dict.fromkeys(own.x.columns, sd) | {"intercept": intercept_sd}
        return kf.extract(
            LogisticRegression(), name=name, data=(own.x, own.y), prior_sd=prior, local=local, at=at
        )

    return message


def cox_message(name: str, own: Hospital, sd: float, at: Any) -> kf.Posterior:
    """What a hospital sends of Cox's model."""
    frame = own.x.assign(T=own.y[:, 0], E=own.y[:, 1])
    columns = {"duration_col": "T", "event_col": "E"}
    return kf.extract(CoxPHFitter(), name=name, data=frame, prior_sd=sd, at=at, **columns)


def rounds(
    message: _Message, train: Hospitals, n: int, sd: float | None = None, **settings: Any
) -> list[kf.Fusion]:
    """The fusion after each round; without ``sd`` it is estimated from the first."""
    strength = FIRST_SD if sd is None else sd
    found: list[kf.Fusion] = []
    for number in range(n):
        if number == 1 and sd is None:
            strength = kf.estimate_prior_sd(found[0])
        at = {name: found[-1].remove(name) if found else None for name in train}
        silos = [message(name, own, strength, at[name]) for name, own in train.items()]
        last = settings if number == n - 1 else {}
        found.append(kf.fuse(silos, **({"pooling": "product"} | last)))
    return found


def estimated(message: _Message, name: str, own: Hospital) -> kf.Fusion:
    """One hospital's own fit, its prior as strong as its own data say."""
    first = kf.fuse([message(name, own, FIRST_SD, None)])
    return kf.fuse([message(name, own, kf.estimate_prior_sd(first), None)])


def meta_analysis(silos: list[kf.Posterior], *, random: bool) -> dict[str, float]:
    """Each coefficient by itself: inverse-variance weights, with or without ``tau2``."""
    fusion = kf.fuse(silos)
    found = fusion.heterogeneity()
    out = dict.fromkeys(_by_name(fusion.posterior), 0.0)  # where no hospital says anything
    if random:
        return out | {key: value.estimate for key, value in found.items()}
    for key, value in found.items():
        estimates, variances = (np.array(v) for v in (value.estimates, value.variances))
        out[key] = float(np.average(estimates, weights=1.0 / variances))
    return out


# Heart disease ----------------------------------------------------------------------------------


def heart(data_dir: Any, seeds: range) -> dict[str, dict[str, float]]:
    """Accuracy and log-loss, means of hospitals, of FLamby's split and over random splits."""
    hospitals = hospitals_data.heart(data_dir)
    flamby = _heart_rows(hospitals_data.split_heart(hospitals, FLAMBY_SEED))
    random = [_heart_rows(hospitals_data.split_heart(hospitals, seed)) for seed in seeds]
    rows = {
        f"FLamby, {name}": {"accuracy, FLamby's split": value}
        for name, value in hospitals_data.published(data_dir, "heart").items()
    }
    for name, (accuracy, loss) in flamby.items():
        mean = np.mean([row[name] for row in random], axis=0)
        rows[name] = {
            "accuracy, FLamby's split": accuracy,
            "log-loss, FLamby's split": loss,
            f"accuracy, {len(seeds)} splits": float(mean[0]),
            f"log-loss, {len(seeds)} splits": float(mean[1]),
        }
    return rows


def _heart_rows(split: Split) -> dict[str, tuple[float, float]]:
    train, test = split
    own = logistic_message(["intercept"])
    first, second = rounds(own, train, 2)
    varying = rounds(own, train, 2, pooling="hierarchical")[-1]
    shared = logistic_message([], BFI_PRECISION**-0.5)
    bfi = rounds(shared, train, 1, sd=BFI_PRECISION**-0.5)[0]
    alone = {name: estimated(own, name, rows) for name, rows in train.items()}
    models: dict[str, _Models] = {
        "majority class of each hospital": {n: _Majority(rows.y) for n, rows in train.items()},
        "each hospital alone": {name: alone[name].model(name) for name in train},
        "pooled, one intercept": dict.fromkeys(train, _pooled_logistic(train)),
        "pooled, own intercepts": _pooled_own_intercepts(train),
        "BFI's rule, one intercept": dict.fromkeys(train, bfi.model()),
        "fixed-effect meta-analysis": _meta_models(own, train, random=False),
        "random-effects meta-analysis": _meta_models(own, train, random=True),
        "klfusion, one round": {name: first.model(name) for name in train},
        "klfusion, two rounds": {name: second.model(name) for name in train},
        "klfusion, two rounds, slopes vary": {name: varying.model(name) for name in train},
    }
    return {name: _classification(found, test) for name, found in models.items()}


class _Majority:
    """Predicts the share of sick patients, one of each class added."""

    def __init__(self, y: Any) -> None:
        self.share = (y.sum() + 1.0) / (len(y) + 2.0)

    def predict_proba(self, x: pd.DataFrame) -> Any:
        """The same for all."""
        return np.tile([1.0 - self.share, self.share], (len(x), 1))


def _pooled_logistic(train: Hospitals) -> Any:
    x, y = pd.concat([h.x for h in train.values()]), np.concatenate([h.y for h in train.values()])
    return estimated(logistic_message([]), "pooled", Hospital(x, y)).model()


def _pooled_own_intercepts(train: Hospitals) -> _Models:
    """All rows in one place: as many rounds as it takes, which end at the pooled mode."""
    last = rounds(logistic_message(["intercept"]), train, 2)[-1]
    sd = kf.estimate_prior_sd(last)
    final = rounds(logistic_message(["intercept"]), train, 6, sd=sd)[-1]
    return {name: final.model(name) for name in train}


def _meta_models(message: _Message, train: Hospitals, *, random: bool) -> _Models:
    """Slopes of a meta-analysis, the intercept that each hospital's data give beside them."""
    silos = [message(name, own, FIRST_SD, None) for name, own in train.items()]
    slopes = meta_analysis(silos, random=random)
    fusion, models = kf.fuse(silos), {}
    structure = fusion.posterior.structure
    assert structure is not None
    order = structure.info["coordinates"]
    mean = np.array([slopes[key] for key in order])
    for number, (name, own) in enumerate(train.items()):
        offset, gain = structure.arrays["local.offset"], structure.arrays["local.gain"]
        intercept = float((offset[number] + gain[number] @ mean)[0])
        model = LogisticRegression().fit([[0.0] * len(order), [1.0] * len(order)], [0, 1])
        model.coef_, model.intercept_ = np.array([[slopes[c] for c in own.x]]), [intercept]
        models[name] = _OfArrays(model)
    return models


class _OfArrays:
    def __init__(self, model: Any) -> None:
        self.model = model

    def predict_proba(self, x: pd.DataFrame) -> Any:
        """Without names of columns."""
        return self.model.predict_proba(x.to_numpy())


def _classification(models: _Models, test: Hospitals) -> tuple[float, float]:
    """Accuracy and log-loss, means of hospitals."""
    accuracy, loss = [], []
    for name, own in test.items():
        p = np.clip(models[name].predict_proba(own.x)[:, 1], 1e-12, 1.0 - 1e-12)
        accuracy.append(np.mean((p > 0.5) == own.y))
        loss.append(-np.mean(np.where(own.y == 1, np.log(p), np.log1p(-p))))
    return float(np.mean(accuracy)), float(np.mean(loss))


# Breast cancer ----------------------------------------------------------------------------------


def breast_cancer(data_dir: Any, seeds: range) -> dict[str, dict[str, float]]:
    """C-index of all test patients, and mean of regions: FLamby's split, and random splits."""
    hospitals, split = hospitals_data.breast_cancer(data_dir)
    flamby = _survival_rows(split)
    random = [_survival_rows(hospitals_data.split_survival(hospitals, seed)) for seed in seeds]
    measures = {"C-index": "Pooled Test", "mean of regions": "client_test"}
    rows: dict[str, dict[str, float]] = {}
    for measure, test in measures.items():
        for name, value in hospitals_data.published(data_dir, "tcga", test).items():
            rows.setdefault(f"FLamby, {name}", {})[f"{measure}, FLamby's split"] = value
    for name, scores in flamby.items():
        over = np.mean([row[name] for row in random], axis=0)
        for number, measure in enumerate(measures):
            row = rows.setdefault(name, {})
            row[f"{measure}, FLamby's split"] = scores[number]
            row[f"{measure}, {len(seeds)} splits"] = float(over[number])
    return rows


def _survival_rows(split: Split) -> dict[str, tuple[float, float]]:
    train, test = split
    first, second = rounds(cox_message, train, 2)
    varying = rounds(cox_message, train, 2, pooling="hierarchical")[-1]
    bfi = rounds(cox_message, train, 1, sd=BFI_PRECISION**-0.5)[0]
    silos = [cox_message(name, own, FIRST_SD, None) for name, own in train.items()]
    x, y = (
        pd.concat([h.x for h in train.values()]),
        np.concatenate([h.y for h in train.values()]),
    )
    coefficients: dict[str, dict[str, dict[str, float]]] = {
        "each region alone": {
            n: _by_name(estimated(cox_message, n, own).posterior) for n, own in train.items()
        },
        "pooled": _same(train, _by_name(estimated(cox_message, "all", Hospital(x, y)).posterior)),
        "pooled, stratified": _same(train, _stratified(train, kf.estimate_prior_sd(first))),
        "BFI's rule": _same(train, _by_name(bfi.posterior)),
        "fixed-effect meta-analysis": _same(train, meta_analysis(silos, random=False)),
        "random-effects meta-analysis": _same(train, meta_analysis(silos, random=True)),
        "klfusion, one round": _same(train, _by_name(first.posterior)),
        "klfusion, two rounds": _same(train, _by_name(second.posterior)),
        "klfusion, two rounds, slopes vary": {n: _by_name(varying.site(n)) for n in train},
    }
    return {name: _concordance(found, test) for name, found in coefficients.items()}


def _by_name(posterior: kf.Posterior) -> dict[str, float]:
    assert posterior.structure is not None
    names = posterior.structure.info["coordinates"]
    return dict(zip(names, posterior.params()["mean"][0].tolist(), strict=True))


def _same(train: Hospitals, found: dict[str, float]) -> dict[str, dict[str, float]]:
    return dict.fromkeys(train, found)


def _stratified(train: Hospitals, sd: float) -> dict[str, float]:
    """All rows in one place, a baseline hazard per region."""
    parts = [
        _likelihoods.cox(own.x.to_numpy(), own.y[:, 0], own.y[:, 1] > 0) for own in train.values()
    ]
    names = list(next(iter(train.values())).x.columns)

    def likelihood(beta: Any) -> _likelihoods.Derivatives:
        found = [part(beta) for part in parts]
        return _likelihoods.Derivatives(*(sum(values) for values in zip(*found, strict=True)))

    prior = Information(np.zeros(len(names)), np.eye(len(names)) / sd**2)
    return dict(zip(names, _likelihoods.mode(likelihood, prior, names).tolist(), strict=True))


def _concordance(coefficients: dict[str, dict[str, float]], test: Hospitals) -> tuple[float, float]:
    """C-index of all patients, and the mean of regions with events that can be compared."""
    scores, risks = [], {}
    for name, own in test.items():
        risk = own.x.to_numpy() @ np.array([coefficients[name].get(c, 0.0) for c in own.x])
        risks[name] = risk
        try:
            scores.append(concordance_index(own.y[:, 0], -risk, own.y[:, 1]))
        except ZeroDivisionError:  # no pair to compare
            continue
    y = np.concatenate([own.y for own in test.values()])
    whole = concordance_index(y[:, 0], -np.concatenate([*risks.values()]), y[:, 1])
    return float(whole), float(np.mean(scores))


# Trauma -----------------------------------------------------------------------------------------


def trauma(data_dir: Any) -> dict[str, dict[str, float]]:
    """Distance from the pooled fit in posterior deviations, root mean square of coefficients."""
    hospitals = hospitals_data.trauma(data_dir)
    sd = BFI_PRECISION**-0.5
    message = logistic_message([], sd)
    x = pd.concat([h.x for h in hospitals.values()])
    y = np.concatenate([h.y for h in hospitals.values()])
    pooled = message("pooled", Hospital(x, y), sd, None).params()
    precision = np.linalg.inv(pooled["covariance"][0])
    names = ("BFI's rule, which is one round", "klfusion, two rounds", "klfusion, three rounds")
    rows = {}
    for name, fusion in zip(names, rounds(message, hospitals, 3, sd=sd), strict=True):
        off = fusion.posterior.params()["mean"][0] - pooled["mean"][0]
        rows[name] = {"deviations": float(np.sqrt(off @ precision @ off / len(off)))}
    return rows
