"""SPAHM: statistical parameter aggregation via heterogeneous matching.

A Beta-Bernoulli process of global atoms; a silo's point estimates are noisy copies of some of them.
Silos are matched in turn, each by one assignment that maximises the posterior given the others,
and the three variances are estimated again after each pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from scipy.optimize import linear_sum_assignment

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.progress import Report
from klfusion.families import Located, require
from klfusion.methods import Method
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, Status

_FLOOR = 1e-10  # of both variances
_MOST_POPULAR = 10  # counts above this weigh no more, or popular atoms would take everything


@final
@dataclass(frozen=True, kw_only=True)
class Spahm(Method):
    """Settings of SPAHM.

    ``gamma`` is the mass of the Beta process: larger expects more atoms. ``n_passes`` over the
    silos in random order follow the first.
    """

    name: ClassVar[str] = "spahm"
    gamma: float = 1.0
    n_passes: int = 10

    def compared(
        self, problem: FusionProblem, *like: FloatArray, variation: FloatArray | None = None
    ) -> FusionProblem:
        """The components as they are."""
        del like, variation
        return problem

    def run(
        self,
        problem: FusionProblem,
        n_components: int | None,
        rng: np.random.Generator,
        report: Report,
    ) -> Matching:
        """Match, estimate, and match again."""
        points = require(problem.family, Located, self.name).location(problem.natural)
        model = _Atoms(points, problem, self.gamma)
        sizes = np.array([rows.stop - rows.start for rows in problem.silos])
        for j in np.argsort(-sizes, kind="stable"):
            model.place(int(j))
        for number in range(self.n_passes):
            report("matching", number + 1, self.n_passes)
            model.estimate()
            for j in rng.permutation(len(sizes)):
                model.take_out(int(j))
                model.place(int(j))
        model.estimate()
        labels = np.unique(model.labels, return_inverse=True)[1].astype(np.intp)
        size = int(labels.max()) + 1
        value = problem.divergence(labels, size)
        return Matching(
            labels, value, 0.0, [value], 0.0, Status.CONVERGED,
            location=model.atoms()[np.unique(model.labels)],
        )  # fmt: skip


class _Atoms:
    """Sums, sums of squares and counts of the points at each atom, and the hyper-parameters."""

    def __init__(self, points: FloatArray, problem: FusionProblem, gamma: float) -> None:
        self.points, self.silos, self.gamma = points, problem.silos, gamma
        self.labels: IntArray = np.full(len(points), -1, dtype=np.intp)
        dim = points.shape[1]
        self.sum, self.square = np.zeros((0, dim)), np.zeros((0, dim))
        self.count = np.zeros(0, dtype=np.intp)
        self.mu0 = points.mean(axis=0)
        self.var = np.full(dim, max(float(points.var(axis=0).mean()) / 10.0, _FLOOR))  # of copies
        self.var0 = np.full(dim, max(float(points.var(axis=0).mean()), _FLOOR))  # of atoms

    def take_out(self, silo: int) -> None:
        """Remove a silo's points."""
        rows = self.silos[silo]
        at, x = self.labels[rows], self.points[rows]
        self.count[at] -= 1
        self.sum[at] -= x
        self.square[at] -= x**2
        self.labels[rows] = -1

    def place(self, silo: int) -> None:
        """Match a silo's points to atoms, or let them found new ones."""
        rows = self.silos[silo]
        x = self.points[rows]
        used = np.flatnonzero(self.count > 0)
        gain = np.concatenate([self._match(x, used), self._found(x)], axis=1)
        column = linear_sum_assignment(gain, maximize=True)[1]
        new = column >= len(used)
        at = np.empty(len(x), dtype=np.intp)
        at[~new] = used[column[~new]]
        at[new] = len(self.count) + np.arange(int(new.sum()))
        self._grow(int(new.sum()))
        self.count[at] += 1
        self.sum[at] += x
        self.square[at] += x**2
        self.labels[rows] = at

    def _grow(self, how_many: int) -> None:
        nothing = np.zeros((how_many, self.sum.shape[1]))
        self.sum = np.concatenate([self.sum, nothing])
        self.square = np.concatenate([self.square, nothing])
        self.count = np.concatenate([self.count, np.zeros(how_many, dtype=np.intp)])

    def _match(self, x: FloatArray, used: IntArray) -> FloatArray:
        """Log-posterior gained by sending each point to each atom in use."""
        m, s = self.count[used].astype(np.float64), self.sum[used]
        after = self._evidence(x[:, None, :] + s[None], m + 1.0)
        popular = np.minimum(m, _MOST_POPULAR)
        rest = np.maximum(len(self.silos) - popular, 1e-3)
        return np.asarray(after - self._evidence(s, m) + 2.0 * np.log(popular / rest))

    def _found(self, x: FloatArray) -> FloatArray:
        """Log-posterior gained by founding the k-th new atom."""
        alone = self._evidence(x, np.ones(len(x))) - self._evidence(0.0 * x, np.zeros(len(x)))
        k = np.arange(1.0, len(x) + 1.0)
        cost = 2.0 * np.log(self.gamma / len(self.silos)) - 2.0 * np.log(k)
        return np.asarray(alone[:, None] + cost[None])

    def _evidence(self, total: FloatArray, count: FloatArray) -> FloatArray:
        """Twice the log-evidence of ``count`` points that sum to ``total``, up to a constant."""
        n = count[..., None]
        scale = n * self.var0 + self.var
        value = self.var0 / self.var * total**2 + 2.0 * self.mu0 * total - n * self.mu0**2
        return np.asarray((value / scale - np.log(scale / self.var)).sum(axis=-1))

    def estimate(self) -> None:
        """Moment estimates of the mean and the two variances."""
        used = self.count > 0
        m, mean = self.count[used].astype(np.float64), self.sum[used] / self.count[used, None]
        dim = mean.shape[1]
        self.mu0 = mean.mean(axis=0)
        within = (self.square[used] - self.sum[used] * mean).sum()
        var = within / (dim * max(m.sum() - len(m), 1.0))
        between = np.square(mean - self.mu0).mean() - var * (1.0 / m).mean()
        self.var, self.var0 = (np.full(dim, max(float(v), _FLOOR)) for v in (var, between))

    def atoms(self) -> FloatArray:
        """Posterior means of all atoms."""
        m = self.count[:, None]
        return np.asarray((self.mu0 * self.var + self.sum * self.var0) / (m * self.var0 + self.var))
