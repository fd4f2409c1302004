"""The default for very many silos: the path on a sample of them, and sweeps over all.

The path compares all pairs, which is quadratic. So it is computed for the components of a random
sample of silos. Its penalty holds for all: it is the price of opening a global component, whatever
the number of silos. Then every silo is assigned to the sample's global components. Components that
are too far from every global component are collected, and a new sample of them is clustered. This
repeats until no new global component is found. A sample of the result is then revised as
`klfusion.model_size.revision` does: mixed components are left out, and outliers join their cluster.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from klfusion._utils.arrays import BoolArray, IntArray, relabel, total_penalty
from klfusion.many_silos.sweep import Centres, ClusterSums, bound, descend, merge_centres
from klfusion.merging.agglomeration import penalty_path
from klfusion.model_size.revision import MemberDistribution, find_mixed
from klfusion.objective.batches import SelectedRows, SiloStore
from klfusion.objective.clusters import Clusters
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, Search, Status

_MAX_SAMPLES = 8  # of components that no global component explains
_REVISED = 4  # times the sample: components that are revised
_TOL = 1e-7  # relative fall of the objective below which no further sweep is made
_SWEEPS = 5  # between two searches for global components to merge
_MOST_SINGLE = 5_000  # components with a column of their own in the bound


def fuse_many(
    store: SiloStore,
    on_sample: Callable[[FusionProblem], Matching],
    search: Search,
    *,
    most: int,
    revise: bool,
) -> Matching:
    """Match the components of very many silos.

    The method ``on_sample`` gives labels and penalty of a sample of ``most`` components. If the
    size is known, the model has the sample's global components. With ``revise``, mixed components
    are left out and outliers merged. The path is that of the sample.
    """
    sample = store.take(store.first_silos(search.rng.permutation(store.n_silos), most))
    found = on_sample(sample)
    penalty = found.penalty
    centres = Centres.of_labels(sample, found.labels, len(sample.silos) / store.n_silos)
    if search.n_components is not None:
        none = np.zeros(store.n, dtype=bool)
        return _settled(store, centres, none, none, found, None, search)
    sums = _all_found(store, centres, penalty, most, search)
    centres, _ = merge_centres(sums, store.batches.family, penalty, store.n_silos)
    if revise:
        revised = _revised(store, centres, penalty, most, search.rng)
    else:
        revised = _Revised(centres, np.zeros(len(centres.counts), dtype=bool), penalty)
    labels = revised.centres.sweep(store.batches, penalty, revised.new).all_labels
    mixed = (labels >= 0) & revised.mixed[labels]
    keeps_none = np.logical_and.reduceat(mixed, store.starts)[store.silo]
    single, left_out = (labels < 0) | (mixed & keeps_none), mixed & ~keeps_none
    return _settled(store, revised.centres, single, left_out, found, revised.members, search)


def _all_found(
    store: SiloStore, centres: Centres, penalty: float, most: int, search: Search
) -> ClusterSums:
    """Assign all; cluster samples of the components that joined none, while that finds clusters."""
    for number in range(_MAX_SAMPLES):
        search.report("sweeping", number + 1, None)
        sums = centres.sweep(store.batches, penalty, penalty).compact()
        single = np.flatnonzero(sums.all_labels < 0)
        problem = store.take(np.sort(search.rng.permutation(single)[: most // 2]))
        if problem.n < 2:
            break
        path = penalty_path(problem, search.report, penalty)
        labels = path.labels(len(path.merges))
        new = Centres.of_labels(problem, labels, problem.n / len(single))
        several = np.bincount(labels) > 1
        if not several.any():
            break
        centres = Centres.of_sums(sums).joined(new.some(several))
    return sums


@dataclass(frozen=True, eq=False)
class _Revised:
    """Global components after a revision."""

    centres: Centres
    mixed: BoolArray  # which of them are mixed, (G,)
    new: float  # price of joining none; a component that costs less is an outlier of a global one
    members: MemberDistribution | None = None


def _revised(
    store: SiloStore, centres: Centres, penalty: float, most: int, rng: np.random.Generator
) -> _Revised:
    """Find mixed components and fit the distribution of members, on whole silos."""
    sums = centres.sweep(store.batches, penalty, penalty).compact()
    centres, labels = Centres.of_sums(sums), sums.all_labels
    size = len(centres.counts)
    rows = _rare_and_random(store, labels, sums.counts, _REVISED * most, rng)
    problem, labels = store.take(rows), labels[rows]
    single = np.flatnonzero(labels < 0)
    labels[single] = size + np.arange(len(single))
    members = MemberDistribution.of(Clusters(problem, relabel(labels)))
    found = find_mixed(problem, relabel(labels))
    mixed = np.zeros(size, dtype=bool)
    mixed[labels[found & (labels < size)]] = True
    # A mixed component that joined none becomes a global component, so that it can be left out.
    alone = np.flatnonzero(found & (labels >= size))
    return _Revised(
        centres.joined(Centres(problem.natural[alone], np.ones(len(alone)))),
        np.concatenate([mixed, np.ones(len(alone), dtype=bool)]),
        penalty if members is None else max(penalty, members.maximum(store.n)),
        members,
    )


def _rare_and_random(
    store: SiloStore, labels: IntArray, counts: IntArray, most: int, rng: np.random.Generator
) -> IntArray:
    """Components of whole silos: half of those with the rarest global components, half of any."""
    rarest = np.minimum.reduceat(np.where(labels < 0, 1, counts[labels]), store.starts)
    order = rng.permutation(store.n_silos)
    rare = order[np.argsort(rarest[order], kind="stable")]
    half = most // 2
    return np.union1d(store.first_silos(rare, half), store.first_silos(order, half))


def _settled(
    store: SiloStore,
    centres: Centres,
    single: BoolArray,
    left_out: BoolArray,
    found: Matching,
    members: MemberDistribution | None,
    search: Search,
) -> Matching:
    """Descend and certify; ``single`` components stay by themselves, some are ``left_out``."""
    kept = ~(single | left_out)
    batches = SelectedRows(store.batches, [np.flatnonzero(own) for own in store.by_batch(kept)])
    penalty, trace, sweeps = found.penalty, list[float](), 0
    while True:
        sums, more, converged = descend(
            batches, centres.natural, centres.counts, penalty,
            max_iter=_SWEEPS, tol=max(search.tol, _TOL), report=search.report,
        )  # fmt: skip
        trace, sweeps = trace + more, sweeps + len(more)
        centres = Centres.of_sums(sums)
        if search.n_components is None:  # sweeps alone would merge halves of one in many steps
            centres, raised = merge_centres(
                sums, batches.family, found.penalty, store.n_silos, members
            )
        if len(centres.counts) < len(sums.counts):
            penalty, trace = max(penalty, raised), []
        elif converged or sweeps >= search.max_iter:
            break
    size, alone = len(sums.counts), np.flatnonzero(single)
    labels = np.zeros(store.n, dtype=np.intp)
    labels[kept] = sums.all_labels
    labels[alone] = size + np.arange(len(alone))
    trace = [value + penalty * len(alone) for value in trace]
    lower = total_penalty(np.array([store.n]), penalty)  # if all shared one column's norm
    if len(alone) <= _MOST_SINGLE:
        rest = [np.flatnonzero(~own) for own in store.by_batch(left_out)]
        natural, counts = sums.centres, sums.counts
        if len(alone):
            natural = np.concatenate([natural, store.take(alone).natural])
            counts = np.concatenate([counts, np.ones(len(alone), dtype=np.intp)])
        own_labels = [own[rows] for own, rows in zip(store.by_batch(labels), rest, strict=True)]
        lower = bound(SelectedRows(store.batches, rest), natural, own_labels, counts, penalty)
    labels[left_out] = -1
    lower = min(lower, trace[-1])
    return Matching(labels, trace[-1], lower, trace, penalty, Status.of(converged), found.path)
