"""Global components that one hostile silo cannot move far.

Members of a component are brought to the same certainty, that of the median one, so that no silo
counts more by claiming more data. The *medoid* is the member with the least median divergence
``r`` to the others; members with ``KL(medoid || member) > 9 r`` are left out, and the rest
averaged.

The bound: ``eta -> KL(medoid || eta)`` is convex, so ``KL(medoid || fused) <= 9 r``. If more than
half of the members are honest, ``r`` is at most the largest divergence ``D`` between two of them.
If the medoid is honest and ``s`` is the share of others in the average, ``KL(medoid || fused) <=
(1 + 8 s) D``: 1.8 ``D`` for one in ten. Nothing that the others send enters the bound.
"""

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion._utils.running import require_memory
from klfusion.families import Family, Tempered
from klfusion.objective.problem import FusionProblem

RADIUS = 9.0  # times the median divergence: three times as far as the median member


def robust_average(problem: FusionProblem, labels: IntArray, n_components: int) -> FloatArray:
    """Averages, (G, p), of the members near their medoid, each as certain as the median one."""
    out = np.empty((n_components, problem.natural.shape[1]))
    for g in range(n_components):
        rows = np.flatnonzero(labels == g)
        members = equally_certain(problem.family, problem.natural[rows])
        near = near_medoid(problem.family, members)
        out[g] = problem.family.barycenter(members[near], problem.weights[rows][near])
    return out


def equally_certain(family: Family, natural: FloatArray) -> FloatArray:
    """Members, (n, p), tempered to the median of their effective sizes, where a family has any."""
    if not isinstance(family, Tempered):
        return natural
    size = family.effective_size(natural)
    return family.tempered(natural, np.median(size) / size)


def near_medoid(family: Family, members: FloatArray) -> BoolArray:
    """Which members, (n,), lie within `RADIUS` median divergences of the medoid."""
    if len(members) < 3:  # nobody is in the majority
        return np.ones(len(members), dtype=bool)
    what = f"comparing all {len(members):,} members of a component"
    require_memory(2 * 8 * len(members) ** 2, what, "use pooling='average'")
    divergence = family.kl(members, members)
    median = np.median(divergence, axis=1)
    medoid = int(median.argmin())
    return np.asarray(divergence[medoid] <= RADIUS * median[medoid])
