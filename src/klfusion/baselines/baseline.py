"""Base classes of the baselines: no penalty, and components compared as the silos sent them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.methods import Method
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, Status

Models = Sequence[Any] | Mapping[str, Any]


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
