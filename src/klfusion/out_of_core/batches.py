"""Fusing silos that are not in memory together: in files of this machine, or on many machines.

The default's steps, each as a task on one batch of silos at a time: learn what silos are like from
a sample, bring every batch's components into comparable form, stream the matching over them, and
add up what was matched. Only sums, labels and what surrounds the components come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np

from klfusion._fuse import fuse, global_posterior, match_divergences, supported
from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.progress import Report
from klfusion._utils.provenance import provenance
from klfusion.errors import IncompatibleSilosError, KLFusionError
from klfusion.families import Family
from klfusion.fusion.result import Fusion
from klfusion.methods import Auto, Method
from klfusion.methods.matching import check_size
from klfusion.model_size.cleaning import Sample
from klfusion.model_size.preparation import Prepared, prepare, stack_silos
from klfusion.model_size.silo_variation import with_variation
from klfusion.objective.parts import Parts, Stock
from klfusion.objective.problem import FusionProblem
from klfusion.posteriors.compatibility import check_compatible, silo_weights
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import Structure
from klfusion.posteriors.structure import network as layers
from klfusion.posteriors.structure.topics import VOCABULARY

_T = TypeVar("_T")
_SAMPLE = 2_000  # components from which is learned what silos are like


class Batches(Protocol):
    """All silos, some in each batch."""

    def some(self, numbers: IntArray) -> list[Posterior]:
        """The posteriors of some silos, by their numbers among all."""

    def map(self, task: Callable[..., _T], *arguments: Sequence[Any]) -> Iterable[_T]:
        """What the task gives for the posteriors of each batch and its arguments, in order."""

    def parts(self, make: Callable[..., FusionProblem], *arguments: Sequence[Any]) -> Parts:
        """What is made of each batch, kept where it is quickly found again."""


@dataclass(frozen=True, eq=False)
class Facts:
    """A silo without its components: what is needed of it where the fusion is put together."""

    name: str
    family: Family
    n_components: int
    prior: FloatArray | None
    counts: FloatArray | None
    structure: Structure | None
    provenance: Mapping[str, Any]


def fuse_batches(
    batches: Batches,
    method: Method,
    *,
    weights: Any = None,
    min_support: int = 1,
    rng: np.random.Generator,
    report: Report,
) -> Fusion:
    """Fuse silos of which only some are in one place at a time, as `klfusion.fuse` does.

    Parameters
    ----------
    batches : Batches
    method : Method
        ``Auto``, whose size is chosen, or given by a penalty or a number.
    weights, min_support
        As for `klfusion.fuse`.
    rng : numpy.random.Generator
    report : callable

    Returns
    -------
    Fusion
        Without what the silos sent.
    """
    if not isinstance(method, Auto) or method.within_silo_merging or method.max_loss is not None:
        raise KLFusionError(
            "with memory_limit, or on Dask: expected method 'auto' without max_loss and "
            f"within_silo_merging, got {method}"
        )
    report("reading", 0, None)
    by_batch = list(batches.map(_facts))
    silos = [silo for own in by_batch for silo in own]
    _check(silos)
    if len(silos) == 1:
        only = batches.some(np.zeros(1, dtype=np.intp))
        return fuse(
            only, method=method, weights=weights, min_support=min_support, keep_silos=False,
            progress=False,
        )  # fmt: skip
    edges = np.cumsum([0, *map(len, by_batch)])
    numbers = np.split(np.arange(len(silos)), edges[1:-1])
    silo_weight = silo_weights(weights, silos)
    own_weights = np.split(silo_weight, edges[1:-1])
    some = _some(batches, [silo.n_components for silo in silos], rng)
    sample = Sample.of(some)
    like_all = _problem(some, np.ones(len(some)), np.arange(len(some)), sample, method, None)
    variation = with_variation(like_all, rng, report, method.n_components).variation
    make = partial(_problem, sample=sample, method=method, variation=variation)
    stock = Stock.of(batches.parts(make, own_weights, numbers))
    check_size(method, int(np.concatenate(stock.sizes).max()), stock.n, silos)
    solution = method.stream(stock, rng, report)
    found = solution.labels.copy()
    if solution.left_out is not None:
        found[solution.left_out] = -1
    own_found = stock.by_part(found)
    report("adding up", 0, None)
    added = partial(_added, sample=sample, size=int(found.max()) + 1)
    spread, mass, sums = zip(*batches.map(added, own_weights, own_found), strict=True)
    labels, order = _ordered(_flat(spread), found, min_support)
    natural = np.sum(sums, axis=0)[order] / np.sum(mass, axis=0)[order, None]
    own_labels = [labels[a:b] for a, b in pairwise(edges)]
    divergences = _flat(batches.map(partial(_divergences, natural=natural), own_labels))
    posterior = global_posterior(silos, natural, labels, layers.match_anew)
    return Fusion(
        posterior=posterior,
        silo_names=tuple(silo.name for silo in silos),
        labels=tuple(labels),
        divergences=tuple(divergences),
        penalty=solution.penalty,
        objective=solution.objective,
        lower_bound=solution.lower_bound,
        trace=np.array(solution.trace),
        status=solution.status,
        method=repr(method),
        path=solution.path,
        provenance=provenance(
            silo_weights=silo_weight,
            pooling="average",
            min_support=min_support,
            divergence="kl",
            variation=variation,
        ),
        silos=None,
    )


def _check(silos: Sequence[Facts]) -> None:
    """Silos must go together as they are: nothing is aligned on the way."""
    check_compatible(silos)
    first = silos[0].structure
    for silo in silos:
        structure = silo.structure
        if structure is not None and structure.kind == layers.KIND:
            raise KLFusionError(
                f"silo {silo.name!r}: expected mixtures, topics or states, got a network: "
                "networks are fused in memory"
            )
        if (
            first is not None
            and structure is not None
            and first.info.get(VOCABULARY) != structure.info.get(VOCABULARY)
        ):
            raise IncompatibleSilosError(
                f"silo {silo.name!r}: expected the vocabulary of silo {silos[0].name!r}, got "
                "another: vocabularies are brought to one in memory only"
            )


def _some(batches: Batches, sizes: Sequence[int], rng: np.random.Generator) -> list[Posterior]:
    """Silos at random, to learn what all are like."""
    order = rng.permutation(len(sizes))
    enough = int(np.searchsorted(np.cumsum(np.asarray(sizes)[order]), _SAMPLE))
    return batches.some(np.sort(order[: max(2, enough)]))


def _ordered(
    spread: Sequence[IntArray], found: IntArray, min_support: int
) -> tuple[list[IntArray], IntArray]:
    """Labels of each silo, what most have first; and which of the old each new label is."""
    stacked = np.concatenate(spread)
    silo = np.repeat(np.arange(len(spread)), [len(own) for own in spread])
    rows = np.flatnonzero(stacked >= 0)
    kept = supported(stacked[rows], silo[rows], min_support)
    counts = np.bincount(found[found >= 0])
    first = np.full(len(counts), len(stacked))
    np.minimum.at(first, stacked[rows], rows)
    order = kept[np.lexsort([first[kept], -counts[kept]])]
    number = np.full(len(counts) + 1, -1, dtype=np.intp)  # the last: of label -1
    number[order] = np.arange(len(order))
    return [number[own] for own in spread], order


# Tasks: each sees the posteriors of one batch ---------------------------------------------------


def _facts(posteriors: Sequence[Posterior]) -> list[Facts]:
    return [
        Facts(p.name, p.family, p.n_components, p.prior, p.counts, p.structure, p.provenance)
        for p in posteriors
    ]


def _prepared(posteriors: Sequence[Posterior], weights: FloatArray, sample: Sample) -> Prepared:
    return prepare(posteriors, weights, clean=True, sample=sample)


def _problem(
    posteriors: Sequence[Posterior],
    weights: FloatArray,
    numbers: IntArray,
    sample: Sample,
    method: Auto,
    variation: FloatArray | None,
) -> FusionProblem:
    """Components in comparable form; each silo has its number among all."""
    problem = _prepared(posteriors, weights, sample).problem
    problem = method.matching(problem, sample.natural, variation=variation)
    return replace(problem, silo=numbers[problem.silo])


def _added(
    posteriors: Sequence[Posterior],
    weights: FloatArray,
    found: IntArray,
    sample: Sample,
    size: int,
) -> tuple[list[IntArray], FloatArray, FloatArray]:
    """Labels of each silo's components; weight and sum of parameters in each global one."""
    prepared = _prepared(posteriors, weights, sample)
    kept = np.flatnonzero(found >= 0)
    mass, sums, _ = prepared.problem.some(kept).sums(found[kept], size)
    return list(prepared.by_silo(prepared.spread(found))), mass, sums


def _divergences(
    posteriors: Sequence[Posterior], labels: Sequence[IntArray], natural: FloatArray
) -> list[FloatArray]:
    """How far each silo's components are from their global ones."""
    stacked = stack_silos(posteriors, np.ones(len(posteriors)))
    found = match_divergences(stacked, natural, np.concatenate(labels))
    return np.split(found, np.cumsum([len(own) for own in labels])[:-1])


def _flat(batches: Iterable[Iterable[_T]]) -> list[_T]:
    return [one for batch in batches for one in batch]
