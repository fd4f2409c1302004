"""Matching to the atoms of a Beta-Bernoulli process: SPAHM and PFNM (Yurochkin et al., 2019).

A silo's components are noisy copies of global atoms. SPAHM matches points; its mean and its two
variances are estimated after each pass. PFNM matches units, with a shift ``w p`` and a precision
``p`` per weight.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from scipy.optimize import linear_sum_assignment

from klfusion._fuse import fuse
from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.baselines.baseline import Baseline, Models
from klfusion.families import Located, require
from klfusion.fusion.result import Fusion
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, Search, Status

_MAX_POPULARITY = 10  # larger counts of an atom weigh no more: no atom attracts every component
_FLOOR = 1e-10  # of both variances of SPAHM


@dataclass(frozen=True, kw_only=True)
class BetaProcessMatching(Baseline):
    """Silos are matched one at a time to the atoms of a Beta-Bernoulli process of mass ``gamma``.

    The first pass takes silos by falling size; ``n_passes`` passes in random order follow.
    """

    gamma: float = 1.0
    n_passes: int = 10

    @abstractmethod
    def atoms(self, problem: FusionProblem) -> Atoms:
        """The model's atoms, none in use."""

    def run(self, problem: FusionProblem, search: Search) -> Matching:
        """Match every silo, then rematch each given the others."""
        atoms = self.atoms(problem)
        sizes = np.array([rows.stop - rows.start for rows in problem.silos])
        for j in np.argsort(-sizes, kind="stable"):
            atoms.place(problem.silos[int(j)])
        for number in range(self.n_passes):
            search.report("matching", number + 1, self.n_passes)
            atoms.estimate()
            for j in search.rng.permutation(len(sizes)):
                atoms.take_out(problem.silos[int(j)])
                atoms.place(problem.silos[int(j)])
        atoms.estimate()
        used, labels = np.unique(atoms.labels, return_inverse=True)
        location = atoms.location()[used]
        return self.matching(problem, labels.astype(np.intp), Status.CONVERGED, location)


class Atoms(ABC):
    """Atoms with the sums of ``values`` (n, p) and the number of components assigned to each."""

    def __init__(self, values: FloatArray, problem: FusionProblem, gamma: float) -> None:
        self.values, self.n_silos, self.gamma = values, len(problem.silos), gamma
        self.labels: IntArray = np.full(len(values), -1, dtype=np.intp)
        self.count: IntArray = np.zeros(0, dtype=np.intp)
        self.total = np.zeros((0, values.shape[1]))

    def take_out(self, rows: slice) -> None:
        """Remove a silo's components from their atoms."""
        at = self.labels[rows]
        self.count[at] -= 1
        self.total[at] -= self.values[rows]
        self.labels[rows] = -1

    def place(self, rows: slice) -> None:
        """Assign a silo's components to different atoms, in use or new, at the largest gain."""
        used = np.flatnonzero(self.count)
        n = rows.stop - rows.start
        new_cost = 2.0 * np.log(self.gamma / self.n_silos) - 2.0 * np.log(np.arange(1.0, n + 1.0))
        gain = self.gain_of_new(rows)[:, None] + new_cost[None]
        gain = np.concatenate([self.gain_of_match(rows, used), gain], axis=1)
        column = linear_sum_assignment(gain, maximize=True)[1]
        new = column >= len(used)
        at = np.empty(n, dtype=np.intp)
        at[~new] = used[column[~new]]
        at[new] = len(self.count) + np.arange(int(new.sum()))
        n_new = int(new.sum())
        self.count = np.append(self.count, np.zeros(n_new, dtype=np.intp))
        self.total = np.concatenate([self.total, np.zeros((n_new, self.total.shape[1]))])
        self.count[at] += 1
        self.total[at] += self.values[rows]
        self.labels[rows] = at

    def log_popularity(self, used: IntArray) -> FloatArray:
        """Log-odds that a silo has each atom, from the number of silos that have it."""
        popular = np.minimum(self.count[used], _MAX_POPULARITY)
        return np.asarray(np.log(popular / np.maximum(self.n_silos - popular, 1e-3)))

    def estimate(self) -> None:  # noqa: B027 (not every model has hyper-parameters)
        """Estimate hyper-parameters from the atoms."""

    @abstractmethod
    def gain_of_match(self, rows: slice, used: IntArray) -> FloatArray:
        """Gain in log-posterior of each component at each atom in use, (n, len(used))."""

    @abstractmethod
    def gain_of_new(self, rows: slice) -> FloatArray:
        """Gain in log-posterior of each component at an atom of its own, (n,)."""

    @abstractmethod
    def location(self) -> FloatArray:
        """Posterior means of all atoms."""


@final
@dataclass(frozen=True, kw_only=True)
class Pfnm(BetaProcessMatching):
    """Settings of PFNM; ``prior_variance`` is that of the global units' weights."""

    name: ClassVar[str] = "pfnm"
    prior_variance: float = 1.0
    n_passes: int = 3

    def atoms(self, problem: FusionProblem) -> _Units:
        """Global units, none in use."""
        return _Units(problem, self.gamma, 1.0 / self.prior_variance)


class _Units(Atoms):
    def __init__(self, problem: FusionProblem, gamma: float, prior: float) -> None:
        super().__init__(problem.natural, problem, gamma)
        self.prior = prior

    def gain_of_match(self, rows: slice, used: IntArray) -> FloatArray:
        own = zip(*np.split(self.values[rows], 2, axis=1), strict=True)
        shift, precision = np.split(self.total[used], 2, axis=1)
        precision = precision + self.prior
        gain = np.stack([((s + shift) ** 2 / (p + precision)).sum(axis=1) for s, p in own])
        return np.asarray(gain - (shift**2 / precision).sum(axis=1) + self.log_popularity(used))

    def gain_of_new(self, rows: slice) -> FloatArray:
        shift, precision = np.split(self.values[rows], 2, axis=1)
        return np.asarray((shift**2 / (self.prior + precision)).sum(axis=1))

    def location(self) -> FloatArray:
        total = np.zeros_like(self.total)  # a fresh sum, without rounding errors of updates
        np.add.at(total, self.labels, self.values)
        shift, precision = np.split(total, 2, axis=1)
        return np.asarray(shift / (precision + self.prior))


@final
@dataclass(frozen=True, kw_only=True)
class Spahm(BetaProcessMatching):
    """Settings of SPAHM, those of every Beta-Bernoulli matching."""

    name: ClassVar[str] = "spahm"

    def atoms(self, problem: FusionProblem) -> _Points:
        """Global atoms, none in use."""
        return _Points(problem, self.gamma)


def spahm(models: Models, *, random_state: int = 0, **settings: Any) -> Fusion:
    """Fuse point estimates by SPAHM (Yurochkin et al., NeurIPS 2019).

    Parameters
    ----------
    models, random_state
        As for `klfusion.fuse`.
    **settings
        Fields of `Spahm`, such as ``gamma``.

    Examples
    --------
    >>> import klfusion as kf
    >>> normal = kf.families.DiagonalNormal(2)
    >>> sites = [kf.Posterior(normal, normal.natural([[0, 0], [9, d]], [[1, 1], [1, 1]]), name=n)
    ...          for n, d in {"a": 9.0, "b": 9.1, "c": 9.2}.items()]
    >>> kf.baselines.spahm(sites).n_components
    2
    """
    return fuse(models, method=Spahm(**settings), random_state=random_state)


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
