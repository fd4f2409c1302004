"""Which components are the same: record linkage of the silos' components.

Each silo is a file without duplicates (Fellegi and Sunter 1969; Sadinle 2017). A matching is a
partition of all components with at most one of each silo in a cluster. Its log-evidence is

    sum over clusters C of (n-1)/n sum_{i in C} [log f1(x_i) - log f0(x_i - shift(n))] + log prior,

with ``x_i`` the log-distance of member ``i`` to the other ``n - 1`` members of its cluster, ``f1``
and ``f0`` the densities of *same* and *different* (see `densities`), and the prior of
`PartitionPrior`. The factor ``(n-1)/n`` corrects for each pair that counts twice.

The evidence of every cut of the merge path is computed, with the parameters of ``f1`` integrated
out. Sweeps over the silos, one assignment per silo, and merges improve the best cut.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.running import Report
from klfusion.assignment.binary import assign_silo
from klfusion.families import SiloVariation, Tempered
from klfusion.merging.agglomeration import penalty_between, penalty_path
from klfusion.model_size.cleaning import SEPARATION
from klfusion.model_size.densities import (
    Different,
    Same,
    farther,
    grid_log_odds,
    log_distance,
    log_marginal,
    noise_ratio,
)
from klfusion.model_size.distances import centre_distances, pair_distances, to_clusters, to_others
from klfusion.model_size.partitions import PartitionPrior
from klfusion.objective.clusters import Clusters
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import MergePath

_MOST_SINGLES = 40  # clusters, at most, of silos with one component each
_SWEEPS = 8  # at most, of one refinement
ROUNDS = 5  # at most, of matching and estimating the variation between silos


@dataclass(frozen=True)
class LinkageSettings:
    """The numbers of the model, as `kf.Auto` has them."""

    failed_fits: float = 0.05  # share of local components that describe no component
    least_evidence: float = 1.0  # nats by which sharing must be better than sharing none
    separation: float = SEPARATION  # standard deviations of different ones, if no silo has two


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
    gain: float = 0.0  # log-evidence above that of nothing shared

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

    # Evidence -----------------------------------------------------------------------------

    def log_odds(
        self, distance: FloatArray, n_a: FloatArray | float, n_b: FloatArray | float
    ) -> FloatArray:
        """Log-likelihood ratio of *same* against *different* for clusters of such sizes."""
        assert self.same is not None and self.different is not None
        shift = farther(n_a, n_b, self.same.ratio)
        outliers = self.settings.failed_fits
        return self.same.log_odds(log_distance(distance), shift, self.different, outliers)

    def evidence(self, labels: IntArray) -> float:
        """Log-evidence of a matching."""
        _, x, others = leave_one_out(self.problem, labels)
        odds = self.log_odds(np.exp(x), others, 1.0) * others / (others + 1.0)
        return float(odds.sum()) + self.prior.of_sizes(np.bincount(labels))

    def scores(self, clusters: Clusters, rows: slice) -> FloatArray:
        """Log-odds of joining each cluster against opening a new one, (L, G).

        The rows have been taken out.
        """
        used = np.flatnonzero(clusters.counts)
        out = np.full((rows.stop - rows.start, clusters.size), -np.inf)
        distance = to_clusters(self.problem, rows, clusters.centres_of(used), clusters.mass[used])
        odds = self.log_odds(distance, 1.0, clusters.counts[used].astype(np.float64))
        out[:, used] = odds + self.prior.joining(clusters.counts)[used]
        return out

    # Search -------------------------------------------------------------------------------

    def refined(self) -> Linked:
        """Improve the matching by assignments of one silo at a time; learn *same* anew."""
        found = self
        for _ in range(3):
            found = replace(found, same=found._learned())
            labels = found._swept()
            if (labels == found.labels).all():
                break
            found = replace(found, labels=labels)
        return found

    def _learned(self) -> Same:
        """*Same* of the members of the present clusters."""
        assert self.different is not None and self.same is not None
        _, x, others = leave_one_out(self.problem, self.labels)
        shift = farther(others, 1.0, self.same.ratio)
        odds = grid_log_odds(x, shift, self.different, self.settings.failed_fits)
        return Same.of(self.different.centre, odds.sum(axis=0), noise_distance(self.problem))

    def _swept(self) -> IntArray:
        """Labels after sweeps over the silos, while these raise the evidence."""
        best, value = self.labels, self.evidence(self.labels)
        clusters = Clusters(self.problem, self.labels)
        for _ in range(_SWEEPS):
            for rows in self.problem.silos:
                clusters.take_out(rows)
                new = assign_silo(-self.scores(clusters, rows), 0.0)
                opened = np.flatnonzero(new < 0)
                empty = np.flatnonzero(clusters.counts == 0)
                free = np.append(empty, clusters.size + np.arange(len(opened)))[: len(opened)]
                new[opened] = free
                clusters.put_in(rows, new)
            clusters.compact()
            after = self.evidence(clusters.labels)
            if after <= value + 1e-9:
                break
            best, value = clusters.labels.copy(), after
        return best

    def merged(self) -> Linked:
        """Merge two clusters while their log-odds of being one are positive.

        The evidence of single members favours small clusters. Where every silo has one component,
        no pair is known to differ, and the clusters stay as they are.
        """
        found, known = self, self.problem.n > len(self.problem.silos)
        for _ in range(3 if self.matches and known else 0):
            labels = found._merged()
            if (labels == found.labels).all():
                break
            found = replace(found, labels=labels)
            found = replace(found, labels=found._swept())
        return found

    def _merged(self) -> IntArray:
        clusters = Clusters(self.problem, self.labels)
        while True:
            holds = clusters.occupied().astype(np.float32)
            a, b = np.nonzero(np.triu(holds @ holds.T == 0.0, k=1))
            if len(a) == 0:
                break
            sizes = np.stack([clusters.counts[a], clusters.counts[b]], axis=1).astype(np.float64)
            odds = self.log_odds(centre_distances(clusters)[a, b], *sizes.T)
            union = sizes.sum(axis=1, keepdims=True)
            after = self.prior.changed(clusters.counts, sizes, union)
            gain = odds + after - self.prior.of_sizes(clusters.counts)
            k = int(gain.argmax())
            if gain[k] <= 0.0:
                break
            clusters.labels[clusters.labels == b[k]] = a[k]
            clusters.compact()
        return clusters.labels.copy()


def leave_one_out(
    problem: FusionProblem, labels: IntArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Rows in clusters of two or more, log-distances to their others, and the others' number."""
    clusters = Clusters(problem, labels)
    others: FloatArray = np.asarray(clusters.counts[clusters.labels] - 1, dtype=np.float64)
    rows = np.flatnonzero(others > 0)
    found = to_others(problem, rows, clusters.labels[rows], clusters.sums, clusters.mass)
    return rows, log_distance(found), others[rows]


