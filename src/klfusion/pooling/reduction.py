"""Reduction of all local components to the few that predict best.

Local components without their priors are statistics of observations. Together they are a large
mixture, that of all observations. The global mixture is fitted to it by expectation maximisation:
responsibilities, then ``prior + sum_l r_lg statistics_l``. So components may be shared between
global ones (Vasconcelos and Lippman, 1999; Goldberger and Roweis, 2005).

Responsibilities of a whole component are too coarse where components overlap. For Gaussians they
are those of draws from it, new ones in each batch. Averages over batches remove the noise (online
expectation maximisation: Cappe and Moulines, 2009), and so does the known expectation of the
draws' statistics, a control variate. All observations of an HMM's state are assigned as one:
states that were shared out would be left too often. Words of a local topic are assigned one by
one.

A component that the matching left out does not describe its observations: it may be a mixture of
two. It has responsibilities, and global components are fitted to the others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy.special import softmax

from klfusion._utils.arrays import TINY, FloatArray, IntArray
from klfusion.families import Family
from klfusion.families.gaussian import GaussianPosterior

# How far the fit gets within half a second: docs/experiments/density.md.
_ITERATIONS = 100
_BATCHES = 20  # of draws
_STEP = 0.4  # batch t moves by t^-0.4; averages of the later half remove the noise
_DRAWS = 4.5  # draws per parameter of the global mixture in a batch
_LEAST_DRAWS = 3_000
_CERTAIN = 1e6  # times the observations: then expected log-densities are those at the mean
_MOST_BYTES = 2**28  # of the draws' statistics
_PAIRS_EACH = 32  # draws per local component, for its final responsibilities
_TOLERANCE = 1e-6  # nats per observation
_OTHERS = 0.1  # share of a local topic that starts in other global ones


@dataclass(frozen=True, eq=False)
class Atoms:
    """Local components of all silos as statistics of their observations, and a start."""

    family: Family
    prior: FloatArray  # of a global component, (p,)
    statistics: FloatArray  # per observation, (n, p)
    counts: FloatArray  # observations behind each, (n,)
    start: IntArray  # labels (n,), -1 for none
    size: int
    tied: bool = False  # all components have one covariance

    def natural(self, share: FloatArray) -> FloatArray:
        """Global posteriors (G, p), given what share (n, G) of each component they have."""
        return self.posterior((share * self.fitted[:, None]).T @ self.statistics)

    def posterior(self, total: FloatArray) -> FloatArray:
        """Global posteriors (G, p) of the observations' statistics (G, p)."""
        return self.prior + (tied(self.family, total) if self.tied else total)

    @cached_property
    def fitted(self) -> FloatArray:
        """Observations to which global components are fitted, (n,)."""
        return np.where(self.start < 0, 0.0, self.counts)

    @property
    def hard(self) -> FloatArray:
        """The start as shares (n, G)."""
        out: FloatArray = (self.start[:, None] == np.arange(self.size)).astype(np.float64)
        return out


