"""Before matching: leave out empty components, and merge components that one silo split.

An over-fitted mixture describes one cluster of observations by two components. These may not be
matched to one global component, and the distance between them would count as one between different
components. With the prior and the counts known, the evidence of one component against two can be
computed from the posteriors alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from klfusion._utils.arrays import BLOCK_ENTRIES, BoolArray, FloatArray, IntArray, blocks
from klfusion.families import (
    EmpiricalPrior,
    Family,
    GaussianObservations,
    Product,
    Tempered,
    require,
)
from klfusion.model_size.two_normals import POINTS, entropy, information, information_at_distance
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import network as layers
from klfusion.posteriors.structure.structure import is_tied

_MAX_TRIAL_ENTRIES = 20_000_000  # numbers of all pairs, 160 MB; larger silos are not compared
NEGLIGIBLE_SHARE = 0.04  # of a silo's observations
_MOST_POINTS = 1 << 18  # of quadrature, of all components of a silo
_TINY = 1e-9  # observations that stand for none


def with_data(posterior: Posterior) -> IntArray:
    """The components with enough observations to be matched; of a network, its active units.

    Empty components of over-fitted models look alike in all silos: each is hardly more than its
    prior. A component is left out if it has too few observations to estimate its shape *and* a
    negligible share of its silo's. The largest stays. Where counts are not given, Gaussian
    posteriors still say by how many observations they know their means.
    """
    family, structure, counts = posterior.family, posterior.structure, posterior.counts
    if structure is not None and structure.kind == layers.KIND:
        return layers.kept_units(structure, 1)
    if counts is None and isinstance(family, GaussianObservations):
        counts = require(family, Tempered, "sizes").effective_size(posterior.natural)
    if counts is None:
        return np.arange(posterior.n_components)
    least = min(family.least_count, NEGLIGIBLE_SHARE * float(counts.sum()))
    return np.flatnonzero((counts >= least) | (counts == counts.max()))


def may_have_splits(posterior: Posterior) -> bool:
    """Whether splits can be tested: a mixture with known prior and counts."""
    structure = posterior.structure
    mixture = structure is None or structure.kind == "mixture"
    return mixture and posterior.prior is not None and posterior.counts is not None


def split_silos(posteriors: Sequence[Posterior], rows: Sequence[IntArray]) -> BoolArray:
    """Whether `merge_splits` of the ``rows`` of each silo might merge any, (J,).

    Small silos are compared together; a large one fills a batch, and is compared there.
    """
    found = np.zeros(len(posteriors), dtype=bool)
    family = posteriors[0].family
    sizes = np.array([len(own) for own in rows])
    tested = np.array([may_have_splits(p) for p in posteriors])
    silos = np.flatnonzero(tested & (sizes > 1) & _few_enough(family, sizes))
    large = sizes[silos] ** 2 * family.size > 2 * BLOCK_ENTRIES
    found[silos[large]] = True
    silos = silos[~large]
    n_pairs = np.cumsum(sizes[silos] * (sizes[silos] - 1) // 2)
    batch = n_pairs * family.size // BLOCK_ENTRIES
    for some in np.split(silos, np.flatnonzero(np.diff(batch)) + 1):
        if len(some) == 0:
            continue
        first = np.cumsum(sizes[some]) - sizes[some]
        pairs = [np.stack(np.triu_indices(n, k=1)) for n in sizes[some]]
        a, b = np.concatenate([own + low for own, low in zip(pairs, first, strict=True)], axis=1)
        silo = np.repeat(np.arange(len(some)), sizes[some])
        natural, prior = with_typical_priors(
            family,
            np.concatenate([posteriors[j].natural[rows[j]] for j in some]),
            np.stack([np.asarray(posteriors[j].prior) for j in some]),
            silo,
            np.array([is_tied(posteriors[j].structure) for j in some]),
        )
        counts = np.concatenate([np.asarray(posteriors[j].counts)[rows[j]] for j in some])
        common = common_sizes(family, natural, silo)
        gain = gain_of_one(family, prior[silo], natural, counts, a, b, common)
        found[some[silo[a[gain > 0.0]]]] = True
    return found


def merge_splits(posterior: Posterior, rows: IntArray) -> list[IntArray]:
    """Groups of the components ``rows``, (L,), that a silo split; others are by themselves.

    Components of a mixture are merged if one component is the shorter description of their
    observations: the gain in fit of two is below the cost of assigning observations to them. None
    are unless `may_have_splits`.
    """
    groups = [np.array([row]) for row in rows]
    family, n = posterior.family, len(rows)
    if n < 2 or not may_have_splits(posterior) or not _few_enough(family, np.array(n)):
        return groups
    counts, silo = np.asarray(posterior.counts)[rows], np.zeros(n, dtype=np.intp)
    natural, prior = with_typical_priors(
        family,
        posterior.natural[rows],
        np.atleast_2d(np.asarray(posterior.prior)),
        silo,
        np.array([is_tied(posterior.structure)]),
    )
    common = common_sizes(family, natural, silo)
    points = min(_MOST_POINTS // n, POINTS) // 2 * 2  # half are mirror images
    gain = np.full((n, n), -np.inf)  # of each pair (i, j) with i < j

    def compare(a: IntArray, b: IntArray) -> None:
        for pairs in blocks((len(a), family.size)):
            some, index = np.unique(np.stack([a[pairs], b[pairs]]), return_inverse=True)
            first, second = index.reshape(2, -1)
            parts = prior[silo[some]], natural[some], counts[some], first, second, common[some]
            gain[a[pairs], b[pairs]] = gain_of_one(family, *parts, points)

    compare(*np.triu_indices(n, k=1))
    alive = np.ones(n, dtype=bool)
    while True:
        i, j = map(int, np.unravel_index(gain.argmax(), gain.shape))
        if not gain[i, j] > 0.0:
            break
        both = np.concatenate([groups[i], groups[j]])
        if not family.in_domain(merged(posterior, [both])):  # the prior says more than was seen
            gain[i, j] = -np.inf
            continue
        groups[i] = both
        natural[i] += natural[j] - prior[0]
        counts[i] += counts[j]
        alive[j] = False
        gain[[i, j]], gain[:, [i, j]] = -np.inf, -np.inf
        others = np.flatnonzero(alive)  # only pairs with the merged one have changed
        others = others[others != i]
        compare(np.minimum(i, others), np.maximum(i, others))
    return [groups[k] for k in np.flatnonzero(alive)]


def merged(posterior: Posterior, groups: Sequence[IntArray]) -> FloatArray:
    """Components of which each is a group: observations add up, the prior does not, (n, p)."""
    natural, prior = posterior.natural, posterior.prior
    return np.stack(
        [
            natural[own[0]] if prior is None else natural[own].sum(axis=0) - (len(own) - 1) * prior
            for own in groups
        ]
    )


def _few_enough(family: Family, n: IntArray) -> BoolArray:
    """Whether all pairs of ``n`` components may be compared."""
    return np.asarray(n**2 * family.size <= _MAX_TRIAL_ENTRIES)


def with_typical_priors(
    family: Family, natural: FloatArray, prior: FloatArray, silo: IntArray, tied: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Components (n, p) and priors of their silos (J, p), as if these were typical of the former.

    A prior is often as wide as all data of a silo. It would favour one wide component over two at
    any distance. Components of ``tied`` silos, (J,), share their covariance.
    """
    if isinstance(family, EmpiricalPrior):
        return family.with_empirical_prior(natural, prior, silo, tied)
    return natural.copy(), prior


