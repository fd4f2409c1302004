"""`Solution`: a plan with its objective and its lower bound, the result of every method."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion._utils.penalty import total_penalty
from klfusion.objective.merge_path import MergePath
from klfusion.objective.problem import FusionProblem

Plan = FloatArray | IntArray  # weights (n, G), or labels (n,) of a binary plan


class Status(Enum):
    """How a fusion ended; the value is the message to the user."""

    CONVERGED = "converged: no move lowers the objective"
    MAX_ITER = "stopped at max_iter before converging: raise max_iter or tol"
    SINGLE_SILO = "only one silo: it was returned as it is"
    KEPT = "the matching was kept, not searched anew: silos came or went, or a size was picked"

    def __str__(self) -> str:
        return self.value


class Limits(Protocol):
    """Limits of a search; every method has them."""

    @property
    def n_init(self) -> int:
        """Number of starts."""

    @property
    def max_iter(self) -> int:
        """Most sweeps of one start."""

    @property
    def tol(self) -> float:
        """Relative fall of the objective below which a start has converged."""


@dataclass(frozen=True, eq=False)
class Solution:
    """A plan and its certificate, components in the order of the problem."""

    plan: Plan
    labels: IntArray
    objective: float
    lower_bound: float
    trace: list[float]
    penalty: float
    status: Status
    path: MergePath | None = None
    location: FloatArray | None = None  # of each cluster, where the method has its own
    mixed: BoolArray | None = None  # components fitted to two others' data, to be left out, (n,)
    left_out: BoolArray | None = None  # components left out: their labels mean nothing, (n,)
    variation: FloatArray | None = None  # between silos, under which components were compared

    @classmethod
    def binary(
        cls,
        labels: IntArray,
        trace: list[float],
        lower_bound: float,
        penalty: float,
        *,
        converged: bool = True,
        path: MergePath | None = None,
        left_out: BoolArray | None = None,
    ) -> Solution:
        """A binary plan, whose objective is the last of the trace."""
        return cls(
            plan=labels,
            labels=labels,
            objective=trace[-1],
            lower_bound=min(lower_bound, trace[-1]),
            trace=trace,
            penalty=penalty,
            status=Status.CONVERGED if converged else Status.MAX_ITER,
            path=path,
            left_out=left_out,
        )


def objective(problem: FusionProblem, plan: Plan, n_components: int, penalty: float) -> float:
    """The paper's objective (eq. 9) of a plan at its own barycenters."""
    if plan.ndim == 2:  # a column's norm is the root of its sum of squares
        counts = np.square(plan).sum(axis=0)
    else:
        counts = np.bincount(plan, minlength=n_components)
    return problem.divergence(plan, n_components) + total_penalty(counts, penalty)
