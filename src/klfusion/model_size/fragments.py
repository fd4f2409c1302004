"""Fragments: components that, pooled with a sibling of their silo, fit the sibling's cluster."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray, blocks
from klfusion.families import Tempered
from klfusion.model_size.cleaning import common_sizes, gain_of_one, with_typical_priors
from klfusion.model_size.distances import between, harmonic
from klfusion.model_size.linked import Linked
from klfusion.objective.clusters import Clusters
from klfusion.objective.problem import FusionProblem


@dataclass(frozen=True, eq=False)
class Fragments:
    """Components pooled with others of their silo, held against the clusters of these."""

    given: FusionProblem
    base: FusionProblem  # the given components made comparable, without variation between silos
    linked: Linked
    clusters: Clusters
    alone: FloatArray  # log-odds of each component of being of its own cluster, (n,)

    def siblings(self, rows: IntArray) -> IntArray:
        """The components of each row's silo, (m, largest silo); the last one fills up."""
        first, last = self.ends[self.base.silo[rows]].T
        every = first[:, None] + np.arange(self.base.largest_silo)
        return np.asarray(np.minimum(every, last[:, None]))

    @cached_property
    def ends(self) -> IntArray:
        """First and last component of each silo, (J, 2)."""
        return np.array([(own.start, own.stop - 1) for own in self.base.silos])

    @cached_property
    def odds(self) -> FloatArray:
        """Log-odds of each component and a sibling of a larger cluster, pooled, against the latter.

        Shape (n, largest silo), -inf where there is none.
        """
        every, size = np.arange(self.base.n), self.clusters.counts[self.linked.labels]
        siblings = self.siblings(every)
        larger = size[siblings] > size[:, None]
        larger[:, 1:] &= np.diff(siblings, axis=1) > 0  # each once
        out = np.full(siblings.shape, -np.inf)
        part, column = np.nonzero(larger)
        sibling = siblings[part, column]
        for some in blocks((len(part), self.base.family.size)):
            out[part[some], column[some]] = self._pooled_odds(part[some], sibling[some])
        return out

    def _pooled_odds(self, part: IntArray, sibling: IntArray) -> FloatArray:
        """Log-odds of parts (m,) and siblings (m,), pooled, in the place of the siblings alone."""
        given, problem, out = self.given, self.linked.problem, np.full(len(part), -np.inf)
        pooled, inside = given.pooled(sibling, part), np.ones(len(part), dtype=bool)
        if given.prior is not None:  # it may say too much; averages are of the family
            inside = given.family.inside(pooled)
        part, sibling, pooled = part[inside], sibling[inside], pooled[inside]
        if len(part) == 0:
            return out
        g, own = self.linked.labels[sibling], problem.weights[sibling]
        rest = self.clusters.mass[g] - own
        centres = (self.clusters.sums[g] - own[:, None] * problem.natural[sibling]) / rest[:, None]
        like = given.natural
        compared = alone(given, pooled).centred(like).comparable(like).natural
        trial = alone(problem, varied(self.base, compared, self.linked.variation))
        found = between(trial, np.arange(len(part)), centres)
        n = np.asarray(self.clusters.counts[g] - 1, dtype=np.float64)
        odds = self.linked.log_odds(harmonic(own, rest) * found, 1.0, n) - self.alone[sibling]
        out[inside] = odds + self._silo_odds(sibling, part)
        return out

    def _silo_odds(self, sibling: IntArray, part: IntArray) -> FloatArray:
        """Log-evidence of one component against two in the silo's own data, where known, (m,).

        At most 0: what speaks for one has served to clean the silo.
        """
        given, counts = self.given, self.given.counts
        if given.prior is None or counts is None or not isinstance(given.family, Tempered):
            return np.zeros(len(part))
        natural, prior, common = self._typical
        pairs = sibling, part, common
        return np.minimum(gain_of_one(given.family, prior, natural, counts, *pairs), 0.0)

    @cached_property
    def _typical(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Components and priors as if silos had typical priors, (n, p); their common sizes."""
        family, silo = self.given.family, self.given.silo
        first = np.unique(silo, return_index=True)[1]
        assert self.given.prior is not None
        tied = np.zeros(len(first), bool) if self.given.tied is None else self.given.tied[first]
        natural, prior = with_typical_priors(
            family, self.given.natural, self.given.prior[first], silo, tied
        )
        return natural, prior[silo], common_sizes(family, natural, silo)


def alone(problem: FusionProblem, natural: FloatArray) -> FusionProblem:
    """Other components (m, p) of the same family."""
    n = len(natural)
    return FusionProblem(problem.family, natural, np.zeros(n, np.intp), np.ones(n))


def varied(base: FusionProblem, natural: FloatArray, variation: FloatArray | None) -> FloatArray:
    """Components as comparable as those of a problem, with the variation between silos."""
    return alone(base, natural).with_variation(variation).natural
