"""Variation between silos, estimated jointly with a matching.

A component's posterior states how certain a silo is of its own component. What it implies for the
global one depends on how components vary between silos, and that shows only in matched components.
So the path and the variation of the components it matches are computed alternately, until the
matching stays the same. See `klfusion.families.capabilities`.
"""

from dataclasses import dataclass, replace

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.running import Report
from klfusion.families import SiloVariation
from klfusion.merging.agglomeration import Distances, penalty_path
from klfusion.model_size.selection import choose
from klfusion.objective.batches import InMemory, SiloStore
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import MergePath

_MOST = 400  # components of random silos from which variation is estimated
_ROUNDS = 5  # of matching and estimating, at most


Walk = tuple[MergePath, Distances]


@dataclass(frozen=True, eq=False)
class VariationEstimate:
    """Components compared under the variation between silos."""

    problem: FusionProblem
    variation: FloatArray | None = None  # None if nothing is matched, or the family has none
    walk: Walk | None = None  # the problem's path, where it has been computed


def estimate_variation(
    problem: FusionProblem,
    rng: np.random.Generator,
    report: Report,
    n_components: int | None = None,
) -> VariationEstimate:
    """Estimate the variation between silos, and compare components under it.

    Where there are many silos, ``rng`` draws some. The size ``n_components`` of the global model is
    used if it is known.
    """
    family = problem.family
    if not isinstance(family, SiloVariation):
        return VariationEstimate(problem)
    some = problem if problem.n <= _MOST else _random_silos(problem, rng)
    found, labels = VariationEstimate(some), np.arange(some.n)
    for _ in range(_ROUNDS):
        walk = penalty_path(found.problem, report)
        found = replace(found, walk=walk)
        previous, labels = labels, _matching(found.problem, walk, n_components)
        if labels.max() + 1 == some.n or (labels == previous).all():  # no match, or no change
            break
        variation = family.variation(some.natural, labels)
        found = VariationEstimate(some.with_variation(variation), variation)
    if some is problem:
        return found
    return VariationEstimate(problem.with_variation(found.variation), found.variation)


def _matching(problem: FusionProblem, walk: Walk, n_components: int | None) -> IntArray:
    """Labels of the path where it would be cut."""
    path, distances = walk
    if n_components is None:
        return path.labels(choose(problem, path, distances).steps)
    return path.labels(min(max(problem.n - n_components, 0), len(path.merges)))


def _random_silos(problem: FusionProblem, rng: np.random.Generator) -> FusionProblem:
    """Two silos or more, with about `_MOST` components."""
    store = SiloStore.of(InMemory(problem))
    return store.take(store.first_silos(rng.permutation(store.n_silos), _MOST))