def common_sizes(family: Family, natural: FloatArray, silo: IntArray) -> FloatArray:
    """Geometric mean of the effective sizes of all components of each one's silo, (n,)."""
    if not isinstance(family, Tempered):
        return np.ones(len(natural))
    logs = np.bincount(silo, np.log(family.effective_size(natural))) / np.bincount(silo)
    return np.asarray(np.exp(logs)[silo])


def gain_of_one(
    family: Family,
    prior: FloatArray,
    natural: FloatArray,
    counts: FloatArray,
    a: IntArray,
    b: IntArray,
    common: FloatArray,
    points: int = POINTS,
) -> FloatArray:
    """Log-evidence gained by describing each pair by one component, (m,); -inf for certain loss.

    Given which observation belongs to which, two components gain
    ``A(a) + A(b) - A(a + b - prior) - A(prior)`` in fit. The assignment costs the mutual
    information between observations and components: the whole entropy where the two are far apart,
    almost nothing where they overlap. Unknown shares cost, too. Each component has a ``prior`` and
    a ``common`` effective size.
    """
    gain = np.full(len(a), -np.inf)
    if not isinstance(family, Tempered):
        return gain
    log_partition, of_prior = (family.log_partition(x) for x in (natural, prior))
    of_one = family.log_partition(natural[a] + natural[b] - prior[a])
    fit = log_partition[a] + log_partition[b] - of_one - of_prior[a]
    # Where cells are missing, parameters have seen fewer observations than there are.
    seen = family.effective_size(natural) - family.effective_size(prior)
    counts = np.clip(seen, _TINY, np.maximum(counts, _TINY))
    total = counts[a] + counts[b]
    share = counts[a] / total
    fit -= _of_shares(total, share)
    some = np.flatnonzero(fit < total * entropy(share))
    if len(some):
        parts = a[some], b[some], total[some], share[some]
        gain[some] = _assigned(family, natural, common, fit[some], *parts, points) - fit[some]
    return gain


