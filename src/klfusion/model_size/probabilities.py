"""Probabilities under the model: of every place a component may have, and that two are the same.

Given all other silos, the assignments of a silo's components have probabilities proportional to
``exp(sum_k s_k,a(k))``, with ``s`` the log-odds of joining a cluster against being alone, and no
cluster twice. Their marginals follow from belief propagation on the silo and the clusters, which is
exact for one component and close for several (Huang and Jebara 2009).
"""

from dataclasses import replace

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.model_size.linkage import Linked
from klfusion.objective.clusters import Clusters

_PASSES = 30  # of messages; they settle in a few where silos are small


def memberships(linked: Linked) -> FloatArray:
    """Probability that each component is of each cluster, or alone, given the others, (n, G + 1)."""
    clusters = Clusters(linked.problem, linked.labels)
    out = np.zeros((linked.problem.n, clusters.size + 1))
    for rows in linked.problem.silos:
        labels = clusters.labels[rows].copy()
        clusters.take_out(rows)
        out[rows] = _marginals(linked.scores(clusters, rows))
        clusters.put_in(rows, labels)
    return out


def _marginals(scores: FloatArray) -> FloatArray:
    """Marginals of assignments with such log-odds (L, G) against none, (L, G + 1)."""
    odds = np.exp(np.minimum(scores, 50.0))
    free = np.ones_like(odds)  # messages of clusters: that no other component takes them
    for _ in range(_PASSES if len(odds) > 1 else 1):
        weighted = odds * free
        asked = odds / (1.0 + weighted.sum(axis=1, keepdims=True) - weighted)
        free = 1.0 / (1.0 + asked.sum(axis=0) - asked)
    weighted = np.hstack([odds * free, np.ones((len(odds), 1))])
    return np.asarray(weighted / weighted.sum(axis=1, keepdims=True))
