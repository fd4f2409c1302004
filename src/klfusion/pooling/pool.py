"""From matched components to a global one.

``auto`` is the posterior of the pooled data, the prior counted once, with a location as uncertain
as its variation between silos makes it. ``average`` averages natural parameters, as in the paper.
``product`` adds what each silo's data added to its prior to one prior. ``random-effects`` and
``hierarchical`` weight locations as `klfusion.pooling.random_effects` explains. ``robust`` has its
bound in `klfusion.pooling.robust`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion._utils.text import brief
from klfusion.errors import IncompatibleSilosError, InvalidPosteriorError, KLFusionError
from klfusion.families import (
    Family,
    GaussianObservations,
    Normal,
    Product,
    UncertainLocation,
    require,
)
from klfusion.objective.divergences import KL
from klfusion.objective.problem import FusionProblem
from klfusion.pooling import noisy_sums, reduction
from klfusion.pooling.noise_power import NoisePower
from klfusion.pooling.noisy_classes import NoisyClasses, classes_of
from klfusion.pooling.noisy_sums import NoisySums, sums_of
from klfusion.pooling.random_effects import Locations, within_silos
from klfusion.pooling.regressions import Silos
from klfusion.pooling.robust import robust_average
from klfusion.posteriors.compatibility import Silo, component_names
from klfusion.posteriors.posterior import UNKNOWN, Posterior, less_prior
from klfusion.posteriors.structure import network, regression
from klfusion.posteriors.structure.structure import is_tied


@dataclass(frozen=True, eq=False)
class Matched:
    """Matched components, one per silo and label (n,), and their silos' priors (n, p), if sent.

    ``sums`` are those of regressions to which noise was added, with the names of coefficients;
    ``classes`` are those of Gaussian classes, of each component.
    ``power`` is what Normals leave out of linear regressions in units of their noise. Components of
    ``tied`` mixtures share one covariance.
    """

    problem: FusionProblem
    labels: IntArray
    priors: FloatArray | None
    sums: tuple[Sequence[NoisySums], Sequence[str]] | None = None
    power: NoisePower | None = None
    classes: NoisyClasses | None = None
    tied: bool = False


def matched(
    posteriors: Sequence[Posterior], labels: Sequence[IntArray], silo_weights: FloatArray
) -> Matched:
    """Merge components of a silo that share a label; leave out those without a label."""
    silo = np.repeat(np.arange(len(labels)), [len(own) for own in labels])
    found = np.concatenate(labels)
    rows = np.flatnonzero(found >= 0)
    key = silo[rows] * (int(found.max()) + 1) + found[rows]
    _, first, group, times = np.unique(
        key, return_index=True, return_inverse=True, return_counts=True
    )
    stacked = np.concatenate([p.natural for p in posteriors])
    natural, which = stacked[rows[first]], silo[rows[first]]
    for unit in np.flatnonzero(times > 1):
        parts, prior = stacked[rows[group == unit]], posteriors[which[unit]].prior
        # Without a prior they were not merged by evidence; their average stands for them.
        natural[unit] = parts.mean(axis=0)
        if prior is not None:
            natural[unit] = parts.sum(axis=0) - (len(parts) - 1) * prior
    order = np.argsort(first)  # as the silos have them
    natural, which, labels_of_units = natural[order], which[order], found[rows[first[order]]]
    problem = FusionProblem(posteriors[0].family, natural, which, silo_weights[which])
    known = known_of(posteriors, rows[first[order]], silo_weights)
    return Matched(problem, labels_of_units, *known)


def known_of(posteriors: Sequence[Posterior], rows: IntArray, weights: FloatArray) -> tuple[
    FloatArray | None, tuple[Sequence[NoisySums], Sequence[str]] | None, NoisePower | None,
    NoisyClasses | None, bool,
]:  # fmt: skip
    """What `Matched` has beside components, given the row (n,) of each among those of all silos."""
    silo = np.repeat(np.arange(len(posteriors)), [p.n_components for p in posteriors])[rows]
    sums, power = sums_of(posteriors, weights), NoisePower.of(posteriors, weights)
    classes = classes_of(posteriors, rows) if (weights == 1.0).all() else None
    tied = all(is_tied(p.structure) for p in posteriors)
    return priors_of(posteriors, silo), sums, power, classes, tied


def priors_of(posteriors: Sequence[Posterior], silo: IntArray) -> FloatArray | None:
    """The prior of each component's silo, (n, p); None unless every silo sent one."""
    given = [p.prior for p in posteriors if p.prior is not None]
    return np.stack(given)[silo] if len(given) == len(posteriors) else None


