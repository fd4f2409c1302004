"""What only some families can do: each capability is a base class that a family declares.

Callers ask ``isinstance(family, Tempered)``, or `require` a capability.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TypeVar

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.errors import KLFusionError
from klfusion.families.family import Family


class Capability(Family):
    """A family with methods that not every family has."""


CERTAIN = 1e9  # observations after which a posterior is as good as certain
_C = TypeVar("_C", bound=Capability)


def require(family: Family, capability: type[_C], what: str) -> _C:
    """The family, if it has the capability that ``what`` needs.

    Examples
    --------
    >>> import klfusion as kf
    >>> require(kf.families.Categorical(2), Tempered, "tempering")
    Traceback (most recent call last):
    ...
    klfusion.errors.KLFusionError: tempering: expected a family with effective_size \
(klfusion.families.Tempered), got Categorical(dim=2)
    """
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

        A posterior from ten times the data is ten times as concentrated, and KL counts that as a
        difference. Location and shape are what matching compares. The common size is the geometric
        mean over ``like``, by default over all.
        """
        size = self.effective_size(natural)
        others = size if like is None else self.effective_size(like)
        common = np.exp(np.log(others).mean())
        return self.tempered(natural, np.sqrt(common / size))

    def separation(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Standard deviations of one observation, whatever the sample size, ``(m,)``.

        The symmetrised divergence of posteriors as good as certain is that of the distributions
        they predict, times their sample size.
        """
        certain = (
            self.tempered(eta, CERTAIN / self.effective_size(eta)) for eta in (first, second)
        )
        return super().separation(*certain) / math.sqrt(CERTAIN)


class Centred(Capability):
    """Posteriors with a movable origin; no divergence depends on it."""

    @abstractmethod
    def centred(self, natural: FloatArray, like: FloatArray | None = None) -> FloatArray:
        """The origin moved to the average location; no divergence changes.

        Far from the origin natural parameters are large and their differences lose digits. The
        average is over ``like``, by default over all: parts of a batch then have one origin.
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
        """Posteriors whose `location` is the one given.

        With a ``covariance`` ``(n, k, k)``, its `location_covariance` is that, or the nearest that
        the family has. Without, certainty stays.
        """

    @abstractmethod
    def location_covariance(self, natural: FloatArray) -> FloatArray:
        """Covariance of `location`: ``(n, k, k)``, or ``(n, k)`` for a diagonal matrix."""


class GaussianObservations(Capability):
    """Posteriors of the mean and the precision of Gaussian observations."""

    @abstractmethod
    def observation_moments(self, natural: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean ``(n, d)`` and covariance of an observation at the expected precision.

        Covariances are ``(n, d, d)``, or ``(n, d)`` for diagonal matrices.
        """


class SiloVariation(Capability):
    """Posteriors with a model of variation between silos, as `random_effects` explains it."""

    @property
    @abstractmethod
    def variation_size(self) -> int:
        """Length of `variation`."""

    @abstractmethod
    def variation(self, natural: FloatArray, labels: IntArray) -> FloatArray:
        """Estimate how components with one label differ between silos, ``(variation_size,)``.

        At least one label must occur twice. Only `varied` interprets the numbers.
        """

    @abstractmethod
    def varied(self, natural: FloatArray, variation: FloatArray) -> FloatArray:
        """Posteriors of the global components, given the variation; for matching only."""


class DiscreteOutcomes(Capability):
    """Posteriors of the probabilities of discrete outcomes; there may be many."""

    @abstractmethod
    def coarser(
        self, natural: FloatArray, weights: FloatArray, most: int
    ) -> tuple[Family, FloatArray]:
        """The same components with rare outcomes merged, if there are more than about ``most``.

        Merging outcomes raises no divergence.
        """

    @abstractmethod
    def without_prior(self, natural: FloatArray) -> FloatArray:
        """Posteriors without the pseudo-counts that every outcome has."""
