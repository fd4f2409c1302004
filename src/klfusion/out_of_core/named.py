"""Regressions and classifiers by batches: each batch is fused, then the batches' posteriors are.

Sums over silos do not depend on their order, so this equals fusing all in memory. Divergences are
computed in a second pass, for they need the global components.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from klfusion._fuse import fuse
from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.running import Report
from klfusion.errors import IncompatibleSilosError, KLFusionError
from klfusion.fusion.assemble import match_divergences
from klfusion.fusion.by_silo import BySilo
from klfusion.fusion.result import Fusion
from klfusion.methods.matching import comparing
from klfusion.model_size.preparation import stack_silos
from klfusion.objective.solution import Status
from klfusion.posteriors.compatibility import SiloDescription, align, component_names, silo_weights
from klfusion.posteriors.posterior import Posterior

if TYPE_CHECKING:
    from klfusion.out_of_core.batches import Batches

_POOLING: Final = "product"


def have_names(silos: Sequence[SiloDescription]) -> bool:
    """Whether components have names and are matched by them."""
    return all(component_names(silo) is not None for silo in silos)


def fuse_named(
    batches: "Batches",
    by_batch: Sequence[Sequence[SiloDescription]],
    weights: object,
    min_support: int,
    report: Report,
) -> Fusion:
    """Fuse silos whose components have names; the prior is counted once."""
    silos = [silo for own in by_batch for silo in own]
    names = tuple([silo.name for silo in silos])
    again = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if again is not None:
        raise IncompatibleSilosError(f"two silos are named {again!r}: expected unique names")
    if min_support != 1:
        raise KLFusionError("expected min_support=1 for components that have names")
    weight = silo_weights(weights, silos)
    edges = np.cumsum([len(own) for own in by_batch])[:-1]
    own_weights = np.split(weight, edges)
    report("adding up", 0, None)
    parts = list(batches.map(_part, own_weights))
    posteriors = {f"batch-{k}": part for k, (part, _) in enumerate(parts)}
    whole = fuse(posteriors, pooling=_POOLING, keep_silos=False, progress=False)
    labels = [
        own[label] for (_, found), own in zip(parts, whole.labels, strict=True) for label in found
    ]
    own_labels = [labels[a:b] for a, b in zip([0, *edges], [*edges, len(labels)], strict=True)]
    compared = partial(_compared, whole=whole.posterior)
    divergences, sums = zip(*batches.map(compared, own_weights, own_labels), strict=True)
    mass, natural, logs = (np.sum(part, axis=0) for part in zip(*sums, strict=True))
    with comparing([whole.posterior]):
        gaps = logs - mass * whole.posterior.family.log_partition(natural / mass[:, None])
    objective = float(np.maximum(gaps, 0.0).sum())
    return replace(
        whole,
        silo_names=names,
        labels=BySilo(labels, names),
        divergences=BySilo([one for own in divergences for one in own], names),
        objective=objective,
        lower_bound=objective,
        trace=np.array([objective]),
        status=Status.NAMED,
        settings=whole.settings.with_weights(weight),
    )


def _part(posteriors: Sequence[Posterior], weights: FloatArray) -> tuple[Posterior, list[IntArray]]:
    """The posterior of a batch, and the labels of its silos."""
    asked: Any = {"weights": weights, "pooling": _POOLING, "keep_silos": False}
    part = fuse(posteriors, progress=False, **asked)
    return part.posterior, list(part.labels)


def _compared(
    posteriors: Sequence[Posterior],
    weights: FloatArray,
    labels: Sequence[IntArray],
    whole: Posterior,
) -> tuple[list[FloatArray], tuple[FloatArray, FloatArray, FloatArray]]:
    """How far each silo's components are from their global ones; sums by global component."""
    aligned = align([whole, *posteriors])[1:]
    with comparing(aligned):
        problem, found = stack_silos(aligned, weights), np.concatenate(labels)
        divergences = match_divergences(problem, whole.natural, found)
        sums = problem.sums(found, whole.n_components)
    return np.split(divergences, np.cumsum([len(own) for own in labels])[:-1]), sums
