"""Variation between silos, estimated jointly with a matching.

A component's posterior states how certain a silo is of its own component. What it implies for the
global one depends on how components vary between silos, and that shows only in matched components.
So the matching and the variation of the components it matches are computed alternately, until the
matching stays the same. See `klfusion.families.random_effects`.
"""

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion._utils.running import Report
from klfusion.families import SiloVariation
from klfusion.merging.agglomeration import penalty_path
from klfusion.model_size.evidence import LinkageSettings
from klfusion.model_size.linkage import ROUNDS
from klfusion.model_size.linked_rows import link_rows
from klfusion.objective.batches import InMemory, SiloStore
from klfusion.objective.problem import FusionProblem

_MOST = 400  # components of random silos from which variation is estimated


def estimate_variation(
    problem: FusionProblem,
    rng: np.random.Generator,
    report: Report,
    n_components: int | None = None,
) -> FloatArray | None:
    """Estimate the variation between silos; None if the family has none or nothing is matched.

    Where there are many silos, ``rng`` draws some. The size ``n_components`` of the global model is
    used if it is known.
    """
    if not isinstance(problem.family, SiloVariation):
        return None
    store = SiloStore.of(InMemory(problem), problem.as_given)
    some = problem if problem.n <= _MOST else _random_silos(store, rng)
    if n_components is not None:
        return _of_known_size(some, n_components, report)
    # Failed fits do not show how components vary.
    return link_rows(store.given(some), store.compared, LinkageSettings(), report).linked.variation


def _of_known_size(problem: FusionProblem, n_components: int, report: Report) -> FloatArray | None:
    """The variation under which the path of that size matches the components it is of."""
    variation, labels = None, np.arange(problem.n)
    for _ in range(ROUNDS):
        path = penalty_path(problem.with_variation(variation), report)
        steps = min(max(problem.n - n_components, 0), len(path.merges))
        previous, labels = labels, path.labels(steps)
        if steps == 0 or (labels == previous).all():
            break
        variation = problem.varying.variation(labels)
    return variation


def _random_silos(store: SiloStore, rng: np.random.Generator) -> FusionProblem:
    """Two silos or more, with about `_MOST` components."""
    return store.take(store.first_silos(rng.permutation(store.n_silos), _MOST))
