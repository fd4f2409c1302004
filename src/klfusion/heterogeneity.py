"""How much silos vary, learned together with a matching.

A component's posterior says how well a silo knows its own; how much it says about a global one
depends on how components vary between silos, and that is seen only in components that are matched.
So the path is walked, what it matches shows the variation, components are compared again with the
variation in mind, and so on until the matching stays. See `klfusion.families.random_effects`.
"""

from __future__ import annotations

import numpy as np

from klfusion._typing import FloatArray, IntArray
from klfusion.algorithm import Report
from klfusion.parts import InMemory, Stock
from klfusion.path import penalty_path
from klfusion.problem import FusionProblem
from klfusion.selection import choose

_MOST = 400  # components of silos at random from which variation is learned
_ROUNDS = 5


def with_variation(
    problem: FusionProblem,
    rng: np.random.Generator,
    report: Report,
    n_components: int | None = None,
) -> tuple[FusionProblem, FloatArray | None]:
    """The problem as it looks where silos vary as its own do, and how much that is.

    Parameters
    ----------
    problem : FusionProblem
    rng : numpy.random.Generator
        Draws the silos to learn from, where there are many.
    report : callable
    n_components : int, optional
        The size of the global model, where it is known.

    Returns
    -------
    problem : FusionProblem
    variation : array of shape (family.variation_size,), optional
        None where nothing is matched, or the family compares components as they are.
    """
    if problem.family.variation_size == 0:
        return problem, None
    some = problem if problem.n <= _MOST else _silos_at_random(problem, rng)
    seen, variation = some, None
    labels: IntArray | None = None
    for _ in range(_ROUNDS):
        previous, labels = labels, _matching(seen, report, n_components)
        if labels.max() + 1 == some.n or (previous is not None and (labels == previous).all()):
            break
        variation = some.family.variation(some.natural, labels)
        seen = some.varied(variation)
    # What was compared last need not be compared again.
    return (seen if some is problem else problem.varied(variation)), variation


def _matching(problem: FusionProblem, report: Report, n_components: int | None) -> IntArray:
    """Labels of the path where it would be cut."""
    path, distances = penalty_path(problem, report)
    if n_components is None:
        return path.labels(choose(problem, path, distances).steps)
    return path.labels(min(max(problem.n - n_components, 0), len(path.merges)))


def _silos_at_random(problem: FusionProblem, rng: np.random.Generator) -> FusionProblem:
    """Two silos or more, with about as many components as are looked at."""
    stock = Stock.of(InMemory(problem))
    return stock.take(stock.first_silos(rng.permutation(stock.n_silos), _MOST))
