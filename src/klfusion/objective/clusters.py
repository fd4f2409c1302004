"""A binary plan as running sums: its cost, and the cost of changes.

The cost of a cluster at its own barycenter is its Jensen gap ``sum_i w_i A(eta_i) - W A(S / W)``
with ``S = sum_i w_i eta_i`` and ``W = sum_i w_i``, so sums suffice.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray, relabel, total_penalty
from klfusion.objective.problem import FusionProblem

# Numbers in a batch of trial sums, 12 MB. Above, the divergence to the centre with its
# second-order factor replaces the exact increase.
_MAX_TRIAL_ENTRIES = 1_500_000
_NEIGHBOURS = 4  # candidates of a cluster for a merge


class Clusters:
    """Sums of natural parameters of each cluster, updated by moves and merges.

    Parameters
    ----------
    problem : FusionProblem
    labels : int array of shape (n,)
        Cluster of each component, 0..G-1, each used.
    """

    def __init__(self, problem: FusionProblem, labels: IntArray) -> None:
        self.problem = problem
        self.labels = labels.copy()
        self.compact()

    def compact(self) -> None:
        """Number clusters without gaps and compute the sums again, which removes rounding."""
        labels, counts = self.labels, np.bincount(self.labels)
        if not counts.all():
            labels = relabel(labels)
        self.assign(labels, int(np.count_nonzero(counts)))

    def assign(self, labels: IntArray, size: int) -> None:
        """Set a plan of ``size`` clusters, some perhaps empty."""
        self.labels = labels.copy()
        self.counts = np.bincount(labels, minlength=size)
        self.mass, self.sums, self.members_a = self.problem.sums(labels, size)
        self.centre_a = np.full(size, np.nan)
        self._means = np.empty((0, self.sums.shape[1]))
        self._known = np.zeros(0, dtype=bool)
        self._refresh(np.arange(size))

    @property
    def size(self) -> int:
        """Number of clusters, empty ones included."""
        return len(self.counts)

    @property
    def centres(self) -> FloatArray:
        """Barycenters, (G, p); none may be empty."""
        return self.centres_of(slice(None))

    def centres_of(self, which: IntArray | slice) -> FloatArray:
        """Barycenters of some clusters, (m, p)."""
        return np.asarray(self.sums[which] / self.mass[which, None])

    def means_of(self, which: IntArray) -> FloatArray:
        """Mean parameters of some barycenters, (m, p): those of changed clusters are computed."""
        if more := self.size - len(self._known):
            self._means = np.concatenate([self._means, np.empty((more, self.sums.shape[1]))])
            self._known = np.concatenate([self._known, np.zeros(more, dtype=bool)])
        new = which[~self._known[which]]
        if len(new):
            self._means[new] = self.problem.family.mean(self.centres_of(new))
            self._known[new] = True
        return self._means[which]

    def divergences(self, which: IntArray) -> FloatArray:
        """``KL(centre b || centre a)`` of some clusters, (m, m)."""
        centres = self.centres_of(which)
        return self.problem.family.kl_from(centres, centres, self.centre_a[which])

    def gaps(self) -> FloatArray:
        """Jensen gap of each cluster, (G,)."""
        used = self.counts > 0
        gaps = self.members_a - self.mass * np.where(used, self.centre_a, 0.0)
        return np.where(used, np.maximum(gaps, 0.0), 0.0)

    def objective(self, penalty: float) -> float:
        """Sum of gaps plus ``penalty * sum_g sqrt(n_g)``."""
        return float(self.gaps().sum()) + total_penalty(self.counts, penalty)

    def occupied(self) -> BoolArray:
        """(G, J): whether a cluster holds a component of a silo."""
        table = np.zeros((self.size, len(self.problem.silos)), dtype=bool)
        table[self.labels, self.problem.silo] = True
        return table

    # Changes ------------------------------------------------------------------------------

    def take_out(self, rows: slice) -> None:
        """Remove a silo's components; clusters may become empty."""
        labels, problem = self.labels[rows], self.problem
        weights = problem.weights[rows]
        self.counts[labels] -= 1  # a silo's labels are distinct
        self.mass[labels] -= weights
        self.sums[labels] -= weights[:, None] * problem.natural[rows]
        self.members_a[labels] -= weights * problem.log_partition[rows]
        empty = labels[self.counts[labels] == 0]
        self.mass[empty] = self.members_a[empty] = 0.0
        self.sums[empty] = 0.0
        self._refresh(labels)

    def put_in(self, rows: slice, labels: IntArray) -> None:
        """Add a silo's components to distinct clusters; a label beyond the last is a new one."""
        problem = self.problem
        new = int(labels.max()) + 1 - self.size
        if new > 0:
            self.counts = np.concatenate([self.counts, np.zeros(new, dtype=np.intp)])
            self.mass = np.concatenate([self.mass, np.zeros(new)])
            self.members_a = np.concatenate([self.members_a, np.zeros(new)])
            self.centre_a = np.concatenate([self.centre_a, np.full(new, np.nan)])
            self.sums = np.concatenate([self.sums, np.zeros((new, self.sums.shape[1]))])
        weights = problem.weights[rows]
        self.labels[rows] = labels
        self.counts[labels] += 1
        self.mass[labels] += weights
        self.sums[labels] += weights[:, None] * problem.natural[rows]
        self.members_a[labels] += weights * problem.log_partition[rows]
        self._refresh(labels)

    def merge(self, a: int, b: int, increase: float) -> None:
        """Move all of ``b`` into ``a``, which increases the gaps by ``increase``."""
        before = self.mass[a] * self.centre_a[a] + self.mass[b] * self.centre_a[b]
        self.labels[self.labels == b] = a
        for array in (self.counts, self.mass, self.sums, self.members_a):
            array[a] += array[b]
            array[b] = 0
        self.centre_a[a] = (before - increase) / self.mass[a]
        self._known[:] = False

    def _refresh(self, which: IntArray) -> None:
        """Log-partitions of the centres that changed; their means are unknown."""
        self._known[which[which < len(self._known)]] = False
        single = which[self.counts[which] == 1]
        self.centre_a[single] = self.members_a[single] / self.mass[single]
        used = which[self.counts[which] > 1]
        if len(used):
            self.centre_a[used] = self.problem.family.log_partition(self.centres_of(used))

    # Cost of changes ----------------------------------------------------------------------

    def increases(self, rows: slice, other: FusionProblem | None = None) -> FloatArray:
        """Increase of the gaps if row ``l`` joined cluster ``g``, (L, G); 0 for an empty one.

        The rows must have been taken out, or be those of another problem. The increase is exact,
        for large problems to second order: the divergence to the centre times ``W / (W + w)``.
        """
        problem = self.problem if other is None else other
        used = np.flatnonzero(self.counts)
        out = np.zeros((rows.stop - rows.start, self.size))
        natural, weights = problem.natural[rows], problem.weights[rows]
        if out.shape[0] * len(used) * natural.shape[1] > _MAX_TRIAL_ENTRIES:
            log_partition = problem.log_partition[rows]
            kl = problem.family.kl_from(self.centres_of(used), natural, log_partition)
            total = weights[:, None] + self.mass[used]
            out[:, used] = weights[:, None] * kl * self.mass[used] / total
            return out
        total = weights[:, None] + self.mass[used]
        trial = (weights[:, None] * natural)[:, None, :] + self.sums[used]
        trial /= total[:, :, None]
        after = problem.family.log_partition(trial.reshape(-1, natural.shape[1]))
        before = (weights * problem.log_partition[rows])[:, None]
        before = before + self.mass[used] * self.centre_a[used]
        out[:, used] = np.maximum(before - total * after.reshape(total.shape), 0.0)
        return out

    def merge_increases(self, a: IntArray, b: IntArray) -> FloatArray:
        """Increase of the gaps if clusters ``a[k]`` and ``b[k]`` merged."""
        if "pair_increases" in vars(self.problem):  # computed before
            row = np.empty(self.size, dtype=np.intp)
            row[self.labels] = np.arange(self.problem.n)
            out = self.problem.pair_increases[row[a], row[b]]
            other = np.flatnonzero((self.counts[a] > 1) | (self.counts[b] > 1))
            if len(other):
                out[other] = self._merge_increases(a[other], b[other])
            return out
        return self._merge_increases(a, b)

    def merge_increases_with(self, a: int, others: IntArray) -> FloatArray:
        """Increase of the gaps if cluster ``a``, of several members, merged with each other."""
        mass, total = self.mass[others], self.mass[a] + self.mass[others]
        increases = self.mass[a] * self.centre_a[a] + mass * self.centre_a[others]
        after = self.problem.log_partition_beside(self.sums, a, others, total)
        increases -= total * after
        return np.asarray(np.maximum(increases, 0.0, out=increases))

    def _merge_increases(self, a: IntArray, b: IntArray) -> FloatArray:
        total = self.mass[a] + self.mass[b]
        before = self.mass[a] * self.centre_a[a] + self.mass[b] * self.centre_a[b]
        after = self.problem.log_partition_of_averages(self.sums, a, b, total)
        return np.asarray(np.maximum(before - total * after, 0.0))


