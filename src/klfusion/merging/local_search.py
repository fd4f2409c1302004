"""Local search on the binary objective: move a silo, merge two clusters, dissolve one.

Alternating assignments and averages gets stuck: a cluster's centre contains each of its members and
attracts it back. Here a silo is removed from the sums before it is assigned again. So its block is
optimal for the joint problem over plans *and* centres, still by one LAP.
"""

import numpy as np

from klfusion._utils.arrays import IntArray, joining, merge_saving, penalties
from klfusion._utils.running import Descent, descend
from klfusion.assignment.binary import assign_silo
from klfusion.objective.clusters import Clusters, nearest_pairs, shared_silos
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Search


def refine(
    problem: FusionProblem,
    labels: IntArray,
    penalty: float,
    search: Search,
    *,
    fixed_size: bool = False,
    opens: bool = True,
) -> Descent[IntArray]:
    """Descend on ``sum of Jensen gaps + penalty * sum_g sqrt(n_g)`` until no move helps.

    The start, ``labels``, (n,), has at most one component of a silo in each cluster. With
    ``fixed_size`` no cluster is opened, merged or dissolved. Unless it ``opens`` clusters, their
    number can only fall. A sweep over the silos is one iteration.
    """
    clusters = Clusters(problem, labels)

    def sweep(labels: IntArray) -> tuple[IntArray, float]:
        del labels  # those of the clusters
        for rows in problem.silos:
            _move_silo(clusters, rows, penalty, opens and not fixed_size)
        if not fixed_size:
            _merge(clusters, penalty)
            _dissolve(clusters, penalty)
        clusters.compact()
        return clusters.labels.copy(), clusters.objective(penalty)

    return descend(
        sweep, clusters.labels.copy(), clusters.objective(penalty),
        tol=search.tol, max_iter=search.max_iter, stage="refining", report=search.report,
    )  # fmt: skip


def _move_silo(
    clusters: Clusters,
    rows: slice,
    penalty: float,
    opens: bool,
    forbidden: int | None = None,
) -> None:
    """Give one silo its best block, the others fixed; keep the old one if it is as good."""
    old, before = clusters.labels[rows].copy(), clusters.objective(penalty)
    clusters.take_out(rows)
    costs = clusters.increases(rows)
    costs += joining(clusters.counts, penalty)
    closed = (clusters.counts == 0) & opens  # a new cluster takes the place of an empty one
    if forbidden is not None:
        closed[forbidden] = True
    new = assign_silo(costs, penalty if opens else np.inf, closed)
    opened = new < 0
    empty = np.flatnonzero(clusters.counts == 0)[: opened.sum()]  # their numbers, then new ones
    new[opened] = [*empty, *(clusters.size + np.arange(opened.sum() - len(empty)))]
    clusters.put_in(rows, new)
    # Increases of large problems are approximate: the move must lower the objective itself.
    if forbidden is None and (new != old).any() and clusters.objective(penalty) >= before:
        clusters.take_out(rows)
        clusters.put_in(rows, old)


def _merge(clusters: Clusters, penalty: float) -> None:
    """Merge the pair of near clusters without a common silo that gains most, while any does."""
    while True:
        used = np.flatnonzero(clusters.counts)
        occupied = clusters.occupied()[used]
        apart = shared_silos(occupied, occupied) == 0
        if not apart.any():
            return
        a, b = (used[own] for own in nearest_pairs(clusters.divergences(used), apart))
        if len(a) == 0:
            return
        increase = clusters.merge_increases(a, b)
        gain = penalty * merge_saving(clusters.counts[a], clusters.counts[b]) - increase
        best = int(gain.argmax())
        if gain[best] <= 0:
            return
        clusters.merge(int(a[best]), int(b[best]), float(increase[best]))


def _dissolve(clusters: Clusters, penalty: float) -> None:
    """Empty a cluster into the others wherever that lowers the objective."""
    for g in _dissolve_candidates(clusters, penalty):
        members = np.flatnonzero(clusters.labels == g)
        if len(members) == 0:
            continue
        old, before = clusters.labels.copy(), clusters.objective(penalty)
        for j in np.unique(clusters.problem.silo[members]):
            _move_silo(clusters, clusters.problem.silos[j], penalty, True, forbidden=g)
        if clusters.objective(penalty) >= before:
            clusters.assign(old, clusters.size)


def _dissolve_candidates(clusters: Clusters, penalty: float) -> IntArray:
    """Clusters whose members cost less elsewhere, by estimate; the largest gain first."""
    problem = clusters.problem
    used = np.flatnonzero(clusters.counts)
    if len(used) < 2:
        return used[:0]
    shrink = clusters.mass[used] / (clusters.mass[used] + problem.weights[:, None])
    costs = problem.costs(clusters.centres_of(used)) * shrink
    costs += joining(clusters.counts[used], penalty)
    costs[clusters.occupied()[used][:, problem.silo].T] = np.inf
    detour = np.bincount(clusters.labels, weights=costs.min(axis=1), minlength=clusters.size)
    gain = clusters.gaps() + penalties(clusters.counts, penalty) - detour
    candidates = np.flatnonzero((gain > 0) & (clusters.counts > 0))
    return candidates[np.argsort(-gain[candidates], kind="stable")]
