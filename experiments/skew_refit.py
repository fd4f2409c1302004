"""Entrant of `experiments.skew`: a fused network, and the same with a new head after one round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import klfusion as kf
from experiments.skew_heads import N_ROUNDS, added, size_of
from experiments.skew_problem import Result, Split

N_UNITS, N_EPOCHS = 100, 12  # of the local networks; a newcomer's settings
_N_CLASSES = 10


def refitted(split: Split) -> Iterator[Result]:
    """Fuse networks of the sites that have two classes or more; then all sites send statistics."""
    x, y = split.problem.train, split.problem.labels
    learners = [own for own in split.rows if len(np.unique(y[own])) > 1]
    if not learners:
        return
    locals_ = [_network(x[own], y[own], split.seed, j) for j, own in enumerate(learners)]
    fusion = kf.fuse(locals_, keep_silos=False)
    n_bytes = max(map(size_of, locals_))
    yield Result("network, fused", fusion.model().predict_proba, n_bytes)
    sent = (
        kf.head_statistics(fusion, x[own], y[own], name=f"site {j}")
        for j, own in enumerate(split.rows)
    )
    statistics, largest = added(sent)
    head: Any = kf.refit_head(fusion, statistics)
    yield Result("network, head refitted", head.predict_proba, n_bytes + largest)
    for _ in range(N_ROUNDS):
        rounds = [
            head.calibration(x[own], y[own], name=f"site {j}") for j, own in enumerate(split.rows)
        ]
        head = head.calibrated(kf.fuse(rounds, keep_silos=False))
    largest += N_ROUNDS * max(map(size_of, rounds))
    yield Result("network, head refitted and calibrated", head.predict_proba, n_bytes + largest)


def _network(x: Any, y: Any, seed: int, site: int) -> kf.Posterior:
    from klfusion.learners import MeanFieldBNN  # noqa: PLC0415 (PyTorch is an extra)

    net = MeanFieldBNN(
        (N_UNITS,), classes=range(_N_CLASSES), epochs=N_EPOCHS, tempering=0.05,
        random_state=1000 * seed + site, progress=False,
    )  # fmt: skip
    return kf.extract(net.fit(x, y), name=f"site {site}")