def link(
    base: FusionProblem, settings: LinkageSettings, report: Report, *, varied: bool = False
) -> Linked:
    """Match the components of a problem and estimate the variation between silos.

    Under no variation nothing may match although silos share components. Then the variation is
    first estimated from all merges of the path. A problem may be ``varied`` already.
    """
    found = cut(base, settings, report)
    if isinstance(base.family, SiloVariation) and len(found.path.merges) and not varied:
        labels = found.labels if found.matches else found.path.labels(len(found.path.merges))
        for _ in range(ROUNDS):
            variation = base.family.variation(base.natural, labels)
            new = cut(base.with_variation(variation), settings, report)
            settled = not new.matches or (new.labels == labels).all()
            found, labels = replace(new, variation=variation), new.labels
            if settled:
                break
    return found.refined() if found.matches else found


def cut(problem: FusionProblem, settings: LinkageSettings, report: Report) -> Linked:
    """The merge path, cut where the evidence is highest."""
    path = penalty_path(problem, report)
    none = Linked(problem, settings, path, np.arange(problem.n, dtype=np.intp))
    if len(path.merges) == 0:
        return none
    if problem.n > len(problem.silos):
        different = _within_silos(problem, settings)
        evidence, likelihood = path_evidence(problem, path, different, settings)
        found = int(evidence.argmax()), different, likelihood[evidence.argmax()]
    else:
        evidence, found = _evidence_of_singles(problem, path, settings)
    steps, different, of_grid = found
    path = replace(path, evidence=evidence)
    gain = float(evidence[steps] - evidence[0])
    if steps == 0 or gain < settings.least_evidence:
        return replace(none, path=path, different=different)
    same = Same.of(different.centre, of_grid, noise_distance(problem))
    return Linked(problem, settings, path, path.labels(steps), different, same, gain=gain)


def _within_silos(problem: FusionProblem, settings: LinkageSettings) -> Different:
    """*Different*, from the pairs of each silo."""
    pairs = [
        pair_distances(problem, rows)[np.triu_indices(rows.stop - rows.start, k=1)]
        for rows in problem.silos
    ]
    independent = problem.n - len(problem.silos)
    return Different.of(log_distance(np.concatenate(pairs)), independent, settings.failed_fits)


def _evidence_of_singles(
    problem: FusionProblem, path: MergePath, settings: LinkageSettings
) -> tuple[FloatArray, tuple[int, Different, FloatArray]]:
    """Evidence of each cut where every silo has one component, and the best cut with its fit.

    No pair is known to differ. So the pairs of different clusters show, at each cut of at most
    `_MOST_SINGLES` clusters, what *different* looks like; for one cluster it is assumed.
    """
    x, noise = log_distance(pair_distances(problem)), noise_distance(problem)
    evidence = PartitionPrior(len(problem.silos)).along(problem.n, path.sizes)
    assumed = np.array([_assumed_distance(problem, x, settings.separation)])
    best = 0, Different.of(assumed, 1, settings.failed_fits), np.zeros(0)
    for steps in range(len(path.merges), max(problem.n - _MOST_SINGLES, 1) - 1, -1):
        labels = path.labels(steps)
        apart = np.triu(labels[:, None] != labels, k=1)
        pairs, size = x[apart] if apart.any() else assumed, int(labels.max()) + 1
        different = Different.of(pairs, max(size - 1, 1), settings.failed_fits)
        _, own, others = leave_one_out(problem, labels)
        ratio = noise_ratio(float(np.mean(own)) - different.centre)
        shift = farther(others, 1.0, ratio)
        odds = grid_log_odds(own, shift, different, settings.failed_fits)
        odds = (odds * (others / (others + 1.0))[:, None]).sum(axis=0)
        evidence[steps] += float(log_marginal(odds, different.centre, noise))
        if evidence[steps] > evidence[best[0]]:
            best = steps, different, odds
    return evidence, best


