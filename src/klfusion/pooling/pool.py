"""From matched components to a global one.

``average`` averages natural parameters, as in the paper. ``product`` adds what each silo's data
added to its prior to one prior; ``product-safe`` removes only as much of the repeated priors as
leaves a distribution. ``robust`` has its bound in `klfusion.pooling.robust`.

``random-effects`` has the model ``m_j ~ N(m, V_j + T)``. Here ``V_j`` is the posterior covariance
of the location at silo ``j`` and ``T`` the variation between silos, the same for all components.
The generalised least squares estimate of ``m`` has the covariance ``inv(sum_j inv(V_j + T))``,
which ``hierarchical`` keeps. So a large silo outweighs a small one little if silos vary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.text import brief
from klfusion.errors import IncompatibleSilosError, InvalidPosteriorError, KLFusionError
from klfusion.families import Normal, UncertainLocation, require
from klfusion.objective.divergences import KL
from klfusion.objective.problem import FusionProblem
from klfusion.pooling.regressions import Silos
from klfusion.pooling.robust import robust_average
from klfusion.posteriors.compatibility import component_names
from klfusion.posteriors.posterior import Posterior


@dataclass(frozen=True, eq=False)
class Matched:
    """Matched components, one per silo and label (n,), and their silos' priors (n, p), if sent."""

    problem: FusionProblem
    labels: IntArray
    priors: FloatArray | None


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
    return Matched(problem, labels_of_units, priors_of(posteriors, which))


def priors_of(posteriors: Sequence[Posterior], silo: IntArray) -> FloatArray | None:
    """The prior of each component's silo, (n, p); None unless every silo sent one."""
    given = [p.prior for p in posteriors if p.prior is not None]
    return np.stack(given)[silo] if len(given) == len(posteriors) else None


_SMALLEST = 1e-18  # variation, as a share of the largest there can be
_HALVINGS_OF_RANGE = 50  # of the logarithm: to one part in 1e12
_HALVINGS = 20  # of the share of repeated priors that is taken out, before none is

_Plan = FloatArray | IntArray
Pooling = Literal["average", "product", "product-safe", "random-effects", "hierarchical", "robust"]


def chosen_pooling(pooling: str, posteriors: Sequence[Posterior], divergence: str = KL.name) -> str:
    """The pooling that ``"auto"`` is for these silos, checked."""
    if isinstance(pooling, str) and pooling == "auto":
        named = all(component_names(p) is not None and p.prior is not None for p in posteriors)
        pooling = "product" if named and divergence == KL.name else "average"
    check_pooling(pooling, posteriors, divergence)
    return pooling


def check_pooling(pooling: str, posteriors: Sequence[Posterior], divergence: str = KL.name) -> None:
    """Refuse a word that is none, and what the silos' family or their lack of priors rule out."""
    if not isinstance(pooling, str) or pooling not in get_args(Pooling):
        known = ("auto", *get_args(Pooling))
        raise KLFusionError(f"expected pooling to be one of {known}, got {brief(pooling)}")
    if divergence != KL.name and pooling != "average":
        raise KLFusionError(
            f"divergence {divergence!r}: expected pooling 'average' (its barycenter), "
            f"got {pooling!r}"
        )
    family = posteriors[0].family
    if pooling in ("random-effects", "hierarchical") and not isinstance(family, UncertainLocation):
        raise IncompatibleSilosError(
            f"pooling {pooling!r} is for components with a location of known uncertainty, such as "
            f"Gaussian ones, got {family}: expected 'average', 'product' or 'robust'"
        )
    if pooling in ("product", "product-safe"):
        for posterior in posteriors:
            if posterior.prior is None:
                raise IncompatibleSilosError(
                    f"silo {posterior.name!r}: pooling {pooling!r} counts the prior once and "
                    "needs to know it: expected a posterior with a prior, got none"
                )


