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
    KEPT = "the matching was kept, not searched anew: silos came or went, or a size was picked"

    def __str__(self) -> str:
        return self.value

    @classmethod
    def of(cls, converged: bool) -> Status:
        """Converged, or stopped at the limit."""
        return cls.CONVERGED if converged else cls.MAX_ITER


@dataclass(frozen=True, eq=False)
class Matching:
    """What every method returns, components in the problem's order.

    Parameters
    ----------
    labels : int array of shape (n,)
        Global component of each local one; -1 for one that is matched to none.
    objective : float
        Total divergence plus penalty.
    lower_bound : float
        No plan has a lower objective at the divergences from the final components.
    trace : list of float
        The objective after each sweep; it never rises.
    penalty : float
        Weight of ``sum_g sqrt(n_g)``, in nats; 0 where the size was given.
    status : Status
    path : MergePath, optional
        Every size; its ``rows`` are those of the problem, None where it is that of a sample.
    plan : array of shape (n, G), optional
        A fractional plan, of which the labels are the rounding.
    location : array of shape (G, k), optional
        Point estimates of the global components, where the method has its own.
    variation : array, optional
        Variation between silos that was estimated.
    mixed : bool array of shape (n,), optional
        Components to leave out before the rest is matched anew; `Method.match` sees to it.
    """

    labels: IntArray
    objective: float
    lower_bound: float
    trace: list[float]
    penalty: float
    status: Status
    path: MergePath | None = None
    plan: FloatArray | None = None
    location: FloatArray | None = None
    variation: FloatArray | None = None
    mixed: BoolArray | None = None

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
    """What a search needs besides a problem: a size, limits, random numbers and a callback.

    Parameters
    ----------
    n_components : int, optional
        Size of the global model, where it is known.
    rng : numpy.random.Generator
        The source of all random choices.
    report : callable
        Called with the stage, the steps done and their number.
    n_init, max_iter, tol
        Number of starts, most sweeps of one start, relative fall of the objective below which a
        start has converged.
    """

    n_components: int | None
    rng: np.random.Generator
    report: Report
    n_init: int = 1
    max_iter: int = 100
    tol: float = 1e-9


def objective(problem: FusionProblem, plan: Plan, n_components: int, penalty: float) -> float:
    """The paper's objective (eq. 9) of a plan at its own barycenters."""
    if plan.ndim == 2:  # a column's norm is the root of its sum of squares
        counts = np.square(plan).sum(axis=0)
    else:
        counts = np.bincount(plan, minlength=n_components)
    return problem.divergence(plan, n_components) + total_penalty(counts, penalty)
