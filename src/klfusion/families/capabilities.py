"""What only some families can do: each capability is a base class that a family declares.

Callers ask ``isinstance(family, Tempered)``, or `require` a capability.

Random-effects models say how much matched components differ between silos. As an estimate of the
global component a silo's own is less precise: variances add. The *reliability* of a part, such as
means or shapes, is its intraclass correlation. A part whose variance is all within global
components does not help to match.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray, in_blocks
from klfusion.errors import KLFusionError
from klfusion.families.family import Family


class Capability(Family):
    """A family with methods that not every family has."""


CERTAIN = 1e9  # observations after which a posterior is as good as certain
_C = TypeVar("_C", bound=Capability)


def require(family: Family, capability: type[_C], what: str) -> _C:
    """The family, if it has the capability that ``what`` needs; else an error names both."""
    if isinstance(family, capability):
        return family
    methods = ", ".join(sorted(capability.__abstractmethods__ - Family.__abstractmethods__))
    name = f"klfusion.families.{capability.__name__}"
    raise KLFusionError(f"{what}: expected a family with {methods} ({name}), got {family}")


class Tempered(Capability):
    """Posteriors with an effective sample size; it can be changed."""

    @abstractmethod
    def effective_size(self, natural: FloatArray) -> FloatArray:
        """Effective sample size of each posterior, ``(n,)``: data and pseudo-data of the prior."""

    def tempered(self, natural: FloatArray, factor: FloatArray) -> FloatArray:
        """The same location and shape at ``factor`` ``(n,)`` times the effective sample size."""
        return natural * factor[:, None]

    def comparable(self, natural: FloatArray, like: FloatArray | None = None) -> FloatArray:
        """Posteriors halfway, geometrically, to a common effective sample size; for matching only.

        Matching compares location and shape, while KL also counts certainty. The common size is the
        geometric mean over ``like``, by default over all.
        """
        sizes = self.effective_size(natural if like is None else like)
        common = np.exp(np.log(sizes).mean())

        def halfway(own: FloatArray) -> FloatArray:
            return self.tempered(own, np.sqrt(common / self.effective_size(own)))

        return in_blocks(halfway, natural)

    def separation(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Standard deviations of one observation, ``(m,)``: those of posteriors made certain."""
        both = (first, second)
        certain = (self.tempered(eta, CERTAIN / self.effective_size(eta)) for eta in both)
        return super().separation(*certain) / math.sqrt(CERTAIN)


class Centred(Capability):
    """Posteriors with a movable origin; no divergence depends on it."""

    @abstractmethod
    def centred(self, natural: FloatArray, like: FloatArray | None = None) -> FloatArray:
        """The origin moved to the average location of ``like``, by default of all.

        Far from the origin natural parameters are large and their differences lose digits.
        """


class Located(Capability):
    """Posteriors with a movable point estimate."""

    @abstractmethod
    def location(self, natural: FloatArray) -> FloatArray:
        """Point estimate ``(n, k)``."""

    @abstractmethod
    def relocated(self, natural: FloatArray, location: FloatArray) -> FloatArray:
        """Equally certain posteriors whose `location` is the one given."""


class UncertainLocation(Located):
    """Posteriors with a point estimate of known covariance."""

    @abstractmethod
    def relocated(
        self, natural: FloatArray, location: FloatArray, covariance: FloatArray | None = None
    ) -> FloatArray:
        """Posteriors at a location, of the nearest possible ``covariance``, if one is given.

        It is ``(n, k, k)``, or ``(n, k)`` for a diagonal matrix.
        """

    @abstractmethod
    def location_covariance(
        self, natural: FloatArray, like: FloatArray | None = None
    ) -> FloatArray:
        """Covariance of `location`: ``(n, k, k)``, or ``(n, k)`` for a diagonal matrix.

        Where it depends on how observations spread, they spread as by ``like``, ``(n, p)``.
        """


