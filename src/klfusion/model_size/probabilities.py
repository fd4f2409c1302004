"""Probabilities under the model: of every place a component may have, and that two are the same.

Given all other silos, the assignments of a silo's components have probabilities proportional to
``exp(sum_k s_k,a(k))``, with ``s`` the log-odds of joining a cluster against being alone, and no
cluster twice. Belief propagation between the silo and the clusters gives their marginals: exact
for one component, close for several (Huang and Jebara 2009).

The evidence multiplies densities as if distances were independent, which those of one silo are not.
So log-odds are tempered, as a power of the likelihood, before they become probabilities.
"""

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray, relabel
from klfusion.model_size.distances import centre_distances
from klfusion.model_size.linked import MOST_PAIRS, Linked, at_labels
from klfusion.model_size.matchings import others
from klfusion.model_size.partitions import PartitionPrior
from klfusion.model_size.places import SomeSilos
from klfusion.objective.clusters import Clusters

_POWER = 0.5  # of odds: `experiments probabilities` has frequencies beside tempered probabilities
_PASSES = 30  # of messages, at most; they settle in a few where silos are small
_CERTAIN = 50.0  # nats; more is certainty, and may overflow
_TINY = float(np.exp(-_CERTAIN))


def memberships(linked: Linked) -> FloatArray:
    """Probability that each component is of each cluster, given the other silos, (n, G + 1).

    The last column is for none of the others: a component that is its own cluster is there.
    """
    clusters = Clusters(linked.problem, linked.labels)
    out = np.zeros((linked.problem.n, clusters.size + 1))
    for some in linked.places.of_all(clusters):
        scores = _POWER * _log_odds(linked, clusters, some)
        sizes = np.bincount(some.silo)
        starts = some.rows.start + np.cumsum(sizes) - sizes
        for size in np.unique(sizes):  # silos of one size at once
            rows = starts[sizes == size, None] + np.arange(size)
            out[rows] = marginals(scores[rows - some.rows.start])
    return out


def _log_odds(linked: Linked, clusters: Clusters, some: SomeSilos) -> FloatArray:
    """Log-odds of joining each cluster of other silos' members against being alone, (m, G).

    The prior of each is given that the others of the silo are where their labels say. Where a
    component by itself would join several others, both its distance and all members must say so.
    """
    labels = clusters.labels[some.rows]
    free = (clusters.counts[labels] == 1)[:, None] & (clusters.counts > 1)
    row, g = np.nonzero(free & ~some.holds[some.silo] & (some.odds > -_CERTAIN))
    odds = some.odds.copy()
    odds[row, g] = np.minimum(odds[row, g], _of_unions(linked, clusters, labels[row], g))
    return odds + _prior_odds(linked.prior, clusters, some)


def _of_unions(linked: Linked, clusters: Clusters, a: IntArray, b: IntArray) -> FloatArray:
    """Log-likelihood ratios of one cluster against two, by all members, (m,)."""
    out = np.empty(len(a))
    for some in np.split(np.arange(len(a)), np.arange(MOST_PAIRS, len(a), MOST_PAIRS)):
        if len(some):
            out[some] = linked.union_gains(clusters, a[some], b[some])
    return out


def _prior_odds(prior: PartitionPrior, clusters: Clusters, some: SomeSilos) -> FloatArray:
    """Log-prior odds of each place of some components against being alone, (m, G).

    A component in a place takes it from one of its silo.
    """
    sizes, labels = clusters.counts.astype(np.float64), clusters.labels[some.rows]
    m, n_places = some.odds.shape
    left = np.repeat(sizes[labels], n_places)  # by a component that goes to each place
    old = np.stack([left, np.tile(sizes, m)], axis=1)
    new = np.stack([left - 1.0, (sizes - some.holds + 1.0)[some.silo].ravel()], axis=1)
    stays = np.arange(m) * n_places + labels
    old[stays, 1], new[stays, 0], new[stays, 1] = 0.0, sizes[labels], 0.0
    there = prior.changed(sizes, old, new).reshape(m, n_places)
    own = sizes[labels, None]
    alone = prior.changed(sizes, own, np.hstack([own - 1.0, np.ones_like(own)]))
    return np.asarray(there - alone[:, None])


def own_probabilities(linked: Linked) -> FloatArray:
    """Probability that each component is where it is, (n,).

    In a cluster of two it is the probability that both are the same, see `same`.
    """
    if linked.different is None:  # nothing can match
        return np.ones(linked.problem.n)
    if linked.same is None:  # nothing does
        linked = at_labels(linked.problem, linked.settings, linked.labels)
    there, counts = memberships(linked), np.bincount(linked.labels)[linked.labels]
    stays = _stays(linked, there)
    pairs = np.flatnonzero(counts == 2)
    first, second = pairs[np.argsort(linked.labels[pairs], kind="stable")].reshape(-1, 2).T
    stays[first] = stays[second] = _both(stays, there[:, -1], first, second)
    return stays


