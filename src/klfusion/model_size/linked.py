"""A matching of components under the model, and how it is improved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.assignment.binary import assign_silo
from klfusion.merging.agglomeration import penalty_between
from klfusion.model_size.densities import Different, Same, farther, grouped_log_odds, log_distance
from klfusion.model_size.distances import (
    between_centres,
    centre_distances,
    pair_distances,
    to_others,
)
from klfusion.model_size.evidence import (
    LinkageSettings,
    LogOdds,
    assumed_distance,
    different_of,
    leave_one_out,
    log_odds_shared,
    noise_distance,
    within_silos,
)
from klfusion.model_size.partitions import PartitionPrior
from klfusion.model_size.places import Places
from klfusion.objective.clusters import Clusters
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import MergePath

_SWEEPS = 8  # at most, of one refinement
MOST_PAIRS = 64  # of clusters, compared by all members in one call


@dataclass(frozen=True, eq=False)
class Linked:
    """A matching of components under the model."""

    problem: FusionProblem  # as compared, variation between silos included
    settings: LinkageSettings
    path: MergePath
    labels: IntArray
    different: Different | None = None  # None if nothing can match
    same: Same | None = None  # None if nothing matches
    variation: FloatArray | None = None
    of_all: bool = False  # whether all matchings of two silos were summed up

    @cached_property
    def prior(self) -> PartitionPrior:
        """Of partitions."""
        return PartitionPrior(len(self.problem.silos))

    @property
    def penalty(self) -> float:
        """A penalty at which the path has as many clusters."""
        return penalty_between(self.path, self.problem.n - int(self.labels.max()) - 1)

    @property
    def matches(self) -> bool:
        """Whether any two components are matched."""
        return self.same is not None and int(self.labels.max()) + 1 < self.problem.n

    @property
    def sharing(self) -> float:
        """Log-odds that anything is shared."""
        assert self.path.evidence is not None
        return log_odds_shared(self.path.evidence)

    # Evidence -----------------------------------------------------------------------------

    @property
    def log_odds(self) -> LogOdds:
        """Log-likelihood ratio of *same* against *different*."""
        assert self.same is not None and self.different is not None
        return LogOdds(self.same, self.different, self.settings.failed_fits)

    @cached_property
    def members(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """`leave_one_out` of the matching."""
        return leave_one_out(self.problem, self.labels)

    def evidence(self, labels: IntArray) -> float:
        """Log-evidence of a matching."""
        same = labels is self.labels
        _, x, others = self.members if same else leave_one_out(self.problem, labels)
        odds = self.log_odds(np.exp(x), others, 1.0) * others / (others + 1.0)
        return float(odds.sum()) + self.prior.of_sizes(np.bincount(labels))

    @property
    def places(self) -> Places:
        """Log-odds of the places of components."""
        return Places(self.problem, self.log_odds, self.prior)

    # Search -------------------------------------------------------------------------------

    def refined(self) -> Linked:
        """Improve the matching by assignments of one silo at a time; learn *same* anew."""
        found = self
        for _ in range(3):
            labels = (found := found.learned())._swept()
            if (labels == found.labels).all():
                break
            found = replace(found, labels=labels)
        return found

    def learned(self) -> Linked:
        """With *same* learned from the members of the present clusters."""
        assert self.different is not None and self.same is not None
        _, x, others = self.members
        shift = farther(others, 1.0, self.same.ratio)
        one = np.zeros(len(x), dtype=np.intp)
        noise, nearest = noise_distance(self.problem), float(x.min())
        model = self.different, self.settings.failed_fits, noise, nearest
        odds = grouped_log_odds(x, shift, one, *model)
        same = Same.of(self.different.centre, odds[0], noise, nearest)
        learned = replace(self, same=same)
        vars(learned)["members"] = self.members
        return learned

    def _swept(self) -> IntArray:
        """Labels after sweeps over the silos, while these raise the evidence."""
        best, value = self.labels, self.evidence(self.labels)
        clusters, places = Clusters(self.problem, self.labels), self.places
        for _ in range(_SWEEPS):
            for rows in self.problem.silos[places.first_unsettled(clusters) :]:
                clusters.take_out(rows)
                new = assign_silo(-places.scores(clusters, rows), 0.0)
                opened = np.flatnonzero(new < 0)
                empty = np.flatnonzero(clusters.counts == 0)
                free = np.append(empty, clusters.size + np.arange(len(opened)))
                new[opened] = free[: len(opened)]
                clusters.put_in(rows, new)
            clusters.compact()
            after = self.evidence(clusters.labels)
            if after <= value + 1e-9:
                break
            best, value = clusters.labels.copy(), after
        return best

    @property
    def may_merge(self) -> bool:
        """Whether clusters may be one: pairs are known to differ, and none has been decided."""
        return self.problem.n > len(self.problem.silos) and not self.of_all

    def merged(self, *, known: bool = False) -> Linked:
        """Merge two clusters while that is more probable than two.

        Where every silo has one component, no pair is known to differ, unless what *different*
        looks like is ``known``; where all matchings of two silos count, each pair has been decided.
        Then the clusters stay as they are.
        """
        found = self
        for _ in range(3 if self.matches and (known or self.may_merge) else 0):
            labels = found._merged()
            if (labels == found.labels).all():
                break
            found = replace(found, labels=replace(found, labels=labels)._swept())
        return found

    def _merged(self) -> IntArray:
        clusters, rejected = Clusters(self.problem, self.labels), set[tuple[int, int]]()
        while True:
            holds = clusters.occupied().astype(np.float32)
            a, b = np.nonzero(np.triu(holds @ holds.T == 0.0, k=1))
            if len(a) == 0:
                break
            sizes, prior = self._union_prior(clusters, a, b)
            gain = self.log_odds(centre_distances(clusters)[a, b], *sizes.T) + prior
            likely = np.flatnonzero(gain > 0.0)
            order = likely[np.argsort(-gain[likely], kind="stable")]
            first = np.unique(clusters.labels, return_index=True)[1]
            keys = np.sort([first[a[order]], first[b[order]]], axis=0).T
            pairs = dict(zip(order.tolist(), map(tuple, keys.tolist()), strict=True))
            open_ = [k for k, pair in pairs.items() if pair not in rejected]
            for some in _growing(open_):
                found = self.union_gains(clusters, a[some], b[some]) + prior[some]
                better = int(np.append(found > 0.0, True).argmax())
                rejected.update(pairs[k] for k in some[:better])
                if better < len(some):
                    break
            else:
                break
            merge = some[better]
            clusters.labels[clusters.labels == b[merge]] = a[merge]
            clusters.compact()
        return clusters.labels.copy()

    def union_odds(self, clusters: Clusters, a: IntArray, b: IntArray) -> FloatArray:
        """Log-odds that two clusters are one, (m,)."""
        if len(a) == 0:
            return np.zeros(0)
        return self.union_gains(clusters, a, b) + self._union_prior(clusters, a, b)[1]

    def _union_prior(
        self, clusters: Clusters, a: IntArray, b: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Sizes of pairs of clusters (m, 2), and log-prior odds that two are one, (m,)."""
        sizes = np.stack([clusters.counts[a], clusters.counts[b]], axis=1).astype(np.float64)
        union = sizes.sum(axis=1, keepdims=True)
        prior = self.prior.changed(clusters.counts, sizes, union)
        return sizes, prior - self.prior.of_sizes(clusters.counts)

    def union_gains(self, clusters: Clusters, a: IntArray, b: IntArray) -> FloatArray:
        """Log-likelihood ratio of the union of two clusters against the two, by all members, (m,).

        Halves of one cluster have smaller distances within, which is no evidence that they differ:
        under *different* the density of a component does not depend on its cluster. So that of
        members stays what it is, and counts as often as in the two. The union has one independent
        distance more: under *different* it is that of the two centres.
        """
        problem, counts, mass, sums = self.problem, clusters.counts, clusters.mass, clusters.sums
        every, where = np.unique([a, b], return_inverse=True)
        members = [np.flatnonzero(clusters.labels == g) for g in every]
        alone, other = np.concatenate(members), np.repeat(every, counts[every])
        others = counts[other] - 1.0
        some = others > 0
        weight = others / (others + 1.0)
        before, two = np.zeros((2, len(alone)))
        before[some] = to_others(problem, alone[some], other[some], sums, mass)
        two[some] = weight[some] * self.log_odds(before[some], others[some], 1.0)
        first = np.cumsum(counts[every]) - counts[every]
        places = [np.arange(low, low + n) for low, n in zip(first, counts[every], strict=True)]
        pairs = [np.concatenate([places[g], places[h]]) for g, h in where.reshape(2, -1).T]
        sizes = np.array([len(pair) for pair in pairs])
        row, group = np.concatenate(pairs), np.repeat(np.arange(len(a)), sizes)
        union = to_others(problem, alone[row], group, sums[a] + sums[b], mass[a] + mass[b])
        inside = some[row]
        if_different = np.where(inside, before[row], union)
        among = np.where(inside, others[row], sizes[group] - 1.0)
        of_union = (1.0 - 1.0 / sizes)[group]
        gain = of_union * self.log_odds(union, among, 1.0, if_different) - two[row]
        gain += (of_union - weight[row]) * self.log_odds.log_different(if_different, among, 1.0)
        apart, both = between_centres(clusters, a, b), counts[[a, b]].astype(np.float64)
        of_centres = self.log_odds.log_different(apart, *both)
        return np.asarray(np.add.reduceat(gain, np.cumsum(sizes) - sizes) - of_centres)


