"""Divergences between distributions, and their barycenters.

A divergence is one small object: ``costs`` from centres to components, and the ``barycenter`` that
minimises their weighted sum. `DivergenceProblem` gives both to the alternation.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, final

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.text import brief
from klfusion.errors import KLFusionError
from klfusion.families import DiagonalNormal, Family, Normal
from klfusion.objective.mean_parameters import (
    check_size,
    derivative,
    natural_from_mean,
    scaled_step,
)
from klfusion.objective.problem import FusionProblem

_BURES_STEPS = 200  # most fixed-point iterations
_BURES_TOLERANCE = 1e-12  # relative change of the covariance: near rounding
_DESCENT_STEPS = 500  # most Newton steps
_DESCENT_DONE = 1e-12  # nats: expected fall of the last step
_SHORTEST = 1e-6  # share of a Newton step below which rounding hides the fall


class Divergence(ABC):
    """Costs and barycenter of a divergence: all that the alternation uses.

    Examples
    --------
    >>> import numpy as np
    >>> from klfusion.objective.divergences import DIVERGENCES
    >>> from klfusion.families import DiagonalNormal
    >>> normal = DiagonalNormal(1)
    >>> eta = normal.natural(mean=[[0.0], [2.0]], variance=[[1.0], [9.0]])
    >>> for name, divergence in DIVERGENCES.items():
    ...     centre = divergence.barycenter(normal, eta, np.ones(2))
    ...     p = normal.params(centre[None])
    ...     print(name, p["mean"].item().__round__(2), p["variance"].item().__round__(2))
    kl 0.2 1.8
    kl-reverse 1.0 6.0
    jeffreys 0.48 3.36
    euclidean-natural 0.2 1.8
    euclidean-mean 1.0 6.0
    wasserstein 1.0 4.0
    """

    name: ClassVar[str]

    @abstractmethod
    def costs(self, family: Family, centres: FloatArray, locals_: FloatArray) -> FloatArray:
        """Divergence of each component from each centre, ``(G, p), (n, p) -> (n, G)``."""

    @abstractmethod
    def barycenter(self, family: Family, natural: FloatArray, weights: FloatArray) -> FloatArray:
        """The centre ``(p,)`` with the least weighted sum of costs."""


class _NaturalAverage(Divergence):
    """A divergence whose barycenter averages natural parameters."""

    def barycenter(self, family: Family, natural: FloatArray, weights: FloatArray) -> FloatArray:
        """The average."""
        return family.barycenter(natural, weights)


class _MeanAverage(Divergence):
    """A divergence whose barycenter averages mean parameters, which is moment matching."""

    def barycenter(self, family: Family, natural: FloatArray, weights: FloatArray) -> FloatArray:
        """The distribution with the average expectations."""
        mean = weights @ family.mean(natural) / weights.sum()
        return natural_from_mean(family, mean, family.barycenter(natural, weights))


@final
class KL(_NaturalAverage):
    """``KL(centre || local)``, the paper's."""

    name = "kl"

    def costs(self, family: Family, centres: FloatArray, locals_: FloatArray) -> FloatArray:
        """One matrix product."""
        return family.kl_from(centres, locals_)


@final
class ReverseKL(_MeanAverage):
    """``KL(local || centre)``."""

    name = "kl-reverse"

    def costs(self, family: Family, centres: FloatArray, locals_: FloatArray) -> FloatArray:
        """One matrix product."""
        return family.kl(locals_, centres)


@final
class Jeffreys(Divergence):
    """The sum of both directions."""

    name = "jeffreys"

    def costs(self, family: Family, centres: FloatArray, locals_: FloatArray) -> FloatArray:
        """Two matrix products."""
        return family.kl_from(centres, locals_) + family.kl(locals_, centres)

    def barycenter(self, family: Family, natural: FloatArray, weights: FloatArray) -> FloatArray:
        """Minimise ``<mu(eta), eta - eta_bar> - <mu_bar, eta>``, the sum up to constants.

        Its gradient is ``H (eta - eta_bar) + mu(eta) - mu_bar`` with ``H`` the derivative of the
        mean map, and its curvature about ``2 H``.
        """
        check_size(family)
        middle = family.barycenter(natural, weights)
        mean = weights @ family.mean(natural) / weights.sum()

        def value(eta: FloatArray) -> float:
            return float(family.mean(eta[None])[0] @ (eta - middle) - mean @ eta)

        eta = middle
        for _ in range(_DESCENT_STEPS):
            curvature = derivative(family, eta)
            gradient = curvature @ (eta - middle) + family.mean(eta[None])[0] - mean
            step = scaled_step(2.0 * curvature, gradient)
            decrement, length, now = float(gradient @ step), 1.0, value(eta)
            if decrement <= _DESCENT_DONE:
                break
            while length > _SHORTEST and not (
                family.in_domain((eta - length * step)[None])
                and value(eta - length * step) <= now - 0.25 * length * decrement
            ):
                length /= 2.0
            if length <= _SHORTEST:
                break
            eta = eta - length * step
        return eta


@final
class EuclideanNatural(_NaturalAverage):
    """Squared Euclidean distance of natural parameters, in their own units."""

    name = "euclidean-natural"

    def costs(self, family: Family, centres: FloatArray, locals_: FloatArray) -> FloatArray:
        """Squared distances."""
        del family
        return _squares(locals_, centres)