class GaussianObservations(Capability):
    """Posteriors of the mean and the precision of Gaussian observations."""

    @abstractmethod
    def observation_moments(self, natural: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean ``(n, d)`` and covariance, ``(n, d, d)`` or diagonal ``(n, d)``, of observations."""


class EmpiricalPrior(Capability):
    """Posteriors whose prior can be learned from several components."""

    @abstractmethod
    def with_empirical_prior(
        self, natural: FloatArray, prior: FloatArray, silo: IntArray, tied: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        """Components (n, p) and priors (J, p), as if each silo had a prior typical of its own.

        A component has the prior of its ``silo``, (n,), in ascending order. The new prior is as
        weak as the old one, but for what the components of a ``tied`` silo, (J,), share. Where
        nothing can be learned a silo stays as it is.
        """

    def typical_prior(self, prior: FloatArray) -> FloatArray:
        """One prior, (p,), for the components of all silos with these, (J, p)."""
        return np.asarray(prior.mean(axis=0))


class Varying(Protocol):
    """Components whose variation between silos depends on a matching."""

    def variation(self, labels: IntArray) -> FloatArray:
        """`SiloVariation.variation` of these."""

    def varied(self, variation: FloatArray) -> FloatArray:
        """`SiloVariation.varied` of these."""


@dataclass(frozen=True, eq=False)
class _Varying:
    family: "SiloVariation"
    natural: FloatArray

    def variation(self, labels: IntArray) -> FloatArray:
        return self.family.variation(self.natural, labels)

    def varied(self, variation: FloatArray) -> FloatArray:
        return self.family.varied(self.natural, variation)


class SiloVariation(Capability):
    """Posteriors with a model of variation between silos, by random effects."""

    def varying(self, natural: FloatArray) -> Varying:
        """Components of which one matching after the other is tried."""
        return _Varying(self, natural)

    @property
    @abstractmethod
    def variation_size(self) -> int:
        """Length of `variation`."""

    @abstractmethod
    def variation(self, natural: FloatArray, labels: IntArray) -> FloatArray:
        """How components of one label, which some share, differ between silos; for `varied`."""

    @abstractmethod
    def varied(self, natural: FloatArray, variation: FloatArray) -> FloatArray:
        """Posteriors of the global components, given the variation; for matching only."""


class DiscreteOutcomes(Capability):
    """Posteriors of the probabilities of discrete outcomes; there may be many."""

    @abstractmethod
    def coarser(
        self, natural: FloatArray, weights: FloatArray, most: int
    ) -> tuple[Family, FloatArray]:
        """The same components with rare outcomes merged, if there are more than about ``most``."""

    @abstractmethod
    def without_prior(self, natural: FloatArray) -> FloatArray:
        """Posteriors without the pseudo-counts that every outcome has."""


_LEAST_RELIABLE = 0.01  # so that every part counts


def group_means(values: FloatArray, labels: IntArray) -> FloatArray:
    """Average over each group, for each of its members: ``(n, ...) -> (n, ...)``."""
    counts = np.bincount(labels)
    sums = np.zeros((len(counts), *values.shape[1:]))
    np.add.at(sums, labels, values)
    means = sums / np.maximum(counts, 1).reshape(-1, *[1] * (values.ndim - 1))
    return np.asarray(means[labels])


def variance_between_silos(squares: FloatArray, own: FloatArray, labels: IntArray) -> float:
    """Mean of squared residuals (n,) from group averages, less what variances ``own`` (n,) add."""
    counts = np.bincount(labels)
    expected = own @ (1.0 - 1.0 / counts[labels])
    return float(max(squares.sum() - expected, 0.0) / (len(labels) - np.count_nonzero(counts)))


def reliability(values: FloatArray, labels: IntArray) -> float:
    """Intraclass correlation of ``(n, k)`` values: the share of variance between groups."""
    counts = np.bincount(labels)
    n, groups = len(labels), np.count_nonzero(counts)
    if groups < 2:
        return 1.0
    means = group_means(values, labels)
    within = float(np.square(values - means).sum()) / (n - groups)
    about_all = float(np.square(means - values.mean(axis=0)).sum()) / (groups - 1)
    size = (n - float(np.square(counts).sum()) / n) / (groups - 1)
    between = max(about_all - within, 0.0) / size
    if between + within == 0.0:
        return 1.0
    return max(between / (between + within), _LEAST_RELIABLE)