def _of_shares(total: FloatArray, share: FloatArray) -> FloatArray:
    """What two unknown shares cost beyond the entropy of assignments, (m,).

    Of ``n`` observations ``k`` are of the first component with probability ``1 / (n + 1)``, and any
    ``k`` of them are. Either may be the first, which gives back ``log 2``.
    """
    spread = np.maximum(2.0 * np.pi * total * share * (1.0 - share), 1.0)
    return np.asarray(np.log1p(total) - 0.5 * np.log(spread) - np.log(2.0))


def _assigned(
    family: Tempered,
    natural: FloatArray,
    common: FloatArray,
    fit: FloatArray,
    a: IntArray,
    b: IntArray,
    total: FloatArray,
    share: FloatArray,
    points: int,
) -> FloatArray:
    """Cost of assigning observations to two components, (m,); none where they are far apart."""
    apart = _divergence_of_two(family, natural, share, a, b, common)
    each = 0.5 * family.n_parameters(natural)
    chance = np.minimum(each[a], each[b])  # nats: expected difference of two samples of one
    apart = np.maximum(apart - chance / total, 0.0)
    deviations = np.sqrt(2.0 * apart / (share * (1.0 - share)))
    assigned = total * information_at_distance(deviations, share)
    # For Normals of different width the distance gives too little information.
    doubtful = (assigned <= fit) & (total * entropy(share) - chance > fit)
    if doubtful.any() and isinstance(family, GaussianObservations):
        normals = family.observation_moments(natural)
        exactly = information(normals, a[doubtful], b[doubtful], share[doubtful], points)
        exactly = total[doubtful] * exactly - chance[doubtful]
        assigned[doubtful] = np.maximum(assigned[doubtful], exactly)
    if not isinstance(family, EmpiricalPrior) or isinstance(family, Product):
        # Under a wide prior, or where cells are missing, one is favoured at any distance.
        assigned[apart > 2.0 * entropy(share)] = -np.inf
    return assigned


def _divergence_of_two(
    family: Tempered,
    natural: FloatArray,
    share: FloatArray,
    a: IntArray,
    b: IntArray,
    common: FloatArray,
) -> FloatArray:
    """Divergence of two components from their average, in nats per observation.

    Both are compared at one effective size, ``common`` (n,).
    """
    size = family.effective_size(natural)
    alike = family.tempered(natural, common / size)
    log_partition = family.log_partition(alike)
    middle = share[:, None] * alike[a] + (1.0 - share)[:, None] * alike[b]
    gap = share * log_partition[a] + (1.0 - share) * log_partition[b]
    gap -= family.log_partition(middle)
    return np.asarray(gap / common[a])