def tied(family: Family, total: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """Statistics (n, p) with the average covariance, by default each observation's, for all."""
    assert isinstance(family, GaussianPosterior)
    n = family.effective_size(total)
    # A component without observations has the moments of another, times zero.
    mean, covariance = family.observation_moments(
        np.where(n[:, None] > 0, total, total[n.argmax()])
    )
    weights = n if weights is None else weights
    common = np.tensordot(weights / weights.sum(), covariance, axes=1)
    return family.observed(mean, np.broadcast_to(common, covariance.shape), n)


def by_components(atoms: Atoms) -> tuple[FloatArray, FloatArray]:
    """Natural parameters and shares (n, G); all observations of a component are assigned as one."""
    share, old, fitted = atoms.hard, -np.inf, atoms.fitted
    for _ in range(_ITERATIONS):
        natural = atoms.natural(share)
        weights = np.maximum(share.T @ fitted, TINY) / fitted.sum()
        log_p = atoms.statistics @ atoms.family.mean(natural).T + np.log(weights)
        log_p *= atoms.counts[:, None]
        of_each = np.logaddexp.reduce(log_p, axis=1)
        share, bound = softmax(log_p, axis=1), float(of_each[fitted > 0].sum())
        if bound - old < _TOLERANCE * fitted.sum():
            break
        old = bound
    return natural, share


def by_draws(atoms: Atoms, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Natural parameters and shares (n, G) of Gaussian components, from draws of them."""
    family, counts = atoms.family, atoms.fitted
    assert isinstance(family, GaussianPosterior)
    n_parameters = float(family.n_parameters(atoms.prior[None])[0]) * atoms.size
    most = _MOST_BYTES // (8 * family.size)
    pairs = min(max(_LEAST_DRAWS, int(_DRAWS * n_parameters)), most) // 2
    reached = np.cumsum(counts) / counts.sum()
    draw = _drawing(family, atoms.statistics, rng)

    def shares(drawn: FloatArray) -> FloatArray:
        weights = np.maximum(family.effective_size(total), TINY)
        expected = family.mean(_CERTAIN * atoms.posterior(total))
        return np.asarray(softmax(drawn @ expected.T + np.log(weights), axis=1))

    total = (atoms.hard * counts[:, None]).T @ atoms.statistics
    average = np.zeros_like(total)
    for batch in range(_BATCHES):
        quantiles = (np.arange(pairs) + rng.random()) / pairs
        which = np.minimum(np.searchsorted(reached, quantiles), len(counts) - 1)
        drawn = draw(which)
        share = shares(drawn)
        found = share.T @ drawn
        # Where all draws from a component have one share, their expected sum is known.
        first = np.flatnonzero(np.diff(which, prepend=-1))
        n_drawn = 2.0 * np.diff(first, append=pairs)[:, None]
        error = atoms.statistics[which[first]] * n_drawn - _sums(drawn, first)
        corrected = found + (_sums(share, first) / n_drawn).T @ error
        scale, step = counts.sum() / len(drawn), (batch + 2.0) ** -_STEP
        moved = total + step * (scale * corrected - total)
        stays = family.inside(atoms.posterior(moved))
        total = np.where(stays[:, None], moved, total + step * (scale * found - total))
        if (late := batch - _BATCHES // 2) >= 0:
            average += (total - average) / (late + 1.0)
    total = average
    share, at_once = np.zeros((len(counts), atoms.size)), max(1, pairs // _PAIRS_EACH)
    for low in range(0, len(counts), at_once):
        some = np.arange(low, min(low + at_once, len(counts)))
        of_draws = shares(draw(np.repeat(some, _PAIRS_EACH)))
        share[some] = of_draws.reshape(2, len(some), _PAIRS_EACH, -1).mean(axis=(0, 2))
    return atoms.posterior(total), share


def _sums(drawn: FloatArray, first: IntArray) -> FloatArray:
    """Sums over the pairs (2 m, p) of each component, given the first pair of each."""
    return np.asarray(np.add.reduceat(drawn.reshape(2, -1, drawn.shape[1]).sum(0), first, axis=0))


def _drawing(
    family: GaussianPosterior, statistics: FloatArray, rng: np.random.Generator
) -> Callable[[IntArray], FloatArray]:
    """Draw from some components (m,), by number: statistics (2 m, p) of pairs around the means."""
    mean, covariance = family.observation_moments(statistics)
    full = covariance.ndim == 3
    root = np.linalg.cholesky(covariance) if full else np.sqrt(covariance)

    def draw(which: IntArray) -> FloatArray:
        away = rng.standard_normal((len(which), family.dim))
        if full:
            edges = np.flatnonzero(np.diff(which, prepend=-1, append=-1))
            for low, high in pairwise(edges.tolist()):  # which is sorted
                away[low:high] = away[low:high] @ root[which[low]].T
        else:
            away *= root[which]
        return family.of_points(np.concatenate([mean[which] + away, mean[which] - away]))

    return draw


def by_words(atoms: Atoms) -> tuple[FloatArray, FloatArray]:
    """Natural parameters and shares (n, G) of topics: each word of a topic has its own share.

    Local topics are mixtures of the global ones, as documents are (Hofmann, 1999).
    """
    words, fitted = atoms.statistics * atoms.counts[:, None], atoms.start >= 0
    share = (1.0 - _OTHERS) * atoms.hard + _OTHERS / atoms.size
    share /= share.sum(axis=1, keepdims=True)  # what was matched to none starts in all
    topic = atoms.natural(share)
    old = -np.inf
    for _ in range(_ITERATIONS):
        topic = topic / topic.sum(axis=1, keepdims=True)
        expected = np.maximum(share @ topic, TINY)
        ratio = words / expected
        topic, share = topic * (share[fitted].T @ ratio[fitted]), share * (ratio @ topic.T)
        share /= np.maximum(share.sum(axis=1, keepdims=True), TINY)
        bound = float((words * np.log(expected))[fitted].sum() / words[fitted].sum())
        if bound - old < _TOLERANCE:
            break
        old = bound
    return atoms.prior + topic, share
