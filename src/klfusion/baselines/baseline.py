"""Base classes of the baselines: no penalty, and components compared as the silos sent them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.methods import Method
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, Search, Status

Models = Sequence[Any] | Mapping[str, Any]
_MAX_POPULARITY = 10  # larger counts of an atom weigh no more: no atom attracts every component


class Baseline(Method):
    """A method that compares components as they were sent."""

    def compared(
        self, problem: FusionProblem, *like: FloatArray, variation: FloatArray | None = None
    ) -> FusionProblem:
        """The components, unchanged."""
        del like, variation
        return problem

    @staticmethod
    def matching(
        problem: FusionProblem, labels: IntArray, status: Status, location: FloatArray | None = None
    ) -> Matching:
        """A matching without penalty and with the trivial lower bound 0."""
        value = problem.divergence(labels, int(labels.max()) + 1)
        return Matching(labels, value, 0.0, [value], 0.0, status, location=location)


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
        self.count = np.pad(self.count, (0, int(new.sum())))
        self.total = np.pad(self.total, ((0, int(new.sum())), (0, 0)))
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
