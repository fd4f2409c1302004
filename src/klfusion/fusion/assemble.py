"""From a matching to a `Fusion`: the one place where a fusion is assembled."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion._utils.checks import check_integer
from klfusion._utils.package import provenance
from klfusion.errors import KLFusionError
from klfusion.families.family import Known
from klfusion.fusion.by_silo import BySilo
from klfusion.fusion.result import Fusion
from klfusion.fusion.settings import FuseSettings
from klfusion.objective.divergences import DivergenceProblem
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching
from klfusion.pooling.mixed_components import observations_of_mixed
from klfusion.pooling.one_prior import is_removable
from klfusion.pooling.pool import described
from klfusion.pooling.robust import bounded, robust_barycenter
from klfusion.posteriors.budgets import budgets
from klfusion.posteriors.compatibility import Silo, counted
from klfusion.posteriors.posterior import GLOBAL, Posterior
from klfusion.posteriors.structure import fuse_structures, network
from klfusion.posteriors.structure.kinds import with_bounded_counts
from klfusion.posteriors.structure.structure import scatter, with_prior

_AT_ONCE = 8  # global components whose divergences are computed in one call

# Why a local component is matched to no global one.
EMPTY = "hardly any observations of its own"
MIXED = "a failed fit, such as a mixture of two components that other silos separate"
UNSUPPORTED = "too few silos have its global component"

Unmatched = Mapping[str, Mapping[int, str]]  # by silo and component


def assemble(
    by_silo: tuple[Sequence[Silo], Sequence[IntArray], Sequence[FloatArray]],
    natural: FloatArray,
    matching: Matching,
    settings: FuseSettings,
    *,
    match_layer: network.Match = network.match_anew,
    silos: Sequence[Posterior] | None = None,
    unmatched: Unmatched | None = None,
    of_mixed: FloatArray | None = None,
    history: Sequence[Mapping[str, Any]] = (),
) -> Fusion:
    """Assemble a fusion of ``natural`` (G, p) from aligned posteriors, labels and divergences.

    The three are per silo. Rows of the matching's path are those of all local components. Units of
    later layers are matched by ``match_layer``. Of silos without components, the observations of
    mixed ones ``of_mixed`` (G,) are known.
    """
    posteriors, labels, divergences = by_silo
    unmatched = {} if unmatched is None else unmatched
    if of_mixed is None:
        sent = [p for p in posteriors if isinstance(p, Posterior)]
        of_mixed = observations_of_mixed(sent, mixed_rows(sent, unmatched), natural)
    names = tuple([p.name for p in posteriors])
    same = ("penalty", "objective", "lower_bound", "status", "path")
    made: Any = {key: getattr(matching, key) for key in same}
    divergence = settings.method.divergence
    pooling = settings.pooling if matching.plan is None else "average"
    settings = replace(settings, pooled=described(pooling, posteriors, divergence))
    return Fusion(
        posterior=_global_posterior(posteriors, natural, labels, of_mixed, match_layer, settings),
        silo_names=names,
        labels=BySilo(labels, names),
        divergences=BySilo(divergences, names),
        **made,
        trace=np.array(matching.trace),
        probability=_by_silo(matching.probability, labels, names),
        settings=settings,
        provenance=provenance(history=list(history) or None),
        silos=None if silos is None else tuple(silos),
        unmatched=unmatched,
    )


def _by_silo(
    values: FloatArray | None, labels: Sequence[IntArray], names: Sequence[str]
) -> BySilo[FloatArray] | None:
    """Values of all local components by silo; None if they are of other components."""
    edges = np.cumsum([len(own) for own in labels])
    if values is None or len(values) != edges[-1]:
        return None
    matched = np.where(np.concatenate(labels) >= 0, values, np.nan)
    return BySilo(np.split(matched, edges[:-1]), names)


def _global_posterior(
    silos: Sequence[Silo],
    natural: FloatArray,
    labels: Sequence[IntArray],
    of_mixed: FloatArray,
    match: network.Match,
    settings: FuseSettings,
) -> Posterior:
    """The fused components with the counts, prior and structure the silos agree on."""
    pooling, size = settings.pooling, len(natural)
    known = [p.counts for p in silos if p.counts is not None]
    family, priors = silos[0].family, [p.prior for p in silos if p.prior is not None]
    structures = [p.structure for p in silos]
    prior = np.mean(priors, axis=0) if len(priors) == len(labels) else None
    if pooling == "robust":  # so are claims about numbers and priors
        if len(known) == len(labels):
            known = [*map(np.multiply, known, bounded(known, labels))]
        if len(present := [s for s in structures if s is not None]) == len(structures):
            structures = [*with_bounded_counts(present, labels, bounded)]
        if prior is not None and family.in_domain(np.stack(priors)):  # a flat one is not
            prior = robust_barycenter(family, np.stack(priors), np.ones(len(priors)))
    structure = fuse_structures(structures, labels, size, match)
    if structure is not None and of_mixed.any() and pooling != "robust":  # these are no claims
        arrays = {**structure.arrays, "counts": structure.arrays["counts"] + of_mixed}
        structure = replace(structure, arrays=arrays)
    if not is_removable(silos, pooling, settings.method.divergence):
        structure = with_prior(structure)
    return Posterior(
        family=family,
        natural=natural,
        name=GLOBAL,
        prior=prior,
        counts=scatter(known, labels, size) if len(known) == len(labels) else None,
        structure=structure,
        provenance=provenance(
            silos=[name for p in silos for name in counted(p)], privacy=budgets(silos)
        ),
    )


def unmatched_reasons(
    silos: Sequence[Silo],
    labels: Sequence[IntArray],
    members: Sequence[BoolArray],
    matched: Sequence[IntArray] | None = None,
) -> dict[str, dict[int, str]]:
    """By silo, why each unmatched component is matched to none.

    Its ``members`` took part in matching, and some were ``matched`` to what lacks support.
    """
    before = labels if matched is None else matched
    found: dict[str, dict[int, str]] = {}
    for silo, own, there, old in zip(silos, labels, members, before, strict=True):
        for k in np.flatnonzero(own < 0).tolist():
            why = UNSUPPORTED if old[k] >= 0 else MIXED if there[k] else EMPTY
            found.setdefault(silo.name, {})[k] = why
    return found


def mixed_rows(silos: Sequence[Silo], unmatched: Unmatched) -> list[IntArray]:
    """The mixed components of each silo."""
    reasons = [unmatched.get(silo.name, {}) for silo in silos]
    return [np.array([k for k, why in own.items() if why == MIXED], np.intp) for own in reasons]


def match_divergences(
    problem: FusionProblem, centres: FloatArray, labels: IntArray, known: Known | None = None
) -> FloatArray:
    """``KL(global || local)``, or the problem's own, of each match, (n,); NaN where none is."""
    out, own = np.empty(problem.n), isinstance(problem, DivergenceProblem)
    if known is None and not own:
        known = problem.family.known(centres)
    at_once = 1 if own else _AT_ONCE
    for low in range(0, len(centres), at_once):
        some = centres[low : low + at_once]
        members: IntArray | slice = slice(None)  # of a single batch all, matched or not
        if len(some) < len(centres):
            members = np.flatnonzero((labels >= low) & (labels < low + at_once))
        natural, column = problem.natural[members], labels[members] - low
        if isinstance(problem, DivergenceProblem):
            found = problem.chosen.costs(problem.family, some, natural)
        else:
            assert known is not None
            of_some = known[0][low : low + at_once], known[1][low : low + at_once]
            found = problem.family.kl_from(some, natural, problem.log_partition[members], of_some)
        out[members] = found[np.arange(len(column)), column]
    out[labels < 0] = np.nan
    return out


def enough(support: IntArray, min_support: int) -> IntArray:
    """The global components whose number of silos is large enough; an error if none is."""
    check_integer("min_support", min_support)
    if support.max() < min_support:
        raise KLFusionError(
            f"expected a global component of at least min_support={min_support} silos, "
            f"got at most {support.max()}"
        )
    return np.flatnonzero(support >= min_support)
