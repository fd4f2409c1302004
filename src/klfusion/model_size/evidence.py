"""Log-evidence of every cut of the merge path, with the parameters of *same* integrated out.

See `linkage` for the model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.special import logsumexp

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.families import Tempered
from klfusion.model_size.densities import (
    Different,
    Same,
    farther,
    grid_log_odds,
    grouped_log_odds,
    log_distance,
    log_marginal,
    noise_ratio,
)
from klfusion.model_size.distances import pair_distances, to_others, within_each
from klfusion.model_size.log_f import LOWEST
from klfusion.model_size.partitions import PartitionPrior
from klfusion.objective.clusters import Clusters
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import MergePath

_MOST_SINGLES = 40  # clusters, at most, of silos with one component each


@dataclass(frozen=True)
class LinkageSettings:
    """The numbers of the model, as `kf.Auto` has them."""

    failed_fits: float = 0.05  # share of local components that describe no component
    separation: float = 5.0  # standard deviations between different components


@dataclass(frozen=True, eq=False)
class LogOdds:
    """Log-likelihood ratio of *same* against *different*."""

    same: Same
    different: Different
    outliers: float

    def __call__(
        self,
        distance: FloatArray,
        n_a: FloatArray | float,
        n_b: FloatArray | float,
        if_different: FloatArray | None = None,
    ) -> FloatArray:
        """Of clusters of so many members; their distance ``if_different`` may be another."""
        x, shift = log_distance(distance), farther(n_a, n_b, self.same.ratio)
        other = x if if_different is None else log_distance(if_different)
        return self.same.log_odds(x, other, shift, self.different, self.outliers)

    def without_outliers(
        self, distance: FloatArray, n_a: FloatArray | float, n_b: FloatArray | float
    ) -> FloatArray:
        """The same, where an outlier of a cluster is none of it."""
        return self.same.log_density(log_distance(distance)) - self.log_different(
            distance, n_a, n_b
        )

    def log_different(
        self, distance: FloatArray, n_a: FloatArray | float, n_b: FloatArray | float
    ) -> FloatArray:
        """Log-density under *different* of clusters of so many members."""
        shift = farther(n_a, n_b, self.same.ratio)
        return self.different.log_density(log_distance(distance) - shift)


def leave_one_out(
    problem: FusionProblem, labels: IntArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Rows in clusters of two or more, log-distances to their others, and the others' number."""
    clusters = Clusters(problem, labels)
    others: FloatArray = np.asarray(clusters.counts[clusters.labels] - 1, dtype=np.float64)
    rows = np.flatnonzero(others > 0)
    found = to_others(problem, rows, clusters.labels[rows], clusters.sums, clusters.mass)
    return rows, log_distance(found), others[rows]


def within_silos(problem: FusionProblem, settings: LinkageSettings, size: int) -> Different:
    """*Different*, from the pairs of each silo; they repeat those of ``size`` global components."""
    pairs, weights = pairs_within(problem)
    return different_of(problem, pairs, n_independent(problem, size), settings, weights)


def pairs_within(problem: FusionProblem) -> tuple[FloatArray, FloatArray]:
    """Log-distances of all pairs of components of one silo, and their weights, (m,).

    All silos count alike, whatever their number of components: one silo of many components does not
    say for all what *different* looks like.
    """
    starts = np.array([rows.start for rows in problem.silos])
    sizes, pairs, weights = np.diff(starts, append=problem.n), list[FloatArray](), []
    for size in np.unique(sizes[sizes > 1]):  # silos of one size at once
        rows = starts[sizes == size, None] + np.arange(size)
        a, b = np.triu_indices(size, k=1)
        found = [distances[:, a, b].ravel() for distances in within_each(problem, rows)]
        pairs += found
        weights += [np.full(len(own), 1.0 / len(a)) for own in found]
    return log_distance(np.concatenate(pairs)), np.concatenate(weights)


def n_independent(problem: FusionProblem, size: int) -> float:
    """Independent differences that the pairs of all silos are worth.

    A silo of ``n`` components has ``n - 1``. An average over silos that count alike is as certain
    as one over their number times the harmonic mean of these. But ``size`` global components have
    no more differences than pairs, however many silos repeat them.
    """
    own = np.diff([rows.start for rows in problem.silos], append=problem.n) - 1.0
    own = own[own > 0]
    return min(float(len(own) ** 2 / (1.0 / own).sum()), max(0.5 * size * (size - 1.0), 1.0))