def pool(pooling: str, units: Matched, size: int, plan: _Plan | None = None) -> FloatArray:
    """Natural parameters (size, p) of the global components; ``plan`` (n, size) is fractional."""
    problem, labels = units.problem, units.labels
    natural = problem.average(labels if plan is None else plan, size)
    if pooling in ("product", "product-safe"):
        assert units.priors is not None  # see `check_pooling`
        return _product(units, size, labels if plan is None else plan, pooling == "product-safe")
    normal = isinstance(problem.family, Normal) and size == 1
    if pooling == "hierarchical" and normal and units.priors is not None:
        return _hierarchical(units, units.priors)
    if pooling in ("random-effects", "hierarchical"):
        location, covariance = random_effects(problem, labels, size)
        own = covariance if pooling == "hierarchical" else None
        return require(problem.family, UncertainLocation, pooling).relocated(natural, location, own)
    if pooling == "robust":
        return robust_average(problem, labels, size)
    return natural


def _hierarchical(units: Matched, priors: FloatArray) -> FloatArray:
    """One Normal per silo, the prior counted once, as uncertain as few silos make it."""
    problem = units.problem
    silos = Silos.of_natural(
        problem.family, problem.natural, priors, problem.weights, "hierarchical"
    )
    return silos.corrected(silos.pooled()).natural()[None]


def _product(units: Matched, size: int, plan: _Plan, safe: bool) -> FloatArray:
    """``prior + sum_j w_j (eta_j - prior_j)``, the prior that of the members on average."""
    problem, priors = units.problem, units.priors
    of_priors = FusionProblem(problem.family, np.asarray(priors), problem.silo, problem.weights)
    mass, total, _ = problem.sums(plan, size)
    repeated = of_priors.average(plan, size) * (mass - 1.0)[:, None]  # a prior may be flat
    if not safe:
        natural = total - repeated
        try:
            problem.family.check(natural, "pooling 'product'")
        except InvalidPosteriorError as error:
            raise InvalidPosteriorError(
                f"{error}: the silos' priors are not what their posteriors came from; "
                "'product-safe' takes out less of them, 'average' none"
            ) from error
        return natural
    share = np.ones(size)
    for _ in range(_HALVINGS):
        natural = total - share[:, None] * repeated
        outside = [g for g in range(size) if not problem.family.in_domain(natural[g : g + 1])]
        if not outside:
            return natural
        share[outside] /= 2.0
    share[outside] = 0.0
    return total - share[:, None] * repeated


def random_effects(
    problem: FusionProblem, labels: IntArray, n_components: int
) -> tuple[FloatArray, FloatArray]:
    """Least squares estimates (G, k) of the global locations, and covariances (G, k, k)."""
    family = require(problem.family, UncertainLocation, "random effects")
    location, own = family.location(problem.natural), family.location_covariance(problem.natural)
    if own.ndim == 2:
        own = own[:, :, None] * np.eye(own.shape[1])
    variation = _variation(location, np.einsum("nii->ni", own), labels, n_components)
    # Averages weighted by ``(V_j + T)^-1``, and their covariance.
    precision = np.linalg.inv(own + np.diag(variation)) * problem.weights[:, None, None]
    total = np.zeros((n_components, *precision.shape[1:]))
    moment = np.zeros((n_components, location.shape[1]))
    np.add.at(total, labels, precision)
    np.add.at(moment, labels, np.einsum("nij,nj->ni", precision, location))
    covariance = np.linalg.inv(total)
    covariance = 0.5 * (covariance + covariance.swapaxes(1, 2))
    return np.asarray(np.linalg.solve(total, moment[..., None])[..., 0]), covariance


def _variation(location: FloatArray, own: FloatArray, labels: IntArray, size: int) -> FloatArray:
    """The diagonal of ``T``, (k,), as Paule and Mandel estimate it.

    In each dimension, the weighted squares of the residuals add up to their degrees of freedom.
    """
    freedom = len(location) - size

    def excess(variation: FloatArray) -> FloatArray:
        weights = 1.0 / (own + variation)
        mass, moment = (np.zeros((size, own.shape[1])) for _ in range(2))
        np.add.at(mass, labels, weights)
        np.add.at(moment, labels, weights * location)
        residual = location - (moment / mass)[labels]
        return np.asarray((weights * residual**2).sum(axis=0) - freedom)

    zero = np.zeros(own.shape[1])
    # At the squared range of the locations nothing is left to explain.
    high = np.maximum(np.ptp(location, axis=0) ** 2, own.min(axis=0)) * len(location)
    low = high * _SMALLEST
    for _ in range(_HALVINGS_OF_RANGE):
        middle = np.sqrt(low * high)
        above = excess(middle) > 0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.where((freedom > 0) & (excess(zero) > 0), high, zero)
