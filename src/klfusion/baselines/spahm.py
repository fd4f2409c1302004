"""SPAHM: a silo's point estimates are noisy copies of global atoms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.baselines.baseline import Atoms, BetaProcessMatching
from klfusion.families import Located, require
from klfusion.objective.problem import FusionProblem

_FLOOR = 1e-10  # of both variances


@final
@dataclass(frozen=True, kw_only=True)
class Spahm(BetaProcessMatching):
    """Settings of SPAHM, those of every Beta-Bernoulli matching."""

    name: ClassVar[str] = "spahm"

    def atoms(self, problem: FusionProblem) -> _Points:
        """Global atoms, none in use."""
        return _Points(problem, self.gamma)


class _Points(Atoms):
    """Atoms with the sums of the points and of their squares."""

    def __init__(self, problem: FusionProblem, gamma: float) -> None:
        points = require(problem.family, Located, "spahm").location(problem.natural)
        super().__init__(np.concatenate([points, points**2], axis=1), problem, gamma)
        self.points, dim = points, points.shape[1]
        self.mu0 = points.mean(axis=0)
        self.var = np.full(dim, max(float(points.var(axis=0).mean()) / 10.0, _FLOOR))  # of copies
        self.var0 = np.full(dim, max(float(points.var(axis=0).mean()), _FLOOR))  # of atoms

    @property
    def sum(self) -> FloatArray:
        return self.total[:, : self.points.shape[1]]

    def gain_of_match(self, rows: slice, used: IntArray) -> FloatArray:
        m, s = self.count[used].astype(np.float64), self.sum[used]
        after = self._evidence(self.points[rows][:, None, :] + s[None], m + 1.0)
        return np.asarray(after - self._evidence(s, m) + 2.0 * self.log_popularity(used))

    def gain_of_new(self, rows: slice) -> FloatArray:
        x = self.points[rows]
        return self._evidence(x, np.ones(len(x))) - self._evidence(0.0 * x, np.zeros(len(x)))

    def _evidence(self, total: FloatArray, count: FloatArray) -> FloatArray:
        """Twice the log-evidence of ``count`` points that sum to ``total``, up to a constant."""
        n = count[..., None]
        scale = n * self.var0 + self.var
        value = self.var0 / self.var * total**2 + 2.0 * self.mu0 * total - n * self.mu0**2
        return np.asarray((value / scale - np.log(scale / self.var)).sum(axis=-1))

    def estimate(self) -> None:
        """Moment estimates of the mean and the two variances."""
        used = self.count > 0
        total, square = np.split(self.total[used], 2, axis=1)
        m, mean = self.count[used].astype(np.float64), total / self.count[used, None]
        dim = mean.shape[1]
        self.mu0 = mean.mean(axis=0)
        var = (square - total * mean).sum() / (dim * max(m.sum() - len(m), 1.0))
        between = np.square(mean - self.mu0).mean() - var * (1.0 / m).mean()
        self.var, self.var0 = (np.full(dim, max(float(v), _FLOOR)) for v in (var, between))

    def location(self) -> FloatArray:
        m = self.count[:, None]
        return np.asarray((self.mu0 * self.var + self.sum * self.var0) / (m * self.var0 + self.var))
