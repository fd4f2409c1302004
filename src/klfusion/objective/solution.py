"""A plan with its objective and certificate: what every method returns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion.objective.merge_path import PenaltyPath
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


class Limits(Protocol):
    """How long to search: any method will do."""

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
    """What a method found: a plan and its certificate, components in the problem's order."""

    plan: Plan
    labels: IntArray
    objective: float
    lower_bound: float
    trace: list[float]
    penalty: float
    status: Status
    path: PenaltyPath | None = None
    location: FloatArray | None = None  # of each cluster, where the method has its own
    blends: BoolArray | None = None  # components that had better be left out, (n,)
    left_out: BoolArray | None = None  # components that are left out: their labels mean nothing
    variation: FloatArray | None = None  # between silos, as components were compared


def objective(problem: FusionProblem, plan: Plan, n_components: int, penalty: float) -> float:
    """The paper's objective (eq. 9) of a plan at its own barycenters."""
    if plan.ndim == 2:
        norms = np.sqrt(np.square(plan).sum(axis=0))
    else:
        norms = np.sqrt(np.bincount(plan, minlength=n_components))
    return problem.divergence(plan, n_components) + penalty * float(norms.sum())
