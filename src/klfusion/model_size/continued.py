"""The clusters of a matching merged further, as components vary more than it was found under.

Without variation between silos some global components are several clusters. Their members differ
too little for a first estimate of the variation, and a second path would serve to merge these few
clusters alone. So the path goes on from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from klfusion._utils.arrays import IntArray, merge_saving
from klfusion._utils.running import Report
from klfusion.merging.agglomeration import AllPairs, PenaltyPricing, agglomerate
from klfusion.model_size.evidence import LinkageSettings, path_evidence, within_silos
from klfusion.model_size.linked import Linked
from klfusion.objective.clusters import Clusters, shared_silos
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import MergePath


def settled_ahead(
    base: FusionProblem,
    found: Linked,
    settings: LinkageSettings,
    report: Report,
    cut: Callable[[FusionProblem, LinkageSettings, Report], Linked],
) -> Linked | None:
    """The cut under the variation of clusters merged further, if it is into these clusters.

    None if the ``cut`` is another, if nothing merges, or if more might: then the variation is found
    round by round.
    """
    if not found.matches or found.of_all or base.n == len(base.silos):
        return None
    if _meet(base, found.labels):
        return None
    first = base.with_variation(base.varying.variation(found.labels))
    labels = merged_further(first, found.labels, settings, report)
    if not _meet(base, labels):
        return None
    variation = base.varying.variation(labels)
    new = cut(base.with_variation(variation), settings, report)
    return replace(new, variation=variation) if (new.labels == labels).all() else None


def _meet(problem: FusionProblem, labels: IntArray) -> bool:
    """Whether every two clusters share a silo, so that none may merge."""
    holds = np.zeros((int(labels.max()) + 1, int(problem.silo.max()) + 1))
    holds[labels, problem.silo] = 1.0
    return bool(shared_silos(holds, holds).all())


def merged_further(
    problem: FusionProblem, labels: IntArray, settings: LinkageSettings, report: Report
) -> IntArray:
    """The labels of highest evidence on the path that begins with the clusters of these."""
    state = Clusters(problem, labels)
    first, own = np.unique(state.labels, return_index=True)[1], state.labels.copy()
    a, b = np.triu_indices(state.size, k=1)
    prices = np.full((state.size, state.size), np.inf)
    of_pairs = state.merge_increases(a, b) / merge_saving(state.counts[a], state.counts[b])
    prices[a, b] = prices[b, a] = of_pairs
    holds = state.occupied()
    prices[shared_silos(holds, holds) > 0] = np.inf
    candidates = AllPairs(state, prices, PenaltyPricing(state))
    made = [(m.a, m.b) for m in agglomerate(candidates, problem.n, report)]
    before = [pair for g in range(len(first)) for pair in _built(np.flatnonzero(own == g))]
    merges = np.array(before + [(first[g], first[h]) for g, h in made], dtype=np.intp)
    path = MergePath.of_merges(problem.n, merges.reshape(-1, 2), np.zeros(len(merges)))
    different = within_silos(problem, settings, int(own.max()) + 1)
    evidence = path_evidence(problem, path, different, settings)[0]
    return path.labels(len(before) + int(evidence[len(before) :].argmax()))


def _built(members: IntArray) -> list[tuple[int, int]]:
    """Merges of the members of a cluster, halves with halves: few unions are large."""
    if len(members) < 2:
        return []
    low, high = members[: len(members) // 2], members[len(members) // 2 :]
    return [*_built(low), *_built(high), (int(low[0]), int(high[0]))]
