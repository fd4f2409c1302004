"""Very many silos at a penalty or of a known size: the path of a sample, and sweeps over all.

The path compares all pairs, which is quadratic. So it is computed for the components of a random
sample of silos. Its penalty holds for all: it is the price of opening a global component, whatever
the number of silos. Then every silo is assigned to the sample's global components. Components that
are too far from every global component are collected, and a new sample of them is clustered. This
repeats until no new global component is found.
"""

from collections.abc import Callable

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray, total_penalty
from klfusion._utils.running import Report
from klfusion.many_silos.sweep import Centres, ClusterSums, bound, descend, merge_centres
from klfusion.merging.agglomeration import penalty_path
from klfusion.objective.batches import SelectedRows, SiloStore
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, MergePath, Search, Status

_MAX_SAMPLES = 8  # of components that no global component explains
_TOL = 1e-7  # relative fall of the objective below which no further sweep is made
_SWEEPS = 5  # between two searches for global components to merge
_MOST_SINGLE = 5_000  # components with a column of their own in the bound


def fuse_many(
    store: SiloStore,
    on_sample: Callable[[FusionProblem], Matching],
    search: Search,
    *,
    most: int,
) -> Matching:
    """Match the components of very many silos.

    The method ``on_sample`` gives labels and penalty of a sample of ``most`` components. If the
    size is known, the model has the sample's global components. The path is that of the sample.
    """
    sample = store.take(store.first_silos(search.rng.permutation(store.n_silos), most))
    found = on_sample(sample)
    penalty = found.penalty
    centres = Centres.of_labels(sample, found.labels, len(sample.silos) / store.n_silos)
    single = np.zeros(store.n, dtype=bool)
    if search.n_components is None:
        sums = all_found(
            store, centres, search, most,
            lambda centres: centres.sweep(store.batches, penalty, penalty).compact(),
            lambda problem: _clusters(problem, penalty, search.report),
        )  # fmt: skip
        centres = merge_centres(sums, store.batches.family, penalty)
        single = centres.sweep(store.batches, penalty, penalty).all_labels < 0
    return _settled(store, centres, single, found, search)


def all_found(
    store: SiloStore,
    centres: Centres,
    search: Search,
    most: int,
    sweep: Callable[[Centres], ClusterSums],
    clusters: Callable[[FusionProblem], IntArray],
) -> ClusterSums:
    """Assign all by ``sweep``; add ``clusters`` of samples of those that joined none, if any."""
    for number in range(_MAX_SAMPLES):
        search.report("sweeping", number + 1, None)
        sums = sweep(centres)
        single = np.flatnonzero(sums.all_labels < 0)
        problem = store.take(np.sort(search.rng.permutation(single)[: most // 2]))
        if problem.n < 2:
            break
        labels = clusters(problem)
        new = Centres.of_labels(problem, labels, problem.n / len(single))
        several = np.bincount(labels) > 1
        if not several.any():
            break
        centres = Centres.of_sums(sums).joined(new.some(several))
    return sums


def _clusters(problem: FusionProblem, penalty: float, report: Report) -> IntArray:
    path = penalty_path(problem, report, penalty)
    return path.labels(len(path.merges))


def _settled(
    store: SiloStore, centres: Centres, single: BoolArray, found: Matching, search: Search
) -> Matching:
    """Descend and certify; ``single`` components stay by themselves."""
    rows = [np.flatnonzero(~own) for own in store.by_batch(single)]
    batches = SelectedRows(store.batches, rows)
    penalty, trace, sweeps = found.penalty, list[float](), 0
    while True:
        sums, more, converged = descend(
            batches, centres.natural, centres.counts, penalty,
            max_iter=_SWEEPS, tol=max(search.tol, _TOL), report=search.report,
        )  # fmt: skip
        trace, sweeps = trace + more, sweeps + len(more)
        centres = Centres.of_sums(sums)
        if search.n_components is None:  # sweeps alone would merge halves of one in many steps
            centres = merge_centres(sums, batches.family, penalty)
        if len(centres.counts) == len(sums.counts) and (converged or sweeps >= search.max_iter):
            break
    labels = np.full(store.n, -1, dtype=np.intp)
    labels[~single] = sums.all_labels
    trace = [value + penalty * int(single.sum()) for value in trace]
    left_out = np.zeros(store.n, dtype=bool)
    status = Status.of(converged)
    return certified_plan(store, labels, left_out, sums.centres, penalty, trace, status, found.path)


def certified_plan(
    store: SiloStore,
    labels: IntArray,
    left_out: BoolArray,
    centres: FloatArray,
    penalty: float,
    trace: list[float],
    status: Status,
    path: MergePath | None,
) -> Matching:
    """A plan with its lower bound; of those with label -1, all but some ``left_out`` are single."""
    counts, single = np.bincount(labels[labels >= 0]), (labels < 0) & ~left_out
    labels = labels.copy()
    labels[single] = len(counts) + np.arange(int(single.sum()))
    lower = total_penalty(np.array([store.n]), penalty)  # if all shared one column's norm
    if single.sum() <= _MOST_SINGLE:
        rest = [np.flatnonzero(~own) for own in store.by_batch(left_out)]
        if single.any():
            centres = np.concatenate([centres, store.take(np.flatnonzero(single)).natural])
        own_labels = [own[rows] for own, rows in zip(store.by_batch(labels), rest, strict=True)]
        every = np.bincount(labels[~left_out])
        lower = bound(SelectedRows(store.batches, rest), centres, own_labels, every, penalty)
    lower = min(lower, trace[-1])
    return Matching(labels, trace[-1], lower, trace, penalty, status, path)
