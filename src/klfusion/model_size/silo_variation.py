"""How much silos vary, learned together with a matching.

A component's posterior says how well a silo knows its own; how much it says about a global one
depends on how components vary between silos, and that is seen only in components that are matched.
So the path is walked, what it matches shows the variation, components are compared again with the
variation in mind, and so on until the matching stays. See `klfusion.families.random_effects`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.progress import Report
from klfusion.families import SiloVariation
from klfusion.merging.penalty_path import Distances, penalty_path
from klfusion.model_size.selection import choose
from klfusion.objective.merge_path import PenaltyPath
from klfusion.objective.parts import InMemory, Stock
from klfusion.objective.problem import FusionProblem

_MOST = 400  # components of silos at random from which variation is learned
_ROUNDS = 5


Walk = tuple[PenaltyPath, Distances]


@dataclass(frozen=True, eq=False)
class Varying:
    """Components as they look where silos vary.

    Parameters
    ----------
    problem : FusionProblem
    variation : array of shape (family.variation_size,), optional
        None where nothing is matched, or the family compares components as they are.
    walk : (PenaltyPath, Distances), optional
        The problem's path, where it has been walked.
    """

    problem: FusionProblem
    variation: FloatArray | None = None
    walk: Walk | None = None


def with_variation(
    problem: FusionProblem,
    rng: np.random.Generator,
    report: Report,
    n_components: int | None = None,
) -> Varying:
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
    Varying
    """
    family = problem.family
    if not isinstance(family, SiloVariation):
        return Varying(problem)
    some = problem if problem.n <= _MOST else _silos_at_random(problem, rng)
    seen, labels = Varying(some), np.arange(some.n)
    for _ in range(_ROUNDS):
        walk = penalty_path(seen.problem, report)
        seen = replace(seen, walk=walk)
        previous, labels = labels, _matching(seen.problem, walk, n_components)
        if labels.max() + 1 == some.n or (labels == previous).all():  # nothing, or no news
            break
        variation = family.variation(some.natural, labels)
        seen = Varying(some.varied(variation), variation)
    if some is problem:
        return seen
    return Varying(problem.varied(seen.variation), seen.variation)


def _matching(problem: FusionProblem, walk: Walk, n_components: int | None) -> IntArray:
    """Labels of the path where it would be cut."""
    path, distances = walk
    if n_components is None:
        return path.labels(choose(problem, path, distances).steps)
    return path.labels(min(max(problem.n - n_components, 0), len(path.merges)))


def _silos_at_random(problem: FusionProblem, rng: np.random.Generator) -> FusionProblem:
    """Two silos or more, with about as many components as are looked at."""
    stock = Stock.of(InMemory(problem))
    return stock.take(stock.first_silos(rng.permutation(stock.n_silos), _MOST))