def shared_silos(holds: NDArray[Any], others: NDArray[Any]) -> NDArray[np.float32]:
    """Number of silos that rows ``(k, J)`` and others ``(m, J)`` or ``(J,)`` share.

    One product in single precision, for which OpenBLAS may raise a spurious floating-point flag.
    """
    with np.errstate(invalid="ignore"):
        shared = holds.astype(np.float32, copy=False) @ others.astype(np.float32, copy=False).T
    return np.asarray(shared)


def nearest_pairs(kl: FloatArray, apart: BoolArray) -> tuple[IntArray, IntArray]:
    """Pairs of near clusters, each once, among those that share no silo: ``apart``, (G, G).

    Each cluster with its nearest few by symmetrised ``kl``, (G, G).
    """
    distance = np.where(apart, kl + kl.T, np.inf)
    np.fill_diagonal(distance, np.inf)
    nearest = np.argsort(distance, axis=1, kind="stable")[:, :_NEIGHBOURS]
    a, b = np.repeat(np.arange(len(kl)), nearest.shape[1]), nearest.ravel()
    some = np.isfinite(distance[a, b])
    pairs = np.unique(np.sort(np.stack([a[some], b[some]], axis=1), axis=1), axis=0)
    return pairs[:, 0], pairs[:, 1]
