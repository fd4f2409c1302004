"""The top level of a hierarchical Dirichlet process: the stick-breaking weights.

``beta_k = u_k prod_{j < k} (1 - u_j)`` with ``u_k ~ Beta(1, gamma)``. The remainder, the *rest*,
belongs to states not in use. In the lower bound of `_transitions` every term is linear in
``E[log beta]`` or in ``E[beta]``, so the optimal ``q(u_k)`` given the others is

    q(u) proportional to u^(a - 1) (1 - u)^(b - 1) exp(tilt u),

a tilted Beta distribution. It has one mode, and its moments are sums over a grid around the mode.
Each update is thus exact up to quadrature, and none lowers the bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import betaln, expit, log_expit

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
    def even(cls, n_states: int, gamma: float) -> Sticks:
        """Equal expected weights for all states and the rest."""
        share = 1.0 / np.arange(n_states + 1.0, 1.0, -1.0)
        return cls(np.tile([[1.0], [gamma]], n_states), np.zeros(n_states), share)

    def updated(self, gamma: float, logs: FloatArray, slopes: FloatArray) -> Sticks:
        """Maximise the bound over one stick after another.

        ``logs`` and ``slopes`` (K + 1,) are the coefficients of ``E[log beta]`` and ``E[beta]``
        in the bound.
        """
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
        return Sticks(shape, tilt, share)

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
