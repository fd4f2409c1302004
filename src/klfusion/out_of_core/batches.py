"""Fusing silos of which only some are in memory at a time: in files, or on other machines.

Each step is a task on one batch of silos. Only sums, labels and structures come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from klfusion._fuse import fuse
from klfusion._utils.arrays import BoolArray, FloatArray, IntArray, by_size, numbering
from klfusion._utils.checks import check_integer, generator, seed_of
from klfusion._utils.running import Report
from klfusion.errors import IncompatibleSilosError, KLFusionError
from klfusion.families import SiloVariation
from klfusion.families.family import Known
from klfusion.fusion.assemble import (
    assemble,
    enough,
    match_divergences,
    unmatched_reasons,
)
from klfusion.fusion.result import Fusion
from klfusion.fusion.settings import FuseSettings
from klfusion.methods import MaxLoss, Method, PathMethod, method_for
from klfusion.methods.matching import check_size
from klfusion.methods.method import most_on_path, no_size
from klfusion.model_size.preparation import prepare, stack_silos
from klfusion.model_size.silo_variation import estimate_variation
from klfusion.model_size.typical_prior import typical_prior, under_one_prior
from klfusion.objective.batches import ProblemBatches, SiloStore
from klfusion.objective.divergences import KL
from klfusion.objective.problem import FusionProblem
from klfusion.out_of_core.named import fuse_named, have_names
from klfusion.pooling.mixed_components import observations_of_mixed
from klfusion.posteriors.compatibility import SiloDescription, check_compatible, silo_weights
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import network as layers
from klfusion.posteriors.structure.kinds import VOCABULARY

_T = TypeVar("_T")
_SAMPLE = 2_000  # components from which is learned what silos are like
_SAMPLE_ENTRIES = 1 << 24  # natural parameters of these, 128 MB


class Batches(Protocol):
    """All silos, some in each batch."""

    def some(self, numbers: IntArray) -> list[Posterior]:
        """The posteriors of some silos, by their numbers among all."""

    def map(self, task: Callable[..., _T], *arguments: Sequence[Any]) -> Iterable[_T]:
        """What the task gives for the posteriors of each batch and its arguments, in order."""

    def parts(
        self, make: Callable[..., FusionProblem], *arguments: Sequence[Any]
    ) -> ProblemBatches:
        """What is made of each batch, kept where it is quickly found again."""


def fuse_batches(
    batches: Batches,
    method: str | Method,
    *,
    n_components: int | None = None,
    weights: Any = None,
    min_support: int = 1,
    random_state: Any = 0,
    report: Report,
    few_in_memory: bool = False,
) -> Fusion:
    """Fuse silos by batches, with settings of `klfusion.fuse_files`; posteriors are not kept.

    If asked to, ``few_in_memory`` are fused as by `klfusion.fuse`: so many as one sample holds.
    """
    check_integer("min_support", min_support)
    rng = generator(random_state)
    report("reading", 0, None)
    by_batch = list(batches.map(_described))
    silos = [silo for own in by_batch for silo in own]
    if have_names(silos):
        no_size(method_for(method, silos), n_components, "for names set the size")
        return fuse_named(batches, by_batch, weights, min_support, report)
    _check(silos)
    method = method_for(method, silos)
    refused = isinstance(method, MaxLoss) or method.divergence != KL.name
    if refused or not isinstance(method, PathMethod):
        raise KLFusionError(
            "with files, or on Dask: expected method 'auto' or kf.Penalised(...), of divergence "
            f"'kl', got {method}"
        )
    n, size = sum(silo.n_components for silo in silos), silos[0].family.size
    if len(silos) == 1 or (few_in_memory and n <= min(most_on_path(size), sample_size(size))):
        settings: Any = {"weights": weights, "random_state": random_state, "progress": False}
        settings |= {"n_components": None if len(silos) == 1 else n_components}
        every = batches.some(np.arange(len(silos)))
        fusion = fuse(every, method=method, pooling="average", **settings)
        if len(silos) > 1 and min_support > 1:
            fusion = fusion.with_min_support(min_support)
        return replace(fusion, silos=None)
    edges = np.cumsum([0, *map(len, by_batch)])
    numbers = np.split(np.arange(len(silos)), edges[1:-1])
    silo_weight = silo_weights(weights, silos)
    own_weights = np.split(silo_weight, edges[1:-1])
    sample, variation = _learned(batches, silos, method, n_components, rng, report)
    make = partial(_problem, sample=sample, method=method, variation=variation)
    parts = batches.parts(make, own_weights, numbers)
    store = SiloStore.of(parts, sample.natural, variation, sample.prior)
    check_size(method, n_components, int(np.concatenate(store.sizes).max()), store.n, silos)
    matching = method.stream(store, method.search(n_components, rng, report))
    found = matching.labels
    own_found = store.by_batch(found)
    report("adding up", 0, None)
    size = int(found.max()) + 1
    added = partial(_added, clean=method.cleans, size=size)
    spread, members, mass, natural = _summed(batches.map(added, own_weights, own_found))
    sizes = np.array([silo.n_components for silo in silos])
    matched, took_part = np.concatenate(spread), np.concatenate(members)
    labels, order = _ordered(matched, sizes, found, min_support)
    natural = natural[order] / mass[order, None]
    cuts = np.cumsum([*map(len, spread)])[:-1]
    split = [np.split(own, cuts) for own in (labels, took_part & (matched < 0))]
    divergent = partial(_divergences, natural=natural, known=silos[0].family.known(natural))
    apart, of_mixed = zip(*batches.map(divergent, *split), strict=True)
    ends = np.cumsum(sizes)[:-1]
    by_silo = np.split(labels, ends), np.split(np.concatenate(apart), ends)
    settings = FuseSettings(
        method=method,
        pooling="average",
        n_components=(n_components,),
        random_state=seed_of(random_state),
        min_support=min_support,
        variation=None if variation is None else tuple(variation.tolist()),
    ).with_weights(silo_weight)
    unmatched = unmatched_reasons(
        silos, by_silo[0], np.split(took_part, ends), np.split(matched, ends)
    )
    of_all = {"unmatched": unmatched, "of_mixed": np.sum(of_mixed, axis=0)}
    return assemble((silos, *by_silo), natural, matching, settings, **of_all)


def _learned(
    batches: Batches,
    silos: Sequence[SiloDescription],
    method: PathMethod,
    n_components: int | None,
    rng: np.random.Generator,
    report: Report,
) -> tuple[_Sample, FloatArray | None]:
    """Statistics of a sample of silos, and the variation between silos."""
    order = rng.permutation(len(silos))
    reached = np.cumsum(np.array([silo.n_components for silo in silos])[order])
    most = sample_size(silos[0].family.size)
    some = batches.some(np.sort(order[: max(2, int(np.searchsorted(reached, most)))]))
    sample = _Sample.of(some, method, method.one_prior and n_components is None)
    if not isinstance(silos[0].family, SiloVariation):
        return sample, None
    like_all = _problem(some, np.ones(len(some)), np.arange(len(some)), sample, method, None)
    return sample, estimate_variation(like_all, rng, report, n_components)


def _check(silos: Sequence[SiloDescription]) -> None:
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
        words = [s.info.get(VOCABULARY) for s in (first, structure) if s is not None]
        if len(words) == 2 and words[0] != words[1]:
            raise IncompatibleSilosError(
                f"silo {silo.name!r}: expected the vocabulary of silo {silos[0].name!r}, got "
                "another: vocabularies are brought to one in memory only"
            )


def _ordered(
    spread: IntArray, sizes: IntArray, found: IntArray, min_support: int
) -> tuple[IntArray, IntArray]:
    """Labels of all components, the largest first; and which of the old each new label is.

    The silos have ``sizes`` (J,).
    """
    silo, rows = np.repeat(np.arange(len(sizes)), sizes), np.flatnonzero(spread >= 0)
    counts = np.bincount(found[found >= 0])
    pairs = np.unique(spread[rows] * len(sizes) + silo[rows])
    kept = enough(np.bincount(pairs // len(sizes), minlength=len(counts)), min_support)
    order = by_size(counts, spread)
    order = order[np.isin(order, kept)]
    return numbering(order, len(counts))[spread], order


def sample_size(size: int) -> int:
    """Number of components, of so many natural parameters, from which is learned."""
    return min(_SAMPLE, _SAMPLE_ENTRIES // size)


def _described(posteriors: Sequence[Posterior]) -> list[SiloDescription]:
    names = [field.name for field in fields(SiloDescription)]
    return [SiloDescription(*(getattr(p, name) for name in names)) for p in posteriors]


@dataclass(frozen=True, eq=False)
class _Sample:
    """Statistics of a sample of silos, so that batches are treated alike."""

    natural: FloatArray  # components, (n, p)
    prior: FloatArray | None  # that all silos are compared under, (p,); None: their own

    @classmethod
    def of(cls, posteriors: Sequence[Posterior], method: PathMethod, one_prior: bool) -> _Sample:
        """Of some silos."""
        problem = prepare(posteriors, np.ones(len(posteriors)), clean=method.cleans).problem
        known = one_prior and problem.prior is not None
        return cls(problem.natural, typical_prior(problem) if known else None)


def _problem(
    posteriors: Sequence[Posterior],
    weights: FloatArray,
    numbers: IntArray,
    sample: _Sample,
    method: PathMethod,
    variation: FloatArray | None,
) -> FusionProblem:
    """Components in comparable form; each silo has its number among all."""
    problem = prepare(posteriors, weights, clean=method.cleans).problem
    if sample.prior is not None:
        problem = under_one_prior(problem, sample.prior)
    problem = method.compared(problem, sample.natural, variation=variation)
    return replace(problem, silo=numbers[problem.silo])


def _added(
    posteriors: Sequence[Posterior],
    weights: FloatArray,
    found: IntArray,
    clean: bool,
    size: int,
) -> tuple[IntArray, BoolArray, FloatArray, FloatArray]:
    """Labels and which components took part; by cluster, mass and sums."""
    prepared = prepare(posteriors, weights, clean=clean)
    kept = np.flatnonzero(found >= 0)
    mass, sums = prepared.problem.some(kept).totals(found[kept], size)
    return prepared.spread(found), prepared.is_member, mass, sums


def _summed(
    parts: Iterable[tuple[IntArray, BoolArray, FloatArray, FloatArray]],
) -> tuple[list[IntArray], list[BoolArray], FloatArray, FloatArray]:
    """What `_added` gives for each batch, and its sums over all."""
    spread, members, mass, natural = list[IntArray](), list[BoolArray](), np.zeros(1), np.zeros(1)
    for labels, there, own_mass, sums in parts:
        spread.append(labels)
        members.append(there)
        mass, natural = mass + own_mass, natural + sums
    return spread, members, mass, natural


def _divergences(
    posteriors: Sequence[Posterior],
    labels: IntArray,
    mixed: BoolArray,
    natural: FloatArray,
    known: Known,
) -> tuple[FloatArray, FloatArray]:
    """How far components are from their global ones; `observations_of_mixed`."""
    stacked = stack_silos(posteriors, np.ones(len(posteriors)))
    ends = np.cumsum([p.n_components for p in posteriors])[:-1]
    rows = [np.flatnonzero(own) for own in np.split(mixed, ends)]
    apart = match_divergences(stacked, natural, labels, known)
    return apart, observations_of_mixed(posteriors, rows, natural)
