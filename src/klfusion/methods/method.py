"""What every algorithm is: a frozen configuration that can run itself on a problem."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from klfusion._utils.checks import check_integer, is_number
from klfusion._utils.progress import Report
from klfusion.errors import KLFusionError
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Solution

Penalty = float | Literal["auto"]


@dataclass(frozen=True)
class Method(ABC):
    """Settings all methods share.

    Parameters
    ----------
    n_components : int, optional
        The size of the global model where it is known; then nothing is penalised.
    penalty : float or "auto"
        Weight of ``sum_g sqrt(n_g)``, in nats.
    n_init : int
        Number of starts; the best result is kept.
    max_iter : int
        Most sweeps of one start.
    tol : float
        Stop when a sweep lowers the objective by less than this share of it.
    """

    name: ClassVar[str]
    n_components: int | None = None
    penalty: Penalty = "auto"
    n_init: int = 5
    max_iter: int = 100
    tol: float = 1e-9

    def __post_init__(self) -> None:
        if self.penalty != "auto" and not (
            is_number(self.penalty) and np.isfinite(self.penalty) and self.penalty > 0
        ):
            raise KLFusionError(
                f"expected penalty to be a number > 0 or 'auto', got {self.penalty!r}"
            )
        if self.n_components is not None and self.penalty != "auto":
            raise KLFusionError(
                "expected n_components or penalty, got both: a known size needs no penalty"
            )
        for field in ("n_components", "n_init", "max_iter"):
            value = getattr(self, field)
            if value is not None:
                check_integer(field, value)
        if not (is_number(self.tol) and self.tol >= 0):
            raise KLFusionError(f"expected tol to be a number >= 0, got {self.tol!r}")

    @abstractmethod
    def run(self, problem: FusionProblem, rng: np.random.Generator, report: Report) -> Solution:
        """Solve; every choice at random is drawn from ``rng``."""

    def matching(self, problem: FusionProblem) -> FusionProblem:
        """The problem as this method compares components."""
        return problem.centred()
