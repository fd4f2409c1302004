"""From silos to a matching: prepare their components, run the method, put the result in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.progress import Report
from klfusion.errors import IncompatibleSilosError
from klfusion.methods.auto import Auto
from klfusion.methods.method import Method
from klfusion.methods.networks import Units
from klfusion.methods.search import amid_starts
from klfusion.model_size.preparation import Prepared, prepare
from klfusion.objective.divergences import KL, problem_with_divergence
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Solution, Status
from klfusion.posteriors.posterior import Posterior

_BLEND_ROUNDS = 3  # leaving out blends, and matching anew


def match_silos(
    posteriors: Sequence[Posterior],
    weights: FloatArray,
    method: Method,
    rng: np.random.Generator,
    report: Report,
    *,
    divergence: str = KL.name,
) -> tuple[Prepared, Solution]:
    """Prepare the silos' components and match them, without those found to be blends."""
    clean = isinstance(method, Auto | Units) and len(posteriors) > 1
    prepared = prepare(posteriors, weights, clean=clean)
    check_size(method, prepared.problem.largest_silo, prepared.problem.n, posteriors)
    within = isinstance(method, Auto) and method.within_silo_merging
    if len(posteriors) == 1 and not within:
        return prepared, _as_it_is(prepared.problem, method)
    solution = method.run(method.matching(prepared.problem), rng, report)
    for _ in range(_BLEND_ROUNDS):
        if solution.mixed is None:
            break
        prepared = prepared.without(solution.mixed)
        solution = method.run(method.matching(prepared.problem), rng, report)
    if solution.left_out is not None:
        prepared, labels = prepared.without(solution.left_out), solution.labels[~solution.left_out]
        solution = replace(solution, plan=labels, labels=labels, left_out=None)
    if divergence != KL.name:
        problem, variation = method.matching(prepared.problem), solution.variation
        amid = problem_with_divergence(problem.with_variation(variation), divergence)
        solution = amid_starts(method, amid, solution, method.penalty, rng, report)
        solution = replace(solution, variation=variation)
    return prepared, solution


def ordered(solution: Solution, first_rows: IntArray) -> tuple[Any, IntArray, IntArray]:
    """Plan and labels, the global components that hold most first, then as they first appear.

    Also which of the solution's clusters each global component is.
    """
    used, labels = np.unique(solution.labels, return_inverse=True)
    counts = np.bincount(labels)
    first = np.full(len(used), first_rows.max() + 1)
    np.minimum.at(first, labels, first_rows)
    order = np.lexsort([first, -counts])
    rank = np.empty(len(order), dtype=np.intp)
    rank[order] = np.arange(len(order))
    labels = rank[labels]
    plan = solution.plan[:, used[order]] if solution.plan.ndim == 2 else labels
    return plan, labels, used[order]


class Sized(Protocol):
    """A silo, as far as its size goes."""

    @property
    def name(self) -> str:
        """Unique within a fusion."""

    @property
    def n_components(self) -> int:
        """As it was sent."""


def check_size(method: Method, largest_silo: int, n: int, silos: Sequence[Sized]) -> None:
    """Refuse a size below that of the largest silo, or above that of all ``n`` components."""
    size = method.n_components
    if size is None:
        return
    apart = not (isinstance(method, Auto) and method.within_silo_merging)
    if apart and size < largest_silo:
        largest = max(silos, key=lambda p: p.n_components)
        below = "; within_silo_merging=True goes below" if isinstance(method, Auto) else ""
        raise IncompatibleSilosError(
            f"expected n_components >= {largest_silo}, the size of silo {largest.name!r} "
            f"(its components stay apart{below}), got {size}"
        )
    if size > n:
        raise IncompatibleSilosError(
            f"expected n_components <= {n}, the number of local components to match "
            f"(those without data are left out and splits put together by method 'auto' only), "
            f"got {size}"
        )


def _as_it_is(problem: FusionProblem, method: Method) -> Solution:
    """One silo: every component stays itself."""
    labels = np.arange(problem.n)
    penalty = 0.0 if method.penalty == "auto" else float(method.penalty)
    value = penalty * problem.n
    return Solution(labels, labels, value, value, [value], penalty, Status.SINGLE_SILO)