_Plan = FloatArray | IntArray
_EXACT = {"variables", noisy_sums.KEY}  # settings of draws, and of sums with noise
Pooling = Literal["auto", "average", "product", "random-effects", "hierarchical", "robust"]


def chosen_pooling(pooling: str, posteriors: Sequence[Posterior], divergence: str = KL.name) -> str:
    """The pooling, checked.

    ``"auto"`` is ``"product"`` for classes, whose counts are exact, and for draws: their
    coordinates are curved functions of the variables, which would not vary about one mean. It is
    for sums with noise, too, which are added before anything is inferred.
    """
    exact = all(
        p.structure is not None
        and (p.structure.kind != regression.KIND or p.structure.info.keys() & _EXACT)
        and component_names(p) is not None
        and p.prior is not None
        for p in posteriors
    )
    if isinstance(pooling, str) and pooling == "auto" and divergence == KL.name and exact:
        pooling = "product"
    check_pooling(pooling, posteriors, divergence)
    return pooling


def check_pooling(pooling: str, posteriors: Sequence[Silo], divergence: str = KL.name) -> None:
    """Refuse a word that is none, and what the silos' family or their lack of priors rule out."""
    if not isinstance(pooling, str) or pooling not in get_args(Pooling):
        known = get_args(Pooling)
        raise KLFusionError(f"expected pooling to be one of {known}, got {brief(pooling)}")
    if divergence != KL.name and pooling not in ("auto", "average"):
        raise KLFusionError(
            f"divergence {divergence!r}: expected pooling 'average' (its barycenter), "
            f"got {pooling!r}"
        )
    family = posteriors[0].family
    if pooling in ("random-effects", "hierarchical") and not isinstance(family, UncertainLocation):
        raise IncompatibleSilosError(
            f"pooling {pooling!r} is for components with a location of known uncertainty, such as "
            f"Gaussian ones, got {family}: expected 'auto', 'average', 'product' or 'robust'"
        )
    if pooling == "product":
        for posterior in posteriors:
            if posterior.prior is None:
                raise IncompatibleSilosError(
                    f"silo {posterior.name!r}: pooling 'product' counts the prior once and "
                    "needs to know it: expected a posterior with a prior, got none"
                )


def chosen(pooling: str, silos: Sequence[Silo], divergence: str = KL.name) -> str:
    """``pooling``, or ``"average"`` where ``"auto"`` has no other choice.

    A divergence has its own barycenter, and the units of a network are averaged in every layer.
    """
    structure = silos[0].structure
    averaged = structure is not None and structure.kind == network.KIND
    return "average" if pooling == "auto" and (averaged or divergence != KL.name) else pooling


def described(pooling: str, silos: Sequence[Silo], divergence: str = KL.name) -> str:
    """What is done with these silos, in words."""
    pooling = chosen(pooling, silos, divergence)
    unstated = any(silo.provenance.get("prior") == UNKNOWN for silo in silos)
    if pooling != "auto":
        return "product, prior unknown" if pooling == "product" and unstated else pooling
    known = all(silo.prior is not None for silo in silos)
    located = [isinstance(f, UncertainLocation) for f, _ in _factors(silos[0].family)]
    others = "product" if known else "average"
    words = ["hierarchical"] * any(located) + [others] * (not all(located))
    prior = "counted once" if known and not unstated else "unknown"
    return f"{' and '.join(words)}, prior {prior}"


def pool(pooling: str, units: Matched, size: int, plan: _Plan | None = None) -> FloatArray:
    """Natural parameters (size, p) of the global components; ``plan`` (n, size) is fractional."""
    problem, labels = units.problem, units.labels
    coefficients = isinstance(problem.family, Normal) and size == 1 and units.priors is not None
    summed = (units.sums or units.classes) is not None and pooling in ("auto", "product")
    if plan is None and (summed or (coefficients and pooling in ("auto", "hierarchical"))):
        return _at_once(units, pooling, size)
    if pooling == "auto" and plan is None:
        blocks = [_automatic(f, units, size, columns) for f, columns in _factors(problem.family)]
        return np.concatenate(blocks, axis=1)
    plan = labels if plan is None else plan
    if pooling == "product":
        assert units.priors is not None  # see `check_pooling`
        priors = _columns(problem, problem.family, units.priors, slice(None))
        total, repeated = _sums(problem, priors, plan, size, tied=units.tied)
        natural = total - repeated
        if units.power is not None:
            natural = units.power.added_to(natural[0], problem.family)[None]
        return _checked(problem.family, natural)
    natural = problem.average(plan, size)
    if pooling in ("random-effects", "hierarchical"):
        family = require(problem.family, UncertainLocation, pooling)
        locations = Locations.of(family, problem.natural, problem.weights, labels)
        location, covariance = locations.least_squares()
        own = covariance if pooling == "hierarchical" else None
        return family.relocated(natural, location, own)
    if pooling == "robust":
        return robust_average(problem, labels, size)
    return natural


