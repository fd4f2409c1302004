"""Initial states of frames, by k-means or by time."""

import warnings

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray, relabel
from klfusion.learners._inference import Estimate, Frames, Model, Statistics

_MAX_CORRELATION = 0.99  # keeps the effective sample size above zero


def by_place(x: FloatArray, n_states: int, rng: np.random.Generator) -> IntArray:
    """Clusters of k-means, (T,)."""
    from sklearn.cluster import KMeans  # noqa: PLC0415 (slow to import)
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415

    with warnings.catch_warnings():  # with fewer distinct frames than states, some stay empty
        warnings.simplefilter("ignore", ConvergenceWarning)
        k_means = KMeans(n_states, n_init=1, random_state=int(rng.integers(2**31)))
        return np.asarray(k_means.fit_predict(x), dtype=np.intp)


def by_time(n_frames: int, n_states: int, rng: np.random.Generator) -> IntArray:
    """One contiguous segment of frames per state, cut at random, (T,)."""
    cuts = np.sort(rng.choice(np.arange(1, n_frames), n_states - 1, replace=False))
    return np.searchsorted(cuts, np.arange(n_frames), side="right")


def statistics_of(frames: Frames, labels: IntArray, lengths: IntArray) -> Statistics:
    """Statistics given the state of each frame; the largest state first."""
    labels = relabel(labels)
    n = int(labels.max()) + 1
    first = np.cumsum(lengths) - lengths
    later = np.ones(len(labels), dtype=bool)
    later[first] = False
    counts = np.zeros((n + 1, n))
    np.add.at(counts, (labels[:-1][later[1:]], labels[1:][later[1:]]), 1.0)
    np.add.at(counts[n], labels[first], 1.0)
    member = np.eye(n)[labels[frames.blocks.order]]
    return Statistics(member.T @ frames.features, counts).largest_first()


def effective_share(model: Model, frames: Frames, x: FloatArray, estimate: Estimate) -> float:
    """Effective sample size per frame for estimating a state's moments, at most 1.

    Consecutive frames of a state are correlated. Let ``rho`` be the correlation of consecutive
    whitened deviations from the state's mean, with geometric decay. For second moments, which are
    most of the parameters, N frames equal ``N (1 - rho^2) / (1 + rho^2)`` independent ones.
    """
    state = (frames.features @ model.family.mean(estimate.natural).T).argmax(axis=1)
    p = model.family.params(estimate.natural)
    whitener = np.linalg.inv(np.linalg.cholesky(p["scale_inv"] / p["dof"][:, None, None]))
    deviation = x[frames.blocks.order] - p["mean"][state]
    for k, matrix in enumerate(whitener):
        deviation[state == k] = deviation[state == k] @ matrix.T
    later, earlier = np.flatnonzero(~frames.blocks.is_first), frames.blocks.previous
    stays = state[later] == state[earlier]
    one, next_ = deviation[earlier[stays]], deviation[later[stays]]
    size = float(np.sqrt((one**2).sum() * (next_**2).sum()))
    rho = float(np.clip((one * next_).sum() / size, 0.0, _MAX_CORRELATION)) if size > 0 else 0.0
    return (1.0 - rho**2) / (1.0 + rho**2)