def _assumed_distance(problem: FusionProblem, x: FloatArray, separation: float) -> float:
    """Log-distance of two components that lie ``separation`` standard deviations apart."""
    first, second = np.triu_indices(problem.n, k=1)
    apart = problem.family.separation(problem.as_given[first], problem.as_given[second])
    per_square = x[first, second] - 2.0 * np.log(np.maximum(apart, 1e-12))
    return float(np.median(per_square)) + 2.0 * float(np.log(separation))


def path_evidence(
    problem: FusionProblem, path: MergePath, different: Different, settings: LinkageSettings
) -> tuple[FloatArray, FloatArray]:
    """Log-evidence of each cut, (m + 1,), and log-likelihood ratios at the grid, (m + 1, grid)."""
    rows, starts = _unions(problem.n, path.merges)
    group = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    weighted = problem.weights[rows, None] * problem.natural[rows]
    sums = np.add.reduceat(weighted, starts[:-1], axis=0)
    mass = np.add.reduceat(problem.weights[rows], starts[:-1])
    x = log_distance(to_others(problem, rows, group, sums, mass))
    y = np.clip(x - different.centre, -12.0, None)
    total, known = 0.0, 0  # of the members' log-distances at this step
    last = np.full(problem.n, np.nan)
    of_cluster: dict[int, FloatArray] = {}
    ratios: list[FloatArray] = []
    for step, (a, b) in enumerate(path.merges.tolist()):
        own = slice(starts[step], starts[step + 1])
        members, others = rows[own], own.stop - own.start - 1.0
        before = last[members]
        total += y[own].sum() - np.nansum(before)
        known += int(np.isnan(before).sum())
        last[members] = y[own]
        shift = farther(others, 1.0, noise_ratio(total / known))
        gained = grid_log_odds(x[own], shift, different, settings.failed_fits).sum(axis=0)
        gained *= others / (others + 1.0)
        change = gained - of_cluster.pop(a, 0.0) - of_cluster.pop(b, 0.0)
        of_cluster[a] = gained
        ratios.append(ratios[-1] + change if ratios else change)
    likelihood = np.vstack([np.zeros_like(ratios[0]), *ratios])
    prior = PartitionPrior(len(problem.silos)).along(problem.n, path.sizes)
    marginal = log_marginal(likelihood, different.centre, noise_distance(problem))
    return marginal + prior, likelihood


def noise_distance(problem: FusionProblem) -> float:
    """Log-distance of two estimates of one component that does not vary between silos.

    The symmetrised divergence of two estimates of ``k`` parameters is ``2 k`` on average; tempered
    posteriors state another certainty than they have.
    """
    family, given = problem.family, problem.as_given
    expected = np.log(max(0.5 * family.n_parameters(given).mean(), 0.5))
    if isinstance(family, Tempered):
        stated = np.log(family.effective_size(problem.natural) / family.effective_size(given))
        expected = expected + stated.mean()
    return float(expected)


def _unions(n: int, merges: IntArray) -> tuple[IntArray, IntArray]:
    """Members of the cluster that each merge makes, one after the other, and where each starts."""
    members: list[IntArray] = [np.array([i]) for i in range(n)]
    unions = []
    for a, b in merges.tolist():
        members[a] = np.concatenate([members[a], members[b]])
        unions.append(members[a])
    return np.concatenate(unions), np.concatenate([[0], np.cumsum([len(u) for u in unions])])


def at_labels(problem: FusionProblem, settings: LinkageSettings, labels: IntArray) -> Linked:
    """The model given a matching: *same* is learned from its clusters, and nothing is searched."""
    noise, size = noise_distance(problem), int(labels.max()) + 1
    if problem.n > len(problem.silos):
        different = _within_silos(problem, settings)
    else:
        x, apart = log_distance(pair_distances(problem)), labels[:, None] != labels
        assumed = np.array([_assumed_distance(problem, x, settings.separation)])
        pairs = x[np.triu(apart, k=1)] if size > 1 else assumed
        different = Different.of(pairs, max(size - 1, 1), settings.failed_fits)
    before = Same.of(different.centre, np.zeros(1), noise)
    path = MergePath.of_merges(problem.n, np.empty((0, 2), dtype=np.intp), np.empty(0))
    found = Linked(problem, settings, path, labels, different, before)
    for _ in range(2 if size < problem.n else 0):  # the shift of larger clusters depends on it
        found = replace(found, same=found._learned())
    return found
