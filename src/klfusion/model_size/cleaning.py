"""Before matching: leave out empty components, and merge components that one silo split.

An over-fitted mixture describes one cluster of observations by two components. These may not be
matched to one global component, and the distance between them would count as one between different
components. With the prior and the counts known, the evidence of one component against two can be
computed from the posteriors alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from klfusion._utils.arrays import BLOCK_ENTRIES, BoolArray, FloatArray, IntArray, blocks
from klfusion.families import Family, GaussianObservations, Tempered
from klfusion.model_size.two_normals import entropy, information, information_at_distance
from klfusion.objective.problem import FusionProblem
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import network as layers

_MAX_TRIAL_ENTRIES = 20_000_000  # numbers of all pairs, 160 MB; larger silos are not compared
_NEGLIGIBLE_SHARE = 0.04  # of a silo's observations
_TINY = 1e-9  # observations that stand for none
_FEW = 3.0  # times the family's least count: the shape of so few observations is unreliable
_NEAR = 0.7  # of the median Jensen gap between components of one silo


def with_data(posterior: Posterior) -> IntArray:
    """The components with enough observations to be matched; of a network, its active units.

    Empty components of over-fitted models look alike in all silos: each is hardly more than its
    prior. A component is left out if it has too few observations to estimate its shape *and* a
    negligible share of its silo's. The largest stays.
    """
    structure, counts = posterior.structure, posterior.counts
    if structure is not None and structure.kind == layers.KIND:
        return layers.kept_units(structure, 1)
    if counts is None:
        return np.arange(posterior.n_components)
    least = min(posterior.family.least_count, _NEGLIGIBLE_SHARE * float(counts.sum()))
    return np.flatnonzero((counts >= least) | (counts == counts.max()))


def may_have_splits(posterior: Posterior) -> bool:
    """Whether splits can be tested: a mixture with known prior and counts."""
    structure = posterior.structure
    mixture = structure is None or structure.kind == "mixture"
    return mixture and posterior.prior is not None and posterior.counts is not None


@dataclass(frozen=True, eq=False)
class Sample:
    """Statistics of a sample of silos, so that batches are treated alike."""

    natural: FloatArray  # components, (n, p)
    gap: float  # median Jensen gap of two components of one silo
    prior: FloatArray | None  # average of the silos' priors, (p,); None if any is unknown

    @classmethod
    def of(cls, posteriors: Sequence[Posterior]) -> Sample:
        """Of some silos."""
        rows = [p.natural[with_data(p)] for p in posteriors]
        natural = np.concatenate(rows)
        priors = [p.prior for p in posteriors if p.prior is not None]
        prior = np.mean(priors, axis=0) if len(priors) == len(posteriors) else None
        return cls(natural, _median_gap(_gaps_in_silos(posteriors[0].family, rows)), prior)


def near_pairs(
    family: Family, silos: Sequence[FloatArray], sample: Sample | None = None
) -> list[BoolArray]:
    """Which components of a silo, (L, p), are much nearer than the median pair, (L, L).

    The median is that of the ``sample``; default: of these silos.
    """
    if sample is None:
        gaps = _gaps_in_silos(family, silos)
        median = _median_gap(gaps)
    else:
        gaps, median = _gaps_in_silos(family, silos, sample.natural), sample.gap
    return [gap < _NEAR * median for gap in gaps]


def _gaps_in_silos(
    family: Family, silos: Sequence[FloatArray], *like: FloatArray
) -> list[FloatArray]:
    """Jensen gaps of the pairs of each silo, (L, L); infinite where there are too many."""
    silo = np.repeat(np.arange(len(silos)), [len(own) for own in silos])
    problem = FusionProblem(family, np.concatenate(silos), silo, np.ones(len(silo)))
    problem = problem.centred(*like).comparable(*like)
    sizes = np.array([len(own) for own in silos])
    small = sizes**2 * family.size <= _MAX_TRIAL_ENTRIES
    first = np.cumsum(sizes) - sizes
    pairs = {size: np.stack(np.triu_indices(size, k=1)) for size in set(sizes[small].tolist())}
    every = [pairs[size] + low for size, low in zip(sizes[small], first[small], strict=True)]
    a, b = np.concatenate(every, axis=1) if every else np.empty((2, 0), dtype=np.intp)
    after = problem.log_partition_of_averages(problem.natural, a, b, np.full(len(a), 2.0))
    gaps = np.maximum(problem.log_partition[a] + problem.log_partition[b] - 2.0 * after, 0.0)
    out, low = list[FloatArray](), 0
    for size, few in zip(sizes.tolist(), small.tolist(), strict=True):
        own = np.full((size, size), np.inf)
        if few:
            i, j = pairs[size]
            own[i, j] = own[j, i] = gaps[low : low + len(i)]
            low += len(i)
        out.append(own)
    return out


def _median_gap(gaps: Sequence[FloatArray]) -> float:
    all_gaps = np.concatenate([gap[np.triu_indices(len(gap), k=1)] for gap in gaps])
    return float(np.median(all_gaps)) if len(all_gaps) else 0.0


def some_split(
    posteriors: Sequence[Posterior],
    rows: Sequence[IntArray],
    near: Sequence[BoolArray],
    separation: float,
) -> BoolArray:
    """Whether `merge_splits` of each silo would merge any of its components, (J,)."""
    found = np.zeros(len(posteriors), dtype=bool)
    family = posteriors[0].family
    silos, step = [], max(1, BLOCK_ENTRIES // family.size)

    def judge(silos: list[tuple[int, IntArray, IntArray]]) -> None:
        natural = [posteriors[j].natural[rows[j]] for j, _, _ in silos]
        counts = [np.asarray(posteriors[j].counts)[rows[j]] for j, _, _ in silos]
        sizes = np.array([len(own) for own in natural])
        pairs = np.array([len(a) for _, a, _ in silos])
        common = [common_size(family, own) for own in natural]
        first = np.repeat(np.cumsum(sizes) - sizes, pairs)
        gain = gain_of_one(
            family,
            np.repeat([np.asarray(posteriors[j].prior) for j, _, _ in silos], pairs, axis=0),
            np.concatenate(natural),
            np.concatenate(counts),
            np.concatenate([a for _, a, _ in silos]) + first,
            np.concatenate([b for _, _, b in silos]) + first,
            np.repeat(common, sizes),
            separation,
        )
        found[np.repeat([j for j, _, _ in silos], pairs)[gain > 0]] = True

    n_pairs = 0
    for j, (posterior, own, close) in enumerate(zip(posteriors, rows, near, strict=True)):
        if may_have_splits(posterior):
            a, b = np.nonzero(np.triu(_compared(posterior, own, close), k=1))
            if len(a):
                silos.append((j, a, b))
                n_pairs += len(a)
        if silos and (n_pairs >= step or j == len(posteriors) - 1):
            judge(silos)
            silos, n_pairs = [], 0
    return found


def _compared(posterior: Posterior, rows: IntArray, near: BoolArray) -> BoolArray:
    """Which components are compared, (L, L): those that are near, and all with few data."""
    few = np.asarray(posterior.counts)[rows] < _FEW * posterior.family.least_count
    return np.asarray((near | few[:, None] | few) & ~np.eye(len(rows), dtype=bool))


def merge_splits(
    posterior: Posterior, rows: IntArray, near: BoolArray, separation: float
) -> list[tuple[IntArray, FloatArray]]:
    """Merge components that a silo split: groups of rows, and each group's natural parameters.

    Overlapping components of a mixture are merged if one component is the shorter description of
    their observations: the gain in fit of two is below the cost of assigning observations to them.
    Of the components ``rows``, (L,), those that are ``near``, (L, L), are compared; none unless
    `may_have_splits`. Those farther apart than a ``separation`` stay two.
    """
    groups, natural = [np.array([row]) for row in rows], posterior.natural[rows]
    if not may_have_splits(posterior):
        return list(zip(groups, natural, strict=True))
    prior, counts = np.asarray(posterior.prior), np.asarray(posterior.counts)[rows]
    near = _compared(posterior, rows, near)
    family, common = posterior.family, common_size(posterior.family, natural)
    gain = np.full((len(rows), len(rows)), -np.inf)  # of each pair (i, j) with i < j

    def compare(a: IntArray, b: IntArray) -> None:
        for pairs in blocks((len(a), family.size)):
            some, index = np.unique(np.stack([a[pairs], b[pairs]]), return_inverse=True)
            first, second = index.reshape(2, -1)
            parts = natural[some], counts[some], first, second
            gain[a[pairs], b[pairs]] = gain_of_one(family, prior, *parts, common, separation)

    compare(*np.nonzero(np.triu(near, k=1)))
    alive = np.ones(len(rows), dtype=bool)
    while near.any():
        i, j = map(int, np.unravel_index(gain.argmax(), gain.shape))
        if not gain[i, j] > 0:
            break
        groups[i] = np.concatenate([groups[i], groups[j]])
        natural[i] += natural[j] - prior
        counts[i] += counts[j]
        near[i] |= near[j]
        near[:, i] |= near[:, j]
        alive[j], near[j], near[:, j], near[i, i] = False, False, False, False
        gain[[i, j]], gain[:, [i, j]] = -np.inf, -np.inf
        others = np.flatnonzero(near[i])  # only pairs with the merged one have changed
        compare(np.minimum(i, others), np.maximum(i, others))
    return [(groups[k], natural[k]) for k in np.flatnonzero(alive)]


def common_size(family: Family, natural: FloatArray) -> float:
    """Geometric mean of the effective sizes of components."""
    if not isinstance(family, Tempered):
        return 1.0
    return float(np.exp(np.log(family.effective_size(natural)).mean()))


def gain_of_one(
    family: Family,
    prior: FloatArray,
    natural: FloatArray,
    counts: FloatArray,
    a: IntArray,
    b: IntArray,
    common: FloatArray | float,
    separation: float,
) -> FloatArray:
    """Log-evidence gained by describing each pair by one component, (m,); none if far apart.

    Given which observation belongs to which, two components gain
    ``A(a) + A(b) - A(a + b - prior) - A(prior)`` in fit. The assignment costs the mutual
    information between observations and components: the whole entropy where the two are far apart,
    almost nothing where they overlap. Where data are few for their dimension, or the prior is wide,
    the evidence favours one component at any distance. So components far apart are not merged.
    The ``prior`` is one, or one of each pair; ``common`` effective sizes are one, or one of each
    component.
    """
    if not isinstance(family, Tempered):
        return np.full(len(a), -np.inf)
    log_partition = family.log_partition(natural)
    of_one = family.log_partition(natural[a] + natural[b] - prior)
    fit = log_partition[a] + log_partition[b] - of_one - family.log_partition(np.atleast_2d(prior))
    total = counts[a] + counts[b] + 2.0 * _TINY
    share = (counts[a] + _TINY) / total
    apart = _divergence_of_two(family, natural, share, a, b, common)
    each = 0.5 * family.n_parameters(natural)
    chance = np.minimum(each[a], each[b])  # nats: expected difference of two samples of one
    apart = np.maximum(apart - chance / total, 0.0)
    deviations = np.sqrt(2.0 * apart / (share * (1.0 - share)))
    assigned = total * information_at_distance(deviations, share)
    most = total * entropy(share)
    if isinstance(family, GaussianObservations):
        far = _separation(family, natural, prior, counts[a] + counts[b], a, b) > separation
    else:
        far = apart > 2.0 * entropy(share)
    # For Normals of different width the distance gives too little information.
    doubtful = ~far & (assigned <= fit) & (most - chance > fit)
    if doubtful.any() and isinstance(family, GaussianObservations):
        normals = family.observation_moments(natural)
        exactly = information(normals, a[doubtful], b[doubtful], share[doubtful])
        exactly = total[doubtful] * exactly - chance[doubtful]
        assigned[doubtful] = np.maximum(assigned[doubtful], exactly)
    return np.where(far, -np.inf, assigned - fit)


def _separation(
    family: GaussianObservations,
    natural: FloatArray,
    prior: FloatArray,
    counts: FloatArray,
    a: IntArray,
    b: IntArray,
) -> FloatArray:
    """Distance of two components in standard deviations of their observations.

    The prior is subtracted where ``counts`` of both, (m,), suffice. It is often as wide as all
    data, and makes components seem wider than they are.
    """
    with_prior = family.separation(natural[a], natural[b])
    with np.errstate(divide="ignore", invalid="ignore"):  # of components without observations
        observed = family.separation(natural[a] - prior, natural[b] - prior)
    enough = np.isfinite(observed) & (counts > 2.0 * family.least_count)
    return np.where(enough, observed, with_prior)


def _divergence_of_two(
    family: Tempered,
    natural: FloatArray,
    share: FloatArray,
    a: IntArray,
    b: IntArray,
    common: FloatArray | float,
) -> FloatArray:
    """Divergence of two components from their average, in nats per observation.

    Both are compared at one effective size, ``common``.
    """
    size = family.effective_size(natural)
    alike = family.tempered(natural, common / size)
    log_partition = family.log_partition(alike)
    middle = share[:, None] * alike[a] + (1.0 - share)[:, None] * alike[b]
    gap = share * log_partition[a] + (1.0 - share) * log_partition[b]
    gap -= family.log_partition(middle)
    return np.asarray(gap / np.broadcast_to(common, size.shape)[a])