def different_of(
    problem: FusionProblem,
    pairs: FloatArray,
    independent: float,
    settings: LinkageSettings,
    weights: FloatArray | None = None,
) -> Different:
    """*Different*, from log-distances of pairs that count as so many ``independent`` ones."""
    n_parameters = float(problem.n_parameters.mean())
    return Different.of(pairs, independent, settings.failed_fits, n_parameters, weights)


def gain_of_none(
    problem: FusionProblem,
    labels: IntArray,
    within: Different,
    settings: LinkageSettings,
    size: int,
) -> float:
    """Log-likelihood that nothing shared gains over a matching from its own *different*.

    If nothing is shared, all pairs differ, not only those ``within`` silos. Few of the latter
    say little of how near different components may lie. Again all silos count alike.
    """
    first, second = np.triu_indices(problem.n, k=1)
    each = 1.0 / np.bincount(problem.silo)[problem.silo]
    every = log_distance(pair_distances(problem)[first, second])
    independent, weights = n_independent(problem, size), each[first] * each[second]
    with_others = independent + len(problem.silos) - 1.0
    of_all = different_of(problem, every, with_others, settings, weights)
    own, weights = pairs_within(problem)
    lost = np.average(within.log_density(own) - of_all.log_density(own), weights=weights)
    _, matched, others = leave_one_out(problem, labels)
    matched = matched - farther(others, 1.0, noise_ratio(float(matched.mean()) - within.centre))
    gained = (of_all.log_density(matched) - within.log_density(matched)) * others / (others + 1.0)
    return float(gained.sum() - lost * independent)


def log_odds_shared(evidence: FloatArray) -> float:
    """Log-odds that anything is shared, from the evidence of 0, 1, ... merges."""
    return float(logsumexp(evidence[1:]) - evidence[0])


def evidence_of(
    problem: FusionProblem,
    labels: IntArray,
    different: Different,
    settings: LinkageSettings,
    nearest: float,
) -> float:
    """Log-evidence of a matching, with the parameters of *same* integrated out."""
    _, x, others = leave_one_out(problem, labels)
    noise, relative = noise_distance(problem), np.maximum(x - different.centre, LOWEST)
    shift = farther(others, 1.0, noise_ratio(float(relative.mean())))
    odds = grid_log_odds(x, shift, different, settings.failed_fits, noise, nearest)
    total = others / (others + 1.0) @ odds
    prior = PartitionPrior(len(problem.silos)).of_sizes(np.bincount(labels))
    return float(log_marginal(total, different.centre, noise, nearest)) + prior


def path_evidence(
    problem: FusionProblem, path: MergePath, different: Different, settings: LinkageSettings
) -> tuple[FloatArray, FloatArray, float]:
    """Log-evidence of each cut, (m + 1,), log-likelihood ratios at the grid, (m + 1, grid).

    The last is the log-distance of the nearest components.
    """
    rows, starts = _unions(problem.n, path.merges)
    group = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    weights = problem.weights[rows]
    adding = csr_array((weights, rows, starts), shape=(len(starts) - 1, problem.n))
    sums, mass = np.asarray(adding @ problem.natural), np.add.reduceat(weights, starts[:-1])
    x = log_distance(to_others(problem, rows, group, sums, mass))
    before = _made_by(path.merges)
    relative = np.maximum(x - different.centre, LOWEST)
    total = _along(np.add.reduceat(relative, starts[:-1]), before)
    others = np.diff(starts) - 1.0
    clustered = _along(others + 1.0, before)
    shift = farther(others, 1.0, noise_ratio(total / clustered))
    noise, nearest = noise_distance(problem), float(x.min())
    odds = different, settings.failed_fits, noise, nearest
    gained = grouped_log_odds(x, shift[group], group, *odds)
    gained *= (others / (others + 1.0))[:, None]
    likelihood = np.vstack([np.zeros(gained.shape[1]), _along(gained, before)])
    prior = PartitionPrior(len(problem.silos)).along(problem.n, path.sizes)
    marginal = log_marginal(likelihood, different.centre, noise, nearest)
    return marginal + prior, likelihood, nearest


