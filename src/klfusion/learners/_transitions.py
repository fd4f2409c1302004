"""Transitions between states: sticky Dirichlet rows over common stick-breaking weights.

``beta_k = u_k prod_{j < k} (1 - u_j)`` with ``u_k ~ Beta(1, gamma)``. The remainder, the *rest*,
belongs to states not in use. ``pi_k ~ Dir(eta beta + kappa e_k)`` over K states and the rest. One
more row, without stickiness, is for the starts of sequences. ``log Gamma(1 + x)`` is convex and 0
at 0, hence superadditive, and (Hughes, Stephenson and Sudderth, 2015)

    log Gamma(eta + kappa) - sum_l log Gamma(eta beta_l + kappa [l = k])
        >= K log eta + sum_{l != k} log beta_l + log(eta beta_k + kappa) - log(eta + kappa).

The concave ``log(eta beta_k + kappa)`` lies above its chord between ``beta_k = 0`` and 1. So the
optimal ``q(u)`` is ``u^(a - 1) (1 - u)^(b - 1) exp(tilt u)``, a Beta with a tilt and one mode.
Its moments are sums over a grid around the mode, so no update lowers the bound.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import betaln, digamma, expit, gammaln, log_expit

from klfusion._utils.arrays import FloatArray

# Nodes of the trapezoid rule over logit(u), which converges geometrically for such densities.
_GRID = np.linspace(-1.0, 1.0, 97)
_REACH = 15.0  # half-width of the grid, in standard deviations


@dataclass(frozen=True, eq=False)
class Sticks:
    """The parameters of ``q(beta)``."""

    shape: FloatArray  # (2, K), `a` and `b` of each stick
    tilt: FloatArray  # (K,)
    share: FloatArray  # (K,), E[u_k]

    @property
    def weights(self) -> FloatArray:
        """``E[beta]``, the rest last, (K + 1,)."""
        left = np.concatenate([[1.0], np.cumprod(1.0 - self.share)])
        return np.asarray(left * np.append(self.share, 1.0))

    @classmethod
    def even(cls, n_states: int, gamma: float) -> Self:
        """Equal expected weights for all states and the rest."""
        share = 1.0 / np.arange(n_states + 1.0, 1.0, -1.0)
        return cls(np.tile([[1.0], [gamma]], n_states), np.zeros(n_states), share)

    def updated(self, gamma: float, logs: FloatArray, slopes: FloatArray) -> Self:
        """Maximise a bound with coefficients (K + 1,) of ``E[log beta]`` and ``E[beta]``."""
        later = np.cumsum(logs[::-1])[::-1]
        shape = np.stack([1.0 + logs[:-1], gamma + later[1:]])
        share, tilt = self.share.copy(), np.empty_like(self.share)
        n = len(share)
        # Expected contribution to the bound of sticks k and later, per unit of stick left.
        value = np.empty(n + 1)
        value[n] = slopes[n]
        for k in range(n - 1, 0, -1):
            value[k] = share[k] * slopes[k] + (1.0 - share[k]) * value[k + 1]
        left = 1.0
        for k in range(n):
            tilt[k] = left * (slopes[k] - value[k + 1])
            x, weight, _ = _grid(float(shape[0, k]), float(shape[1, k]), float(tilt[k]))
            share[k] = float(weight @ expit(x))
            left *= 1.0 - share[k]
        return type(self)(shape, tilt, share)

    def moments(self, gamma: float) -> tuple[FloatArray, float]:
        """``E[log beta]`` (K + 1,), and ``KL(q(u) || p(u))`` summed over sticks."""
        a, b = self.shape
        parameters = zip(a.tolist(), b.tolist(), self.tilt.tolist(), strict=True)
        points, weights, logs = zip(*(_grid(*one) for one in parameters), strict=True)
        x, weight = np.stack(points), np.stack(weights)
        log_u = (weight * log_expit(x)).sum(axis=1)
        log_rest = (weight * log_expit(-x)).sum(axis=1)
        divergence = (a - 1.0) @ log_u + (b - gamma) @ log_rest
        divergence += self.tilt @ self.share - sum(logs)
        divergence += len(a) * betaln(1.0, gamma)
        reached = np.concatenate([[0.0], np.cumsum(log_rest)])
        return reached + np.append(log_u, 0.0), float(divergence)


def _grid(a: float, b: float, tilt: float) -> tuple[FloatArray, FloatArray, float]:
    """Points of logit(u), their weights, and the log of the density's integral."""
    # The mode in logit(u) solves a (1 - u) - b u + tilt u (1 - u) = 0.
    half = 0.5 * (a + b - tilt)
    root = math.hypot(half, math.sqrt(a * tilt)) if tilt > 0 else math.sqrt(half**2 + a * tilt)
    mode = a / (half + root) if half > 0 else (root - half) / tilt
    curvature = mode * (1.0 - mode) * (2.0 * half + 2.0 * tilt * mode)
    reach = _REACH / math.sqrt(curvature)
    x = math.log(mode) - math.log1p(-mode) + reach * _GRID
    below, above = log_expit(x), log_expit(-x)
    log_density = a * below + b * above + tilt * np.exp(below)
    top = float(log_density.max())
    weight = np.exp(log_density - top)
    total = float(weight.sum())
    step = float(x[1] - x[0])
    return x, weight / total, top + math.log(total * step)


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
