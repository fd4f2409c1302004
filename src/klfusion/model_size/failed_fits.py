"""Local components that describe no component: mixed ones, fragments, and unexplained ones.

A local fit may fail. It describes two components by one, or one by two. Such a *mixed* component or
*fragment* is in no other silo, or in few. Each cluster is held against this explanation, the
smallest first. The log-odds are those of the prior without the cluster against the prior with it,
of so many failed fits (see `failed_prior`), and of the distances. A mixed component lies near a
weighted average of two clusters, for natural parameters of observations add up; or both may be a
share of it, see `shares`. Its silo lacks both, or one if its fits divide the two in another way; it
then holds both. A fragment and a sibling of its silo, pooled, are as near to the sibling's cluster
as the sibling alone.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray, blocks
from klfusion.families import GaussianObservations
from klfusion.model_size.cleaning import NEGLIGIBLE_SHARE
from klfusion.model_size.distances import centre_distances, to_clusters
from klfusion.model_size.failed_prior import FailedFits
from klfusion.model_size.fragments import Fragments, alone, varied
from klfusion.model_size.linked import Linked
from klfusion.model_size.shares import SHARES, Shares
from klfusion.objective.clusters import Clusters
from klfusion.objective.problem import FusionProblem

_NEAREST = 6  # clusters of which all pairs are averaged
_MOST_KEPT = 1 << 25  # numbers of averages of two clusters that are kept, 256 MB


@dataclass(frozen=True, eq=False)
class Failed:
    """Rows that describe no component."""

    mixed: BoolArray  # left out, (n,)
    part_of: IntArray  # the sibling that a fragment is a part of, (n,); -1 for none
    known: FailedFits  # these, and those before

    @property
    def any(self) -> bool:
        """Whether there are any."""
        return bool(self.mixed.any() or (self.part_of >= 0).any())


def find_failed(
    given: FusionProblem,
    base: FusionProblem,
    linked: Linked,
    before: FailedFits | None = None,
    *,
    merges: bool = False,
) -> Failed:
    """Failed fits of a matching.

    The ``base`` problem has the ``given`` components made comparable, without variation between
    silos. Every silo keeps one component. Failed fits may have been left out ``before``. If it
    ``merges`` afterwards, a cluster that is likelier one with another has not failed: parts of one
    lie between its other parts.
    """
    search = _Search(given, base, linked, before, merges)
    order, found = np.argsort(search.clusters.counts, kind="stable"), -1
    while found < (found := int(search.known.failed.sum())):  # they make others likelier
        for cluster in order[search.counts[order] > 0].tolist():
            search.judge(cluster)
    search.judge_unexplained()
    mixed, part_of = search.mixed, search.part_of
    gone = (part_of >= 0) & mixed[part_of]  # with the component they are a part of
    mixed[gone], part_of[gone] = True, -1
    for rows in base.silos:
        if mixed[rows].all():
            mixed[rows] = False
    return Failed(mixed, part_of, search.known)


class _Search:
    """Clusters not yet found to be failed fits."""

    def __init__(
        self,
        given: FusionProblem,
        base: FusionProblem,
        linked: Linked,
        before: FailedFits | None,
        merges: bool,
    ) -> None:
        self.given, self.base, self.linked, self.merges = given, base, linked, merges
        none = FailedFits.none(linked.settings.failed_fits, base.silo)
        self.before = none if before is None else before
        self.problem = linked.problem
        # Fragments add up to the whole only where natural parameters are sums over observations: of
        # the component, not of all that share a covariance; and not over fewer words.
        sums = given.prior is not None or isinstance(given.family, GaussianObservations)
        tied = np.zeros(base.n, dtype=bool) if given.tied is None else given.tied
        self.sums = np.full(base.n, sums and given.family == base.family) & ~tied
        self.clusters = Clusters(self.problem, linked.labels)
        self.counts = self.clusters.counts.copy()  # 0 for what has failed
        self.holds = self.clusters.occupied()
        self.distances = centre_distances(self.clusters)
        self.centres = base.average(linked.labels, self.clusters.size)  # without variation
        self.averages = dict[tuple[int, int], tuple[FloatArray, ...]]()  # of the last pairs
        self.mixed = np.zeros(base.n, dtype=bool)
        self.part_of = np.full(base.n, -1, dtype=np.intp)
        self.unexplained = np.zeros(base.n, dtype=bool)
        rows, x, others = linked.members
        self.alone = np.zeros(base.n)  # log-odds of being of its own cluster
        self.alone[rows] = linked.log_odds(np.exp(x), others, 1.0)
        self.own = np.zeros(base.n)  # the same, where each pair counts once
        self.own[rows] = self.alone[rows] * others / (others + 1.0)

    def judge(self, cluster: int) -> None:
        """Mark the members of a cluster that failed fits explain better."""
        rows = np.flatnonzero(self.linked.labels == cluster)
        if np.isin(rows, self.part_of).any():  # others are parts of these
            return
        failed = self.known.log_odds(self.base.silo[rows])
        failed -= self.linked.prior.of_sizes(self.counts)
        mixed = failed + self._mixed_odds(cluster, rows)
        if mixed > 0:
            if self.one_with_another(cluster) < mixed:
                self.mixed[rows] = True
                self.counts[cluster] = 0
        elif self.sums[rows].all():
            gain, siblings = self._fragment_odds(cluster, rows)
            if failed + gain > 0 and self.one_with_another(cluster) < failed + gain:
                self.part_of[rows] = siblings
                self.counts[cluster] = 0

    def one_with_another(self, cluster: int) -> float:
        """Log-odds that a cluster is one with another, if they may merge; of the nearest alone."""
        if not (self.merges and self.linked.may_merge):
            return -np.inf
        shared = self.holds[:, self.holds[cluster]].any(axis=1)
        near = np.flatnonzero((self.counts > 0) & ~shared)
        near = near[np.argsort(self.distances[cluster, near], kind="stable")][:_NEAREST]
        odds = self.linked.union_odds(self.clusters, np.full(len(near), cluster), near)
        return float(odds.max(initial=-np.inf))

    def _alike(
        self,
        cluster: int,
        rows: IntArray,
        joined: IntArray,
        each: FloatArray,
        together: FloatArray,
    ) -> FloatArray:
        """Log-odds of failed fits with the reasons why members of a cluster are alike, (m,).

        Its silos hold the ``joined`` clusters, (m, k), instead. Failed fits are alike by chance:
        ``each`` has its own evidence, and those of a cluster go. Or they are of one kind, as halves
        are: then they are as a cluster of its own, whose evidence counts once, ``together``. Where
        parameters are sums over observations, both are equally likely.
        """
        old = self.counts[joined].astype(np.float64)
        own = np.full((len(old), 1), float(self.counts[cluster]))
        new = old + (~self.holds[:, self.holds[cluster]]).sum(axis=1)[joined]
        by_chance = self.linked.prior.changed(self.counts, np.hstack([own, old]), new)
        by_chance += each - self.own[rows].sum()
        if len(rows) == 1 or not self.sums[rows].all():
            return by_chance
        of_one_kind = self.linked.prior.changed(self.counts, old, new) + together
        return np.asarray(np.logaddexp(by_chance, of_one_kind) - np.log(2.0))

    @property
    def known(self) -> FailedFits:
        """Failed fits found so far."""
        silo, failed = self.base.silo, self.mixed | (self.part_of >= 0)
        return self.before.more(silo[failed], silo[self.unexplained & failed])

    def judge_unexplained(self) -> None:
        """Leave out clusters of one component that failed fits explain better.

        What no other cluster overlaps describes observations that no other describes.
        """
        whole = self.linked.labels[self.part_of[self.part_of >= 0]]
        single = np.setdiff1d(np.flatnonzero(self.counts == 1), whole)
        rows = np.flatnonzero(np.isin(self.linked.labels, single))
        if self.sums[rows].all():
            kept = np.flatnonzero(self.counts)
            overlap = self._shares.overlap(rows, kept, NEGLIGIBLE_SHARE)
            overlap &= kept != self.linked.labels[rows][:, None]
            rows = rows[overlap.any(axis=1)]
        others = np.delete(self.counts, self.linked.labels[rows])
        found = self.known.unexplained_among(self.base.silo[rows], others, self.linked.prior)
        self.mixed[rows[found]] = self.unexplained[rows[found]] = True

    def _mixed_odds(self, cluster: int, rows: IntArray) -> float:
        """Log-odds of describing two clusters by one component against being a cluster.

        A silo lacks both; or it has one of them, and its fits divide the two in another way. Then
        its member of that one is an outlier. Both kinds are equally likely, and so are all pairs of
        the clusters that a silo holds. More than a negligible share of the component may be of
        either. Only pairs of the nearest such clusters are computed.
        """
        absent = ~self.holds[:, self.holds[cluster]]  # from the silos of the cluster, (G, n)
        near = np.flatnonzero((self.counts > 0) & (np.arange(len(self.counts)) != cluster))
        near = near[np.argsort(self.distances[cluster, near], kind="stable")]
        inside = np.ones((len(rows), len(near)))
        if self.sums[rows].all():
            inside[:] = self._shares.possible(rows, near, NEGLIGIBLE_SHARE)
            some = np.flatnonzero(inside.mean(axis=0) >= 0.5)
            near, inside = near[some], inside[:, some]
        near, inside = near[:_NEAREST], inside[:, :_NEAREST]
        held = (~absent[near]).astype(np.float64)
        possible = (held @ held.T <= 0.5 * len(rows)) & (inside.T @ inside >= 0.5 * len(rows))
        pairs = near[np.argwhere(np.triu(possible, k=1))]  # a silo lacks one or both
        if len(pairs) == 0:
            return -np.inf
        odds = self._average_odds(self.problem, rows, pairs).sum(axis=0)
        if len(rows) == 1 and self.sums[rows[0]]:  # either statistic may show it
            odds = np.logaddexp(odds, self._shares.log_odds(int(rows[0]), pairs)) - np.log(2.0)
        together = self._average_odds(self._centre(cluster), np.zeros(1, np.intp), pairs)[0]
        outlying = self._outlying[:, self.base.silo[rows]].sum(axis=1)[pairs].sum(axis=1)
        first, last = self._fragments.ends[self.base.silo[rows]].T
        n_fits = last - first + 1.0
        n_held = n_fits - 1.0 + absent[pairs].sum(axis=1)  # clusters of each silo, (k, n)
        ways = np.maximum(0.5 * n_held * (n_held - 1.0) / n_fits, 1.0)
        outlying -= np.log(2.0 * ways).sum(axis=1)
        alike = self._alike(cluster, rows, pairs, odds, together)
        return float(np.logaddexp.reduce(outlying + alike))

    def _centre(self, cluster: int) -> FusionProblem:
        """The centre of a cluster as one component of its mass."""
        centre = self.clusters.centres_of(np.array([cluster]))
        return replace(alone(self.problem, centre), weights=self.clusters.mass[[cluster]])

    @cached_property
    def _outlying(self) -> FloatArray:
        """Log-likelihood ratio that a silo's member of a cluster is an outlier, (G, J).

        It is 0 where the silo has no member.
        """
        rows, x, _ = self.linked.members
        assert self.linked.same is not None
        out = np.where(self.holds, -np.inf, 0.0)  # one that is a cluster by itself is none
        found = self.linked.same.log_outlier(x, self.linked.settings.failed_fits)
        out[self.linked.labels[rows], self.base.silo[rows]] = found
        return out

    @cached_property
    def _shares(self) -> Shares:
        """How large a share of a component a cluster may be."""
        held = self.holds[:, self.base.silo].T.copy()
        held[np.arange(self.base.n), self.linked.labels] = False
        return Shares(self.base.family, self.base.natural, self.centres, held)

    def _averages(self, pairs: list[tuple[int, int]]) -> list[tuple[FloatArray, ...]]:
        """Averages of two clusters: natural and mean parameters, and masses, of each pair."""
        found = {pair: self.averages.pop(pair) for pair in pairs if pair in self.averages}
        if new := [pair for pair in pairs if pair not in found]:
            share = np.tile(SHARES, len(new))
            first, second = np.repeat(new, len(SHARES), axis=0).T
            natural = (
                share[:, None] * self.centres[first] + (1.0 - share)[:, None] * self.centres[second]
            )
            natural = varied(self.base, natural, self.linked.variation)
            masses = self.clusters.mass[first], self.clusters.mass[second]
            mass = 1.0 / (share**2 / masses[0] + (1.0 - share) ** 2 / masses[1])
            arrays = natural, self.problem.family.mean(natural), mass
            each = (own.reshape(len(new), len(SHARES), *own.shape[1:]) for own in arrays)
            parts = zip(*each, strict=True)
            found |= zip(new, parts, strict=True)
        most = max(1, _MOST_KEPT // (2 * len(SHARES) * self.base.family.size))
        self.averages = dict([*self.averages.items(), *found.items()][-most:])
        return [found[pair] for pair in pairs]

    def _average_odds(self, problem: FusionProblem, rows: IntArray, pairs: IntArray) -> FloatArray:
        """Log-odds that components are an average of each pair of clusters, (rows, k).

        All shares are equally likely.
        """
        each, found = [(min(pair), max(pair)) for pair in pairs.tolist()], []
        for some in blocks((len(each), len(SHARES), self.base.family.size)):
            averages = self._averages(each[some])
            natural, mean, mass = (
                own[0] if len(own) == 1 else np.concatenate(own)
                for own in zip(*averages, strict=True)
            )
            found.append((to_clusters(problem, rows, natural, mass, mean), mass))
        distance, mass = (np.concatenate(own, axis=-1) for own in zip(*found, strict=True))
        odds = self.linked.log_odds(distance, problem.weights[rows, None], mass)
        of_shares = odds.reshape(len(rows), len(pairs), len(SHARES))
        largest = of_shares.max(axis=2)
        of_shares -= largest[:, :, None]
        largest += np.log(np.exp(of_shares, out=of_shares).mean(axis=2))
        return np.asarray(largest)

    @cached_property
    def _fragments(self) -> Fragments:
        """Components pooled with siblings."""
        return Fragments(self.given, self.base, self.linked, self.clusters, self.alone)

    def _fragment_odds(self, cluster: int, rows: IntArray) -> tuple[float, IntArray]:
        """Log-odds that members are fragments of siblings, and the best sibling of each, (n,).

        A fragment and its sibling, pooled, are compared with the sibling's cluster, a larger one.
        """
        sibling, odds = self._fragments.siblings(rows), self._fragments.odds[rows]
        larger = self.counts[self.linked.labels[sibling]] > self.counts[cluster]
        odds = np.where(larger, odds, -np.inf)
        best = np.arange(len(rows)), odds.argmax(axis=1)
        none, total = np.zeros((1, 0), dtype=np.intp), odds[best].sum(keepdims=True)
        return float(self._alike(cluster, rows, none, total, total)[0]), sibling[best]