def _at_once(units: Matched, pooling: str, size: int) -> FloatArray:
    """From sums with noise, or one Normal per silo, as uncertain as few silos make it.

    The prior is counted once.
    """
    if units.sums is not None and pooling in ("auto", "product"):
        return noisy_sums.pooled(*units.sums)[None]
    problem = units.problem
    assert units.priors is not None
    if units.classes is not None:
        return units.classes.pooled(units.labels, size)
    silos = Silos.of_natural(
        problem.family, problem.natural, units.priors, problem.weights, "hierarchical"
    )
    found = silos.widened() if pooling == "auto" else silos.corrected(silos.pooled())
    return found.natural()[None]


def _factors(family: Family) -> list[tuple[Family, slice]]:
    """Independent factors of a product, each with its columns; else the family with all."""
    if not isinstance(family, Product):
        return [(family, slice(None))]
    ends = np.cumsum([0, *(factor.size for _, factor in family.factors)]).tolist()
    factors = [factor for _, factor in family.factors]
    return [(f, slice(*own)) for f, own in zip(factors, pairwise(ends), strict=True)]


def _automatic(family: Family, units: Matched, size: int, columns: slice) -> FloatArray:
    """The product of the members' likelihoods and one prior; a location may vary between silos."""
    labels, priors = units.labels, units.priors
    problem = _columns(units.problem, family, units.problem.natural, columns)
    if priors is None:
        natural, members = problem.average(labels, size), problem.natural
    else:
        of_priors = _columns(problem, family, priors, columns)
        natural = less_prior(family, *_sums(problem, of_priors, labels, size, tied=units.tied))
    if not isinstance(family, UncertainLocation) or len(labels) == size:  # no two to compare
        return natural
    if priors is not None:
        # Members without observations of a column say nothing about its variation between silos.
        seen = (problem.natural != of_priors.natural).any(axis=1)
        if not seen.all() and isinstance(units.problem.family, Product):
            return _of_some(family, units, natural, columns, seen)
        members = less_prior(family, problem.natural, of_priors.natural)
    spread = within_silos(family, members, labels, size)
    locations = Locations.of(family, members, problem.weights, labels, spread)
    if priors is not None and not locations.between_silos.any():
        return natural
    location = family.location(natural)
    agreed = None if priors is None else family.location_covariance(natural, spread)
    if isinstance(family, GaussianObservations):
        return family.relocated(natural, location, locations.widened(agreed))
    return family.relocated(natural, *locations.hierarchical(location, agreed))


def _of_some(
    family: Family, units: Matched, natural: FloatArray, columns: slice, seen: BoolArray
) -> FloatArray:
    """`_automatic` of the members that were ``seen`` (n,); ``natural`` where no member was."""
    assert units.priors is not None
    problem, natural = units.problem.some(np.flatnonzero(seen)), natural.copy()
    have, labels = np.unique(units.labels[seen], return_inverse=True)
    if len(have):
        some = Matched(problem, labels.astype(np.intp), units.priors[seen], tied=units.tied)
        natural[have] = _automatic(family, some, len(have), columns)
    return natural


def _columns(like: FusionProblem, family: Family, natural: FloatArray, own: slice) -> FusionProblem:
    return FusionProblem(family, natural[:, own], like.silo, like.weights)


def _sums(
    problem: FusionProblem, priors: FusionProblem, plan: _Plan, size: int, *, tied: bool
) -> tuple[FloatArray, FloatArray]:
    """``sum_j w_j eta_j``, and ``sum_j w_j prior_j`` less the members' prior on average.

    A component of a tied mixture has a share of the scatter of all. Less what its own mean
    explains, it need not be a covariance; the scatters of all components add up to one.
    """
    fractional, w = plan.ndim == 2, problem.weights
    mass = plan.T @ w if fractional else np.bincount(np.asarray(plan, dtype=np.intp), w, size)
    sums = np.asarray(mass, dtype=np.float64)[:, None]
    total, prior = sums * problem.average(plan, size), priors.average(plan, size)
    if tied:
        total = reduction.tied(problem.family, total - sums * prior) + sums * prior
    return total, (sums - 1.0) * prior


def _checked(family: Family, natural: FloatArray) -> FloatArray:
    try:
        family.check(natural, "pooling 'product'")
    except InvalidPosteriorError as error:
        raise InvalidPosteriorError(
            f"{error}: the silos' priors are not what their posteriors came from; "
            "pooling='average' takes none of them out"
        ) from error
    return natural
