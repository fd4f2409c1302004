"""Entrant of `experiments.skew`: a fused network, and the same with a new head after one round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import klfusion as kf
from experiments.skew_heads import N_ROUNDS, added, size_of
from experiments.skew_problem import Result, Split

N_UNITS, N_EPOCHS = 100, 12  # of the local networks; a newcomer's settings
CALIBRATED = "head refitted, nothing merged"  # the head that gets two rounds more
_N_CLASSES = 10


def refitted(split: Split) -> Iterator[Result]:
    """Fuse networks of the sites that have two classes or more; then all sites send statistics."""
    x, y = split.problem.train, split.problem.labels
    learners = [own for own in split.rows if len(np.unique(y[own])) > 1]
    if not learners:
        return
    locals_ = [_network(x[own], y[own], split.seed, j) for j, own in enumerate(learners)]
    n_bytes = max(map(size_of, locals_))
    merged = kf.fuse(locals_, keep_silos=False)
    yield Result("network, fused", merged.model().predict_proba, n_bytes)
    whole = kf.fuse(locals_, method=kf.Networks(loss=0), keep_silos=False)
    kinds = {
        "head refitted": (merged, True),
        "head refitted, nothing merged": (whole, True),
        "head refitted, nothing merged, no inputs": (whole, False),
    }
    for kind, (fusion, inputs) in kinds.items():
        head, largest = _refitted(split, fusion, inputs)
        yield Result(f"network, {kind}", head.predict_proba, n_bytes + largest)
        if kind != CALIBRATED:
            continue
        for _ in range(N_ROUNDS):
            rounds = [
                head.calibration(x[own], y[own], name=f"site {j}")
                for j, own in enumerate(split.rows)
            ]
            head = head.calibrated(kf.fuse(rounds, keep_silos=False))
            largest += max(map(size_of, rounds))
        yield Result(f"network, {kind}, calibrated", head.predict_proba, n_bytes + largest)


def _refitted(split: Split, fusion: kf.Fusion, inputs: bool) -> tuple[Any, int]:
    """A new head for a fused network, and the most bytes that a site sends for it."""
    x, y = split.problem.train, split.problem.labels
    sent = (
        kf.head_statistics(fusion, x[own], y[own], name=f"site {j}", inputs=inputs)
        for j, own in enumerate(split.rows)
    )
    statistics, largest = added(sent)
    return kf.refit_head(fusion, statistics), largest


def _network(x: Any, y: Any, seed: int, site: int) -> kf.Posterior:
    from klfusion.learners import MeanFieldBNN  # noqa: PLC0415 (PyTorch is an extra)

    net = MeanFieldBNN(
        (N_UNITS,), classes=range(_N_CLASSES), epochs=N_EPOCHS, tempering=0.05,
        random_state=1000 * seed + site, progress=False,
    )  # fmt: skip
    return kf.extract(net.fit(x, y), name=f"site {site}")