@final
class EuclideanMean(_MeanAverage):
    """Squared Euclidean distance of mean parameters, in their own units."""

    name = "euclidean-mean"

    def costs(self, family: Family, centres: FloatArray, locals_: FloatArray) -> FloatArray:
        """Squared distances."""
        return _squares(family.mean(locals_), family.mean(centres))


@final
class Wasserstein(Divergence):
    """Squared 2-Wasserstein distance of Gaussians, full or diagonal."""

    name = "wasserstein"

    def costs(self, family: Family, centres: FloatArray, locals_: FloatArray) -> FloatArray:
        """``|m - m'|^2 + tr(S + S' - 2 (S^1/2 S' S^1/2)^1/2)``."""
        mean, root = _gaussian(family, locals_)
        centre, centre_root = _gaussian(family, centres)
        distance = _squares(mean, centre)
        if root.ndim == 2:
            return np.asarray(distance + _squares(root, centre_root))
        trace, centre_trace = (np.einsum("nij,nij->n", r, r) for r in (root, centre_root))
        # The trace of the root of S^1/2 S' S^1/2 is the sum of singular values of S^1/2 S'^1/2.
        inner = root[:, None] @ centre_root[None]
        overlap = np.linalg.svd(inner, compute_uv=False).sum(axis=-1)
        shape = np.maximum(trace[:, None] + centre_trace - 2.0 * overlap, 0.0)
        return np.asarray(distance + shape)

    def barycenter(self, family: Family, natural: FloatArray, weights: FloatArray) -> FloatArray:
        """Average means; roots of variances, or the fixed point of Alvarez-Esteban et al."""
        mean, root = _gaussian(family, natural)
        share = weights / weights.sum()
        middle = share @ mean
        if root.ndim == 2:
            return np.asarray(family.natural(middle[None], np.square(share @ root)[None])[0])
        covariances = root @ root
        centre = np.einsum("n,nij->ij", share, covariances)
        for _ in range(_BURES_STEPS):
            half = _root(centre)
            inverse = np.linalg.inv(half)
            average = np.einsum("n,nij->ij", share, _root(half @ covariances @ half))
            new = inverse @ average @ average @ inverse
            if np.abs(new - centre).max() <= _BURES_TOLERANCE * np.abs(centre).max():
                break
            centre = 0.5 * (new + new.T)
        return np.asarray(family.natural(middle[None], (0.5 * (new + new.T))[None])[0])


DIVERGENCES: dict[str, Divergence] = {
    d.name: d
    for d in (KL(), ReverseKL(), Jeffreys(), EuclideanNatural(), EuclideanMean(), Wasserstein())
}


@final
@dataclass(frozen=True, eq=False)
class DivergenceProblem(FusionProblem):
    """A problem whose costs and averages are those of a divergence."""

    chosen: Divergence = field(kw_only=True)

    def costs(self, centres: FloatArray) -> FloatArray:
        """Weighted divergences, an (n, G) matrix."""
        return self.chosen.costs(self.family, centres, self.natural) * self.weights[:, None]

    def average(self, plan: FloatArray | IntArray, n_components: int) -> FloatArray:
        """Barycenters ``(G, p)`` of a binary plan without empty components."""
        members = (np.flatnonzero(plan == g) for g in range(n_components))
        found = [
            self.chosen.barycenter(self.family, self.natural[rows], self.weights[rows])
            for rows in members
        ]
        return np.stack(found)

    def divergence(self, plan: FloatArray | IntArray, n_components: int) -> float:
        """Total divergence of a binary plan from its barycenters."""
        costs = self.costs(self.average(plan, n_components))
        return float(costs[np.arange(self.n), plan.astype(np.intp)].sum())


def chosen_divergence(name: str) -> Divergence:
    """The divergence of a name; an error lists the names."""
    if not isinstance(name, str) or name not in DIVERGENCES:
        text = f"expected divergence to be one of {[*DIVERGENCES]}, got {brief(name)}"
        raise KLFusionError(text)
    return DIVERGENCES[name]


def problem_with_divergence(problem: FusionProblem, name: str) -> FusionProblem:
    """The problem with the costs and averages of a divergence; unchanged for ``"kl"``."""
    if name == KL.name:
        return problem
    fields = problem.family, problem.natural, problem.silo, problem.weights
    return DivergenceProblem(*fields, problem.counts, chosen=chosen_divergence(name))


def _squares(a: FloatArray, b: FloatArray) -> FloatArray:
    """Squared distances, (n, G)."""
    a2, b2 = np.einsum("ni,ni->n", a, a), np.einsum("ni,ni->n", b, b)
    return np.asarray(np.maximum(a2[:, None] + b2 - 2.0 * a @ b.T, 0.0))


def _gaussian(family: Family, natural: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Means, and square roots of the covariances: (n, d, d), or (n, d) where diagonal."""
    if not isinstance(family, DiagonalNormal | Normal):
        raise KLFusionError(
            f"divergence 'wasserstein': expected Normal or DiagonalNormal components, got {family}"
        )
    mean, spread = family.params(natural).values()
    return mean, np.sqrt(spread) if isinstance(family, DiagonalNormal) else _root(spread)


def _root(matrices: FloatArray) -> FloatArray:
    """Symmetric square roots of positive definite matrices."""
    values, vectors = np.linalg.eigh(matrices)
    return np.asarray(
        (vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]) @ vectors.swapaxes(-1, -2)
    )