def _unions(n: int, merges: IntArray) -> tuple[IntArray, IntArray]:
    """Members of the cluster that each merge makes, one after the other, and where each starts."""
    members: list[IntArray] = [np.array([i]) for i in range(n)]
    unions = []
    for a, b in merges.tolist():
        members[a] = np.concatenate([members[a], members[b]])
        unions.append(members[a])
    return np.concatenate(unions), np.concatenate([[0], np.cumsum([len(u) for u in unions])])


def _made_by(merges: IntArray) -> IntArray:
    """The earlier merges that made the two clusters of each merge, (m, 2); -1 for none."""
    last: dict[int, int] = {}
    made = np.full(merges.shape, -1)
    for step, (a, b) in enumerate(merges.tolist()):
        made[step] = last.pop(a, -1), last.pop(b, -1)
        last[a] = step
    return made


def _along(of_union: FloatArray, before: IntArray) -> FloatArray:
    """Sums over the clusters after each merge, from the values of the cluster that each makes."""
    padded = np.concatenate([of_union, np.zeros_like(of_union[:1])])
    change = of_union - padded[before[:, 0]] - padded[before[:, 1]]
    return np.asarray(np.cumsum(change, axis=0))


def evidence_of_singles(
    problem: FusionProblem, path: MergePath, settings: LinkageSettings
) -> tuple[FloatArray, tuple[int, Different, FloatArray], float]:
    """Evidence of each cut where every silo has one component, and the best cut with its fit.

    The last is the log-distance of the nearest components.

    No pair is known to differ. So the pairs of different clusters show, at each cut of at most
    `_MOST_SINGLES` clusters, what *different* looks like; for one cluster it is assumed.
    """
    x, noise = log_distance(pair_distances(problem)), noise_distance(problem)
    nearest = float(x[np.triu_indices(problem.n, k=1)].min())
    evidence = PartitionPrior(len(problem.silos)).along(problem.n, path.sizes)
    assumed = np.array([assumed_distance(problem, x, settings.separation)])
    best = 0, different_of(problem, assumed, 1.0, settings), np.zeros(0)
    for steps in range(len(path.merges), max(problem.n - _MOST_SINGLES, 1) - 1, -1):
        labels = path.labels(steps)
        apart = np.triu(labels[:, None] != labels, k=1)
        pairs, size = x[apart] if apart.any() else assumed, int(labels.max()) + 1
        different = different_of(problem, pairs, max(size - 1.0, 1.0), settings)
        _, own, others = leave_one_out(problem, labels)
        ratio = noise_ratio(float(np.mean(own)) - different.centre)
        shift = farther(others, 1.0, ratio)
        odds = grid_log_odds(own, shift, different, settings.failed_fits, noise, nearest)
        odds = (odds * (others / (others + 1.0))[:, None]).sum(axis=0)
        evidence[steps] += float(log_marginal(odds, different.centre, noise, nearest))
        if evidence[steps] > evidence[best[0]]:
            best = steps, different, odds
    return evidence, best, nearest


def assumed_distance(problem: FusionProblem, x: FloatArray, separation: float) -> float:
    """Log-distance of two components that lie ``separation`` standard deviations apart."""
    first, second = np.triu_indices(problem.n, k=1)
    apart = problem.family.separation(problem.as_given[first], problem.as_given[second])
    per_square = x[first, second] - 2.0 * np.log(np.maximum(apart, 1e-12))
    return float(np.median(per_square)) + 2.0 * float(np.log(separation))


def noise_distance(problem: FusionProblem) -> float:
    """Log-distance of two estimates of one component that does not vary between silos.

    The symmetrised divergence of two estimates of ``k`` parameters is ``2 k`` on average; tempered
    posteriors state another certainty than they have.
    """
    family, given = problem.family, problem.as_given
    expected = np.log(max(0.5 * problem.n_parameters.mean(), 0.5))
    if isinstance(family, Tempered):
        stated = np.log(family.effective_size(problem.natural) / family.effective_size(given))
        expected = expected + stated.mean()
    return float(expected)