def _stays(linked: Linked, there: FloatArray) -> FloatArray:
    """Probability that each component is where it is, given the other silos, (n,)."""
    alone = np.bincount(linked.labels)[linked.labels] == 1
    column = np.where(alone, there.shape[1] - 1, linked.labels)
    return np.asarray(there[np.arange(len(there)), column])


def _both(stays: FloatArray, alone: FloatArray, a: IntArray, b: IntArray) -> FloatArray:
    """Probability that two which are a cluster are the same.

    It is one event. It ends if one of them moves elsewhere, or if both are alone; the latter is
    one event as well.
    """
    elsewhere = 1.0 / np.maximum(stays, _TINY) - 1.0
    apart = alone / np.maximum(stays, _TINY)
    return np.asarray(1.0 / (1.0 + elsewhere[a] + elsewhere[b] - np.minimum(apart[a], apart[b])))


def undone(labels: IntArray, probability: FloatArray, share: float) -> tuple[IntArray, FloatArray]:
    """Undo the least probable matches until at most a ``share`` of the rest is expected false.

    Labels and probabilities; a component whose match is undone is by itself.
    """
    new, certain = labels.copy(), probability.copy()
    matched = np.bincount(labels)[labels] > 1
    order = np.flatnonzero(matched)[np.argsort(-probability[matched], kind="stable")]
    false = np.cumsum(1.0 - probability[order]) / np.arange(1, len(order) + 1)
    apart = order[false > share]
    new[apart] = int(labels.max()) + 1 + np.arange(len(apart))
    left = matched & (np.bincount(new)[new] == 1)  # the other of a pair is alone as well
    certain[left] = 1.0 - probability[left]
    return relabel(new), certain


def marginals(scores: FloatArray) -> FloatArray:
    """Marginals of assignments with such log-odds (..., L, G) against none, (..., L, G + 1)."""
    odds = np.exp(np.clip(scores, -2.0 * _CERTAIN, _CERTAIN))
    several = odds.reshape(-1, *odds.shape[-2:])
    free = np.ones_like(several)  # messages of clusters: that no other component takes them
    moving = np.arange(len(several))
    for _ in range(_PASSES if scores.shape[-2] > 1 else 0):
        own, before = several[moving], free[moving]
        free[moving] = after = 1.0 / (
            1.0 + others(own / (1.0 + others(own * before, axis=2)), axis=1)
        )
        moving = moving[np.abs(after - before).max(axis=(1, 2), initial=0.0) >= 1e-6]
        if len(moving) == 0:
            break
    weighted = odds * free.reshape(odds.shape)
    weighted = np.concatenate([weighted, np.ones((*weighted.shape[:-1], 1))], axis=-1)
    return np.asarray(weighted / weighted.sum(axis=-1, keepdims=True))


def same(linked: Linked) -> FloatArray:
    """Probability that two components are the same, (n, n): 1 with itself, 0 within a silo.

    Two components of one cluster are the same if both stay there; of two clusters, if one moves
    to the other's, or if the clusters are one. What a component joins must stay.
    """
    labels, silo = linked.labels, linked.problem.silo
    counts = np.bincount(labels)[labels]
    there, every = memberships(linked), np.arange(linked.problem.n)
    stays = _stays(linked, there)
    moves = there[:, labels] * np.where(counts > 2, stays, 1.0)  # a smaller rest is the other one
    apart = 1.0 - (1.0 - moves) * (1.0 - moves.T) * (1.0 - _merged(linked)[labels][:, labels])
    single = (counts == 1)[:, None] & (counts == 1)  # either move is the same event
    apart = np.where(single, np.maximum(moves, moves.T), apart)
    pair = _both(stays, there[:, -1], every[:, None], every)
    matched = np.where(counts > 2, stays[:, None] * stays, pair)
    out = np.where(labels[:, None] == labels, matched, apart)
    out[silo[:, None] == silo] = 0.0
    np.fill_diagonal(out, 1.0)
    return np.asarray(out)


def _merged(linked: Linked) -> FloatArray:
    """Probability that two clusters of several components are one, (G, G).

    As in `Linked.merged`, both their centres and all their members must say so.
    """
    clusters = Clusters(linked.problem, linked.labels)
    holds = clusters.occupied().astype(np.float64)
    several = clusters.counts > 1
    a, b = np.nonzero(np.triu((holds @ holds.T == 0.0) & several[:, None] & several))
    out = np.zeros((clusters.size, clusters.size))
    if len(a):
        sizes = np.stack([clusters.counts[a], clusters.counts[b]], axis=1).astype(np.float64)
        after = linked.prior.changed(clusters.counts, sizes, sizes.sum(axis=1, keepdims=True))
        odds = linked.log_odds(centre_distances(clusters)[a, b], *sizes.T)
        near = np.flatnonzero(odds > -_CERTAIN)
        odds[near] = np.minimum(odds[near], _of_unions(linked, clusters, a[near], b[near]))
        odds += after - linked.prior.of_sizes(clusters.counts)
        out[a, b] = 1.0 / (1.0 + np.exp(-np.clip(_POWER * odds, -_CERTAIN, _CERTAIN)))
    return out + out.T