def _growing(items: list[int]) -> Iterator[list[int]]:
    """One item, two, four, up to `MOST_PAIRS`: little is computed in vain before a match."""
    low, size = 0, 1
    while low < len(items):
        yield items[low : low + size]
        low, size = low + size, min(2 * size, MOST_PAIRS)


def at_labels(
    problem: FusionProblem,
    settings: LinkageSettings,
    labels: IntArray,
    variation: FloatArray | None = None,
) -> Linked:
    """The model given a matching: *same* is learned from its clusters, and nothing is searched.

    Components of the problem are less certain by a ``variation`` between silos.
    """
    noise, size = noise_distance(problem), int(labels.max()) + 1
    if problem.n > len(problem.silos):
        different = within_silos(problem, settings, size)
    else:
        x, apart = log_distance(pair_distances(problem)), labels[:, None] != labels
        assumed = np.array([assumed_distance(problem, x, settings.separation)])
        pairs = x[np.triu(apart, k=1)] if size > 1 else assumed
        different = different_of(problem, pairs, max(size - 1.0, 1.0), settings)
    before = Same.of(different.centre, np.zeros(1), noise, noise)
    path = MergePath.of_merges(problem.n, np.empty((0, 2), dtype=np.intp), np.empty(0))
    found = Linked(problem, settings, path, labels, different, before, variation)
    for _ in range(2 if size < problem.n else 0):  # the shift of larger clusters depends on it
        found = found.learned()
    return found
