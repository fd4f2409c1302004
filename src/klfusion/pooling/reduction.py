"""Reduction of all local components to the few that predict best.

Local components without their priors are statistics of observations. Together they are a large
mixture, that of all observations. The global mixture is fitted to it by expectation maximisation:
responsibilities, then ``prior + sum_l r_lg statistics_l``. So components may be shared between
global ones (Vasconcelos and Lippman, 1999; Goldberger and Roweis, 2005).

Responsibilities of a whole component are too coarse where components overlap. For Gaussians they
are those of draws: see `klfusion.pooling.gaussian_reduction`. All observations of an HMM's state
are assigned as one: states that were shared out would be left too often. Words of a local topic
are assigned one by one.

A component that the matching left out does not describe its observations: it may be a mixture of
two. It has responsibilities, and global components are fitted to the others. Of Gaussians only
those are left out whose observations the others describe.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import softmax

from klfusion._utils.arrays import TINY, FloatArray, IntArray
from klfusion.families import Family
from klfusion.families.wishart import NormalWishart

_ITERATIONS = 100
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


def tied(family: Family, total: FloatArray) -> FloatArray:
    """Statistics (n, p) with one covariance for all: the sum of scatters over that of weights."""
    assert isinstance(family, NormalWishart)
    n = np.maximum(family.effective_size(total), 0.0)
    some = total.copy()
    some[n == 0, : family.dim + 1] = np.eye(family.dim + 1)[-1]  # a scatter without a mean
    mean, covariance = family.observation_moments(some)
    weights = total[:, -1]
    common = np.tensordot(weights / weights.sum(), covariance, axes=1)
    return family.observed(mean, np.broadcast_to(common, covariance.shape), n)


def by_components(atoms: Atoms) -> tuple[FloatArray, FloatArray]:
    """Natural parameters and shares (n, G); all observations of a component are assigned as one.

    Likelihoods alone are compared (Goldberger and Roweis, 2005). With weights, all observations of
    a rare component would go to a frequent one that overlaps it.
    """
    share, old, fitted = atoms.hard, -np.inf, atoms.fitted
    for _ in range(_ITERATIONS):
        natural = atoms.natural(share)
        log_p = atoms.statistics @ atoms.family.mean(natural).T * atoms.counts[:, None]
        of_each = np.logaddexp.reduce(log_p, axis=1)
        share, bound = softmax(log_p, axis=1), float(of_each[fitted > 0].sum())
        if bound - old < _TOLERANCE * fitted.sum():
            break
        old = bound
    return natural, share


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
