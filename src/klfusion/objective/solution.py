"""`Matching`: which local components are the same, with the certificate of the plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion._utils.penalty import total_penalty
from klfusion._utils.progress import Report
from klfusion.objective.merge_path import MergePath
from klfusion.objective.problem import FusionProblem

Plan = FloatArray | IntArray  # weights (n, G), or labels (n,) of a binary plan


class Status(Enum):
    """How a fusion ended; the value is the message people read."""

    CONVERGED = "converged: the search stopped by its own criterion before max_iter"
    MAX_ITER = "stopped at max_iter before converging: raise max_iter or tol"
    SINGLE_SILO = "only one silo: it was returned as it is"
    NAMED = "components were matched by their names; nothing was searched"
    KEPT = "the matching was kept, not searched anew: silos came or went, or a size was picked"

    def __str__(self) -> str:
        return self.value

    @classmethod
    def of(cls, converged: bool) -> Status:
        """Converged, or stopped at the limit."""
        return cls.CONVERGED if converged else cls.MAX_ITER


@dataclass(frozen=True, eq=False)
class Matching:
    """What every method returns, components in the problem's order."""

    labels: IntArray  # global component of each local one, (n,); -1 for none
    objective: float  # total divergence plus penalty
    lower_bound: float  # of all plans at the divergences from the final components
    trace: list[float]  # the objective after each sweep; it never rises
    penalty: float  # weight of `sum_g sqrt(n_g)`, in nats; 0 where the size was given
    status: Status
    path: MergePath | None = None  # its `rows` are the problem's; None if it is of a sample
    plan: FloatArray | None = None  # fractional, (n, G); the labels are its rounding
    location: FloatArray | None = None  # point estimates, (G, k), where the method has its own
    variation: FloatArray | None = None  # between silos, as estimated
    mixed: BoolArray | None = None  # to leave out before `Method.match` matches the rest, (n,)

    def of_rows(self, rows: IntArray, n: int) -> Matching:
        """The matching of some rows as that of all ``n``: the others are matched to none."""
        labels = np.full(n, -1, dtype=np.intp)
        labels[rows] = self.labels
        path = self.path
        if path is not None and path.n_components[0] == len(rows):  # else it is of a sample
            on_path = np.full(n, -1, dtype=np.intp)
            on_path[rows] = np.arange(len(rows))
            path = replace(path, rows=on_path)
        return replace(self, labels=labels, path=path, mixed=None)


@dataclass(frozen=True, eq=False)
class Search:
    """What a search needs besides a problem: a size, limits, random numbers and a callback."""

    n_components: int | None  # of the global model, where it is known
    rng: np.random.Generator
    report: Report  # called with the stage, the steps done and their number
    n_init: int = 1  # starts
    max_iter: int = 100  # most sweeps of one start
    tol: float = 1e-9  # relative fall of the objective below which a start has converged


def objective(problem: FusionProblem, plan: Plan, n_components: int, penalty: float) -> float:
    """The paper's objective (eq. 9) of a plan at its own barycenters."""
    if plan.ndim == 2:  # a column's norm is the root of its sum of squares
        counts = np.square(plan).sum(axis=0)
    else:
        counts = np.bincount(plan, minlength=n_components)
    return problem.divergence(plan, n_components) + total_penalty(counts, penalty)
