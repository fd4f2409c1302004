"""Entrants of `experiments.skew`: Bayesian heads on agreed features, in one round and in three.

Peers use the same statistics. AFL (He et al., CVPR 2025) is ridge regression of one-hot labels with
ridge 1, and has no probabilities: a softmax of its scores is taken. FedCGS (Guan et al., 2025) has
Gaussian classes with the covariance within classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from scipy.special import softmax

import klfusion as kf
from experiments.skew_problem import Predict, Problem, Result, Split
from klfusion.learners import BayesianHead, ConvolutionalFeatures

# Partitions whose first seed is calibrated, too: leverages of 60,000 rows take a minute.
CALIBRATED = ("classes 1", "Dirichlet 0.01")
_JITTER = 1e-6  # share of the mean variance added to a covariance matrix that may be singular
N_ROUNDS = 2  # of calibration: a third gains less than 0.004 nats


@cache
def features(given: Problem, quick: bool) -> dict[str, Any]:
    """Features of training, test and other images: sites compute them row by row."""
    convolutions = ConvolutionalFeatures(5) if quick else ConvolutionalFeatures()
    parts = {"train": given.train, "test": given.test, "outside": given.outside}
    return {key: convolutions.transform(x) for key, x in parts.items()}


def heads(split: Split) -> Iterator[Result]:
    """The fused head, and the same after rounds of calibration."""
    given, found = split.problem, features(split.problem, split.quick)
    x, y = found["train"], given.labels
    sites = (
        kf.extract(BayesianHead().fit(x[own], y[own]), name=f"site {j}")
        for j, own in enumerate(split.rows)
    )
    fused, n_bytes = added(sites)
    head = fused.model()

    def result(method: str, predict: Predict, sent: int) -> Result:
        def predict_proba(images: Any) -> Any:
            return predict(found["test" if images is given.test else "outside"])

        return Result(method, predict_proba, sent)

    yield result("head, one round", head.predict_proba, n_bytes)
    first = split.seed == split.first_seed and split.partition in CALIBRATED
    if not (split.quick or first):
        return
    for name, predict in peers(head.statistics_).items():
        yield result(name, predict, n_bytes)
    for done in range(1, N_ROUNDS + 1):
        sent = [
            head.calibration(x[own], y[own], name=f"site {j}") for j, own in enumerate(split.rows)
        ]
        head = head.calibrated(kf.fuse(sent, keep_silos=False))
        n_bytes += max(size_of(p) for p in sent)
        yield result(f"head, calibrated {done}x", head.predict_proba, n_bytes)


def peers(total: Any) -> dict[str, Predict]:
    """Classifiers of others from the same statistics."""
    n, d = total.counts.sum(), len(total.scatter)
    gram = total.scatter + n * np.outer(total.mean, total.mean)
    ridge = np.linalg.solve(gram + np.eye(d), total.sums.T)
    means = total.sums / total.counts[:, None]
    within = (gram - means.T @ total.sums) / n
    within += _JITTER * np.trace(within) / d * np.eye(d)
    slopes = np.linalg.solve(within, means.T)
    intercepts = np.log(total.counts / n) - 0.5 * np.einsum("cd,dc->c", means, slopes)
    return {
        "AFL, softmax of scores": lambda x: softmax(x @ ridge, axis=1),
        "Gaussian classes (FedCGS)": lambda x: softmax(x @ slopes + intercepts, axis=1),
    }


def added(sites: Iterator[kf.Posterior], at_once: int = 10) -> tuple[kf.Fusion, int]:
    """The fusion of all sites, a few at a time to save memory, and the most bytes of a site."""
    batch: list[kf.Posterior] = []
    fusion, largest = None, 0

    def fused() -> kf.Fusion:
        return kf.fuse(batch if fusion is None else [fusion.posterior, *batch], keep_silos=False)

    for site in sites:
        batch.append(site)
        largest = max(largest, size_of(site))
        if len(batch) == at_once:
            fusion, batch = fused(), []
    if batch or fusion is None:
        fusion = fused()
    return fusion, largest


def size_of(posterior: kf.Posterior) -> int:
    """Bytes of the arrays of a posterior."""
    arrays = [posterior.natural, posterior.prior, posterior.counts]
    if posterior.structure is not None:
        arrays += posterior.structure.arrays.values()
    return int(sum(np.asarray(a).nbytes for a in arrays if a is not None))
