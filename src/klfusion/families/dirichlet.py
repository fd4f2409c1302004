"""Dirichlet: posterior of a vector of probabilities, such as the words of a topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.families.capabilities import DiscreteOutcomes, Located, Tempered
from klfusion.families.categorical import deviations_between_frequencies
from klfusion.families.family import DimensionalFamily, Family
from klfusion.families.numerics.log_gamma import digamma, sum_log_gamma
from klfusion.families.parameters import rows

_TINY = np.finfo(np.float64).tiny
SMOOTHING = 0.5  # observations added to each outcome, so that unseen ones do not decide
_UNSEEN = 1e-7  # least share of a word, for logarithms


@final
@dataclass(frozen=True)
class Dirichlet(DimensionalFamily, Tempered, Located, DiscreteOutcomes):
    """``theta ~ Dirichlet(concentration)``; the concentrations are the natural parameters.

    Examples
    --------
    >>> import klfusion as kf
    >>> topics = kf.families.Dirichlet(dim=3)
    >>> eta = topics.natural(concentration=[[8.0, 1.0, 1.0], [6.0, 3.0, 1.0]])
    >>> topics.barycenter(eta)
    array([7., 2., 1.])
    """

    name: ClassVar[str] = "dirichlet"

    def natural(self, concentration: Any) -> FloatArray:
        """From ``concentration`` (n, d)."""
        return rows(concentration, self.dim, "concentration").copy()

    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """``concentration``."""
        return {"concentration": natural.copy()}

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A(eta)``."""
        return sum_log_gamma(natural) - sum_log_gamma(natural.sum(axis=1, keepdims=True))

    def mean(self, natural: FloatArray) -> FloatArray:
        """``E[log theta]``."""
        return digamma(natural) - digamma(natural.sum(axis=1, keepdims=True))

    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """The concentrations."""
        return {"concentration": natural}

    @property
    def least_count(self) -> float:
        """About the number of words of which some occur twice, if all are as likely."""
        return float(np.sqrt(self.dim))

    def effective_size(self, natural: FloatArray) -> FloatArray:
        """The sum of the concentrations."""
        return np.asarray(natural.sum(axis=1))

    def coarser(
        self, natural: FloatArray, weights: FloatArray, most: int
    ) -> tuple[Family, FloatArray]:
        """Rare words merged by the component that has most of each; the sums are Dirichlet, too."""
        if self.dim <= most:
            return self, natural
        order = np.argsort(-(weights @ natural), kind="stable")
        rare = order[most:]
        owner = (weights[:, None] * natural[:, rare]).argmax(axis=0)
        own, group = np.unique(owner, return_inverse=True)
        sums = np.zeros((len(own), len(natural)))
        np.add.at(sums, group, natural[:, rare].T)
        coarse = np.concatenate([natural[:, order[:most]], sums.T], axis=1)
        return Dirichlet(coarse.shape[1]), coarse

    def without_prior(self, natural: FloatArray) -> FloatArray:
        """Concentrations less the smallest, that of a word that does not occur."""
        least = _UNSEEN * natural.sum(axis=1, keepdims=True)
        return np.asarray(np.maximum(natural - natural.min(axis=1, keepdims=True), least))

    def n_parameters(self, natural: FloatArray) -> FloatArray:
        """The words that occur; those expected less than once count in part."""
        return np.asarray(np.minimum(self.without_prior(natural), 1.0).sum(axis=1))

    def location(self, natural: FloatArray) -> FloatArray:
        """The expected probabilities."""
        return np.asarray(natural / natural.sum(axis=1, keepdims=True))

    def relocated(self, natural: FloatArray, location: FloatArray) -> FloatArray:
        """Other expected probabilities, the same sum."""
        positive = np.maximum(location, _TINY)
        share = positive / positive.sum(axis=1, keepdims=True)
        return np.asarray(natural.sum(axis=1, keepdims=True) * share)

    def separation(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Of smoothed frequencies; see `deviations_between_frequencies`."""
        smooth = (self.location(eta + SMOOTHING) for eta in (first, second))
        return deviations_between_frequencies(*smooth)

    def comparable(self, natural: FloatArray, like: FloatArray | None = None) -> FloatArray:
        """All at the same sum, and smoothed: else words that a silo lacks decide."""
        total = natural.sum(axis=1)
        common = np.exp(np.log(total if like is None else like.sum(axis=1)).mean())
        return self.tempered(natural, common / total) + SMOOTHING
