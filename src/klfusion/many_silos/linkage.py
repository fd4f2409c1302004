"""The default for very many silos: the model on a sample of them, and sweeps over all.

The model of `klfusion.model_size.linkage` compares all pairs. So it is learned on a random sample
of silos. Then every silo is assigned to the sample's clusters by the log-odds of that model.
Components that join none are collected, and a sample of them is matched, until no new cluster is
found. A larger sample of whole silos shows which clusters are one, and which are failed fits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from klfusion._utils.arrays import (
    CACHED_ENTRIES,
    BoolArray,
    FloatArray,
    IntArray,
    blocks,
    relabel,
)
from klfusion._utils.running import Report
from klfusion.families import Family
from klfusion.many_silos.sample import all_found, certified_plan
from klfusion.many_silos.sweep import Centres, ClusterSums, sweep
from klfusion.model_size.distances import harmonic
from klfusion.model_size.evidence import LinkageSettings, LogOdds
from klfusion.model_size.failed_fits import find_failed
from klfusion.model_size.failed_prior import FailedFits
from klfusion.model_size.linkage import cut
from klfusion.model_size.linked import Linked, at_labels
from klfusion.model_size.linked_rows import link_rows
from klfusion.model_size.partitions import PartitionPrior
from klfusion.objective.batches import SiloStore
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, Search, Status

_REVISED = 4  # times the sample: components in which failed fits are searched
_SWEEPS = 5  # at most, until the plan stays the same


@dataclass(frozen=True, eq=False)
class Joining:
    """Log-odds of being alone against joining each of some centres.

    A component is likelier to be of a cluster that many silos hold than of one that only its own
    holds. So an outlier would join the former, however far. It is alone, or a failed fit.
    """

    odds: LogOdds
    family: Family
    centres: FloatArray  # (G, p)
    counts: FloatArray  # of members, (G,)
    prior: FloatArray  # log-odds of joining, (G,)
    new: float = 0.0

    @cached_property
    def farthest(self) -> FloatArray:
        """Distances beyond which a component is alone, (G,); log-odds fall with the distance."""
        x = self.odds.different.tabulated[:, None]
        joins = self._log_odds(np.exp(x), self.counts, self.prior) > 0.0
        last = np.minimum(joins.sum(axis=0), len(x) - 1)
        return np.asarray(np.exp(x[last, 0]))

    @cached_property
    def mean(self) -> FloatArray:
        """Mean parameters of the centres, (G, p)."""
        return self.family.mean(self.centres)

    def _log_odds(self, distance: FloatArray, counts: FloatArray, prior: FloatArray) -> FloatArray:
        return self.odds.without_outliers(distance, 1.0, counts) + prior

    def costs(self, batch: FusionProblem) -> FloatArray:
        """Of the components of a batch, (n, G); infinite where a component is alone."""
        out = np.full((batch.n, len(self.centres)), np.inf)
        near = list[tuple[IntArray, IntArray, FloatArray]]()
        squares = np.einsum("gp,gp->g", self.centres, self.mean)
        # The least weight makes all distances least.
        reach = squares - self.farthest / harmonic(batch.weights.min(), self.counts)
        for some in blocks(out.shape, CACHED_ENTRIES):
            natural, own = batch.natural[some], batch.mean[some]
            inner = natural @ self.mean.T
            inner += own @ self.centres.T
            inner -= np.einsum("np,np->n", natural, own)[:, None]
            entry = np.flatnonzero(inner >= reach)  # faster than rows and columns of few
            row, g = np.divmod(entry, len(reach))
            near.append((row + some.start, g, squares[g] - inner.ravel()[entry]))
        rows, g, distance = map(np.concatenate, zip(*near, strict=True))
        distance = np.maximum(distance, 0.0) * harmonic(batch.weights[rows], self.counts[g])
        joins = distance <= self.farthest[g]
        rows, g = rows[joins], g[joins]
        out[rows, g] = -self._log_odds(distance[joins], self.counts[g], self.prior[g])
        return out


def link_many(
    store: SiloStore, settings: LinkageSettings, search: Search, *, most: int, outcomes: int
) -> Matching:
    """Match the components of very many silos; the path is that of a sample of ``most``.

    Discrete outcomes beyond ``outcomes`` are merged in the sample.
    """
    sample = store.take(store.first_silos(search.rng.permutation(store.n_silos), most))
    first = link_rows(
        store.given(sample),
        lambda given: store.compared(given).coarser(outcomes),
        settings,
        search.report,
        variation=store.variation,
    )
    linked = at_labels(sample.some(first.rows), settings, first.linked.labels)
    # Failed fits are centres of their own, so that others like them join no other cluster.
    alone = np.flatnonzero(first.spread(first.linked.labels) < 0)
    rows = np.append(first.rows, alone)
    found = np.append(linked.labels, int(linked.labels.max()) + 1 + np.arange(len(alone)))
    odds, prior = linked.log_odds, PartitionPrior(store.n_silos)

    def swept(centres: Centres) -> ClusterSums:
        counts = centres.counts
        family, odds_of_joining = store.batches.family, prior.joining(counts)
        rule = Joining(odds, family, centres.natural, counts, odds_of_joining)
        return sweep(store.batches, rule)

    sums = all_found(
        store,
        Centres.of_labels(sample.some(rows), found, len(sample.silos) / store.n_silos),
        search,
        most,
        lambda centres: swept(centres).compact(),
        lambda problem: _clusters(problem, linked, search.report),
    )
    shares = len(sums.counts) > 0  # anything; else every component is alone
    failed, labels, settled = np.zeros(0, dtype=bool), sums.all_labels, not shares
    if shares:
        centres, failed = _revised(store, sums, settings, most, search.rng)
    for number in range(_SWEEPS if shares else 0):
        search.report("sweeping", number + 1, _SWEEPS)
        sums = swept(centres)
        used = np.flatnonzero(sums.counts)
        sums, failed, before = sums.some(used), failed[used], labels
        labels, centres = sums.all_labels, Centres.of_sums(sums)
        settled = bool((labels == before).all())
        if settled:
            break
    return _plan(store, sums, failed, first.linked, Status.of(settled))


def _clusters(problem: FusionProblem, sample: Linked, report: Report) -> IntArray:
    """Match components that joined no cluster of a sample, by the model of the sample."""
    found = cut(problem, sample.settings, report, sample.different)
    return replace(found, same=sample.same).merged(known=True).labels


def _revised(
    store: SiloStore,
    sums: ClusterSums,
    settings: LinkageSettings,
    most: int,
    rng: np.random.Generator,
) -> tuple[Centres, BoolArray]:
    """Merge clusters that are one, in a sample of whole silos, and find those of failed fits."""
    size, labels = len(sums.counts), sums.all_labels
    rows = _rare_and_random(store, labels, sums.counts, _REVISED * most, rng)
    problem, before = store.take(rows), labels[rows]
    single = np.flatnonzero(before < 0)
    before[single] = size + np.arange(len(single))
    now, wrong = _judged(store, problem, before, settings)
    # A cluster becomes the one that most of its members are in.
    votes = np.zeros((size, size + len(single)))
    np.add.at(votes, (before[before < size], now[before < size]), 1.0)
    new = np.where(votes.any(axis=1), votes.argmax(axis=1), np.arange(size))
    failed = np.zeros(votes.shape[1], dtype=bool)
    failed[now[wrong]] = True
    kept, group = np.unique(new, return_inverse=True)
    # A failed fit by itself becomes a centre, so that others like it are left out.
    alone = single[wrong[single] & ~np.isin(now[single], new)]
    centres = (
        Centres.of_sums(sums)
        .grouped(group)
        .joined(Centres(problem.natural[alone], np.ones(len(alone))))
    )
    return centres, np.concatenate([failed[kept], np.ones(len(alone), dtype=bool)])


def _judged(
    store: SiloStore, problem: FusionProblem, labels: IntArray, settings: LinkageSettings
) -> tuple[IntArray, BoolArray]:
    """Labels of clusters after those that are one have merged, and which rows are failed fits.

    As in `link_rows`, failed fits are found before clusters merge, too: they might join others.
    """
    labels, wrong, known = labels.copy(), np.zeros(problem.n, dtype=bool), None
    for merged in (False, True):
        rows = np.flatnonzero(~wrong)
        given, own = store.given(problem.some(rows)), labels[rows]
        base = store.compared(given)
        varied = base.with_variation(store.variation)
        linked = at_labels(varied, settings, relabel(own), store.variation)
        if merged:
            before = linked.labels
            linked = linked.merged()
            if not wrong.any() and (linked.labels == before).all():
                break  # nothing has changed
            first = np.unique(linked.labels, return_index=True)[1]
            labels[rows] = own[first][linked.labels]
        found = find_failed(given, base, linked, known, merges=not merged)
        wrong[rows[found.mixed | (found.part_of >= 0)]], known = True, found.known
    return labels, wrong


def _rare_and_random(
    store: SiloStore, labels: IntArray, counts: IntArray, most: int, rng: np.random.Generator
) -> IntArray:
    """Components of whole silos: half of those with the rarest global components, half of any."""
    rarest = np.minimum.reduceat(np.where(labels < 0, 1, counts[labels]), store.starts)
    order = rng.permutation(store.n_silos)
    rare = order[np.argsort(rarest[order], kind="stable")]
    half = most // 2
    return np.union1d(store.first_silos(rare, half), store.first_silos(order, half))


def _plan(
    store: SiloStore,
    sums: ClusterSums,
    failed: BoolArray,
    sample: Linked,
    status: Status,
) -> Matching:
    """The plan of a sweep, without clusters that are ``failed`` fits, and its lower bound."""
    labels, kept = sums.all_labels, sums.some(np.flatnonzero(~failed))
    left_out = (labels >= 0) & np.append(failed, False)[labels]
    single = np.flatnonzero(labels < 0)
    known = FailedFits.none(sample.settings.failed_fits, store.silo)
    known, prior = known.more(store.silo[left_out], single[:0]), PartitionPrior(store.n_silos)
    left_out[single[known.unexplained_among(store.silo[single], kept.counts, prior)]] = True
    keeps_none = np.logical_and.reduceat(left_out, store.starts)[store.silo]
    left_out &= ~keeps_none
    labels = kept.all_labels
    n_single = int(((labels < 0) & ~left_out).sum())
    value = kept.objective(store.batches.family, sample.penalty) - sample.penalty * kept.n_single
    value += sample.penalty * n_single
    return certified_plan(
        store,
        labels,
        left_out,
        kept.centres,
        sample.penalty,
        [value],
        status,
        sample.path,
    )
