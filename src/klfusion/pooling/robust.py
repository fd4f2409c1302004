"""Global components that one hostile silo cannot move far.

Members of a component are brought to the same certainty, that of the median one, so that no silo
counts more by claiming more data. The *medoid* is the member with the least median divergence
``r`` to the others; members with ``KL(medoid || member) > 9 r`` are left out, and the rest
averaged.

The bound: ``eta -> KL(medoid || eta)`` is convex, so ``KL(medoid || fused) <= 9 r``. If more than
half of the members are honest, ``r`` is at most the largest divergence ``D`` between two of them.
If the medoid is honest and ``s`` is the share of others in the average, ``KL(medoid || fused) <=
(1 + 8 s) D``: 1.8 ``D`` for one in ten. Nothing that the others send enters the bound.

Counts are claims as well. A silo counts at most three times what the median member of a component
counts, and at most three times what the median silo counts in all. So one silo of ``J`` equal ones
raises the weight of a shared component by at most a factor ``1 + 2 / J`` before normalisation, and
components of its own have at most a share of ``3 / (J + 2)``.
"""

from collections.abc import Sequence

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion._utils.running import require_memory
from klfusion.families import Family, Tempered
from klfusion.objective.problem import FusionProblem

MOST = 3.0  # times the median member
RADIUS = MOST**2  # of a divergence, which grows as the square of a distance
_MAJORITY = 3  # members; of fewer none is in the minority


def robust_average(problem: FusionProblem, labels: IntArray, n_components: int) -> FloatArray:
    """Averages, (G, p), of the members near their medoid, each as certain as the median one."""
    out = np.empty((n_components, problem.natural.shape[1]))
    for g in range(n_components):
        rows = np.flatnonzero(labels == g)
        out[g] = robust_barycenter(problem.family, problem.natural[rows], problem.weights[rows])
    return out


def robust_barycenter(family: Family, natural: FloatArray, weights: FloatArray) -> FloatArray:
    """Average, (p,), of the members (n, p) near their medoid, with weights (n,)."""
    members = equally_certain(family, natural)
    near = near_medoid(family, members)
    return np.asarray(family.barycenter(members[near], weights[near]))


def equally_certain(family: Family, natural: FloatArray) -> FloatArray:
    """Members, (n, p), tempered to the median of their effective sizes, where a family has any."""
    if not isinstance(family, Tempered):
        return natural
    size = family.effective_size(natural)
    return family.tempered(natural, np.median(size) / size)


def near_medoid(family: Family, members: FloatArray) -> BoolArray:
    """Which members, (n,), lie within `RADIUS` median divergences of the medoid."""
    if len(members) < _MAJORITY:
        return np.ones(len(members), dtype=bool)
    what = f"comparing all {len(members):,} members of a component"
    require_memory(2 * 8 * len(members) ** 2, what, "use pooling='average'")
    divergence = family.kl(members, members)
    median = np.median(divergence, axis=1)
    medoid = int(median.argmin())
    return np.asarray(divergence[medoid] <= RADIUS * median[medoid])


def bounded(counts: Sequence[FloatArray], labels: Sequence[IntArray]) -> list[FloatArray]:
    """What is left, as a share (n_j,) per silo, of ``counts`` (n_j,) that no silo may exceed."""
    silo = np.repeat(np.arange(len(labels)), [len(own) for own in labels])
    label, table = np.concatenate(labels), np.zeros((len(labels), max(map(_size, labels))))
    kept = label >= 0
    np.add.at(table, (silo[kept], label[kept]), np.concatenate(counts)[kept])
    present = np.zeros(table.shape, dtype=bool)
    present[silo[kept], label[kept]] = True
    left = np.ones(table.shape)
    for g, own in enumerate(present.T):
        left[own, g] = _within_median(table[own, g])
    left *= _within_median((left * table).sum(axis=1))[:, None]
    return [np.where(own >= 0, left[j, own], 1.0) for j, own in enumerate(labels)]


def _within_median(counts: FloatArray) -> FloatArray:
    """The share left of each count (n,) if none may exceed `MOST` times the median one."""
    if len(counts) < _MAJORITY:
        return np.ones(len(counts))
    # One observation more: a majority without any does not forbid them.
    return np.minimum(1.0, MOST * (np.median(counts) + 1.0) / np.maximum(counts, 1.0))


def _size(labels: IntArray) -> int:
    return int(labels.max(initial=-1)) + 1
