"""Entrants of `experiments.skew`: networks in one round, and peers on the same local models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import klfusion as kf
from experiments.skew_heads import size_of
from experiments.skew_problem import Result, Split
from klfusion.adapters import rebuild

N_UNITS, N_EPOCHS = 100, 12
_N_CLASSES = 10


def networks(split: Split) -> Iterator[Result]:
    """Networks of the sites with two classes or more: fused, averaged, and as ensembles."""
    x, y = split.problem.train, split.problem.labels
    rows = [own for own in split.rows if len(np.unique(y[own])) > 1]
    if not rows:
        return
    sent = [local(x[own], y[own], 1000 * split.seed + j, f"site {j}") for j, own in enumerate(rows)]
    plain = [without_statistics(posterior) for posterior in sent]
    alone = [rebuild(posterior) for posterior in plain]
    best = max(alone, key=lambda net: float((net.predict(x[::10]) == y[::10]).mean()))
    largest, few = max(map(size_of, sent)), max(map(size_of, plain))
    yield Result("one-shot network, class statistics", kf.fuse(sent).model().predict_proba, largest)
    found: dict[str, Any] = {
        "one-shot network": kf.fuse(plain).model(),
        "ensemble": kf.baselines.Ensemble(plain),
        "class-weighted ensemble": kf.baselines.Ensemble(plain, class_weighted=True),
        "PFNM": kf.baselines.pfnm(plain).model(),
        "coordinate average": rebuild(kf.baselines.coordinate_average(plain)),
        "Fisher average": rebuild(kf.baselines.fisher_average(plain)),
        "OT fusion": rebuild(kf.baselines.ot_average(plain)),
        "best local": best,
    }
    for method, model in found.items():
        yield Result(method, model.predict_proba, few)


def local(x: Any, y: Any, seed: int, name: str) -> kf.Posterior:
    """The posterior of one site's network."""
    from klfusion.learners import MeanFieldBNN  # noqa: PLC0415 (PyTorch is an extra)

    net = MeanFieldBNN(
        (N_UNITS,), classes=range(_N_CLASSES), epochs=N_EPOCHS, class_statistics=True,
        random_state=seed, progress=False,
    )  # fmt: skip
    return kf.extract(net.fit(x, y), name=name)


def without_statistics(posterior: kf.Posterior) -> kf.Posterior:
    """The weights and class counts alone."""
    assert posterior.structure is not None
    parts = ("site.", "inputs.")
    arrays = {k: v for k, v in posterior.structure.arrays.items() if not k.startswith(parts)}
    return replace(posterior, structure=replace(posterior.structure, arrays=arrays))
