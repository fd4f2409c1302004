"""Where inference begins: frames dealt to states, by place or by time."""

from __future__ import annotations

import warnings

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.learners._inference import Estimate, Frames, Model, Statistics


def by_place(x: FloatArray, n_states: int, rng: np.random.Generator) -> IntArray:
    """k-means, (T,)."""
    from sklearn.cluster import KMeans  # noqa: PLC0415 (slow to import)
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415

    with warnings.catch_warnings():  # fewer different frames than states: some stay empty
        warnings.simplefilter("ignore", ConvergenceWarning)
        means = KMeans(n_states, n_init=1, random_state=int(rng.integers(2**31)))
        return np.asarray(means.fit_predict(x), dtype=np.intp)


def by_time(n_frames: int, n_states: int, rng: np.random.Generator) -> IntArray:
    """Each state one stretch of frames, cut at random, (T,)."""
    cuts = np.sort(rng.choice(np.arange(1, n_frames), n_states - 1, replace=False))
    return np.searchsorted(cuts, np.arange(n_frames), side="right")


def statistics_of(frames: Frames, labels: IntArray, lengths: IntArray) -> Statistics:
    """Statistics of frames that are each in one state; the largest state first."""
    _, labels = np.unique(labels, return_inverse=True)
    n = int(labels.max()) + 1
    first = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    goes_on = np.ones(len(labels), dtype=bool)
    goes_on[first] = False
    counts = np.zeros((n + 1, n))
    np.add.at(counts, (labels[:-1][goes_on[1:]], labels[1:][goes_on[1:]]), 1.0)
    np.add.at(counts[n], labels[first], 1.0)
    member = np.eye(n)[labels[frames.blocks.order]]
    return Statistics(member.T @ frames.features, counts).largest_first()


def effective_share(model: Model, frames: Frames, x: FloatArray, estimate: Estimate) -> float:
    """How many independent frames a frame is worth for telling states' moments, at most 1.

    Frames of a state follow each other closely. If deviations from its mean, in units of its
    covariance, have correlation ``rho`` from one frame to the next and decay geometrically, then N
    frames tell second moments, nearly all of the parameters, as well as
    ``N (1 - rho^2) / (1 + rho^2)`` independent ones.
    """
    order = frames.blocks.order
    mean = model.family.mean(estimate.natural)
    state = (frames.features @ mean.T).argmax(axis=1)
    p = model.family.params(estimate.natural)
    whitener = np.linalg.inv(np.linalg.cholesky(p["scale_inv"] / p["dof"][:, None, None]))
    deviation = x[order] - p["mean"][state]
    for k in range(len(whitener)):
        deviation[state == k] = deviation[state == k] @ whitener[k].T
    later, earlier = np.flatnonzero(~frames.blocks.is_first), frames.blocks.previous
    stays = state[later] == state[earlier]
    one, next_ = deviation[earlier[stays]], deviation[later[stays]]
    size = float(np.sqrt((one**2).sum() * (next_**2).sum()))
    rho = float(np.clip((one * next_).sum() / size, 0.0, 0.99)) if size > 0 else 0.0
    return (1.0 - rho**2) / (1.0 + rho**2)
