"""Transitions between states: sticky Dirichlet rows over common weights.

``pi_k ~ Dir(eta beta + kappa e_k)`` over K states and the rest. One more row, without stickiness,
is for the starts of sequences. The normaliser of the Dirichlet is not linear in ``E[beta]`` or
``E[log beta]``. But ``log Gamma(1 + x)`` is convex and 0 at 0, hence superadditive, and

    log Gamma(eta + kappa) - sum_l log Gamma(eta beta_l + kappa [l = k])
        >= K log eta + sum_{l != k} log beta_l + log(eta beta_k + kappa) - log(eta + kappa)

(Hughes, Stephenson and Sudderth, 2015). The concave ``log(eta beta_k + kappa)`` lies above its
chord between ``beta_k = 0`` and 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, gammaln

from klfusion._utils.arrays import FloatArray
from klfusion.learners._sticks import Sticks


@dataclass(frozen=True)
class Transitions:
    """``q(pi)``, with starts in the last row and the rest in the last column, and ``q(beta)``."""

    concentration: FloatArray  # (K + 1, K + 1), Dirichlet rows
    sticks: Sticks

    @property
    def expected_log(self) -> FloatArray:
        """``E[log pi]``, (K + 1, K + 1)."""
        total = self.concentration.sum(axis=1, keepdims=True)
        return np.asarray(digamma(self.concentration) - digamma(total))


@dataclass(frozen=True)
class TransitionPrior:
    """Stickiness and the two concentrations of the paper's appendix C."""

    kappa: float
    gamma: float
    eta: float

    def rows(self, sticks: Sticks) -> FloatArray:
        """Expected pseudo-counts, (K + 1, K + 1)."""
        n = len(sticks.share)
        prior = np.tile(self.eta * sticks.weights, (n + 1, 1))
        prior[np.arange(n), np.arange(n)] += self.kappa
        return prior

    def posterior(self, counts: FloatArray, sticks: Sticks) -> Transitions:
        """Update ``q`` given expected counts (K + 1, K): rows, sticks, and rows again."""
        counts = np.pad(counts, [(0, 0), (0, 1)])
        q = Transitions(self.rows(sticks) + counts, sticks)
        slopes = self.eta * q.expected_log.sum(axis=0)
        slopes[:-1] += self._chord
        sticks = sticks.updated(self.gamma, self._logs(len(slopes) - 1), slopes)
        return Transitions(self.rows(sticks) + counts, sticks)

    def bound(self, q: Transitions) -> float:
        """The contribution to the lower bound: minus the divergence from the prior."""
        n = len(q.sticks.share)
        log_weights, divergence = q.sticks.moments(self.gamma)
        value = n * (n + 1) * math.log(self.eta) + self._logs(n) @ log_weights - divergence
        if self.kappa > 0:
            value += self._chord * (q.sticks.weights[:n].sum() - n)
        value += ((self.rows(q.sticks) - q.concentration) * q.expected_log).sum()
        return float(value - log_normaliser(q.concentration).sum())

    @property
    def _chord(self) -> float:
        """Slope of the chord of ``log(eta beta + kappa)``."""
        return math.log1p(self.eta / self.kappa) if self.kappa > 0 else 0.0

    def _logs(self, n: int) -> FloatArray:
        """Coefficient of each ``log beta_l`` in the bound: once per row without a sticky entry."""
        logs = np.full(n + 1, n + 1.0)
        if self.kappa > 0:
            logs[:n] -= 1.0
        return logs


def log_normaliser(concentration: FloatArray) -> FloatArray:
    """``log Gamma(sum) - sum log Gamma`` of each Dirichlet row."""
    return np.asarray(gammaln(concentration.sum(axis=1)) - gammaln(concentration).sum(axis=1))
