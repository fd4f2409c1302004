"""Before matching: leave out what is empty, and put together what one silo split.

An over-fitted mixture describes one cluster of observations by two components. They may not be
matched to one global component, and the distance between them would pass for a distance between
different ones. With the prior and the counts known, the evidence of one component against two
can be computed from the posteriors alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion.families import Centred, Family, GaussianObservations, Tempered
from klfusion.model_size.two_normals import entropy, information, information_at_distance
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import network as layers

_MAX_TRIAL_ENTRIES = 20_000_000  # larger silos are left as they are
_NEGLIGIBLE_SHARE = 0.04  # of a silo's observations
_LEAST = 0.5  # observations added to each, so that none has none
_FEW = 3.0  # times the least that can tell a shape: so few tell a wrong one, near to nothing
_FAR = 5.0  # deviations from each other: too far to be one
_NEAR = 0.7  # of the usual distance between components of one silo


def with_data(posterior: Posterior) -> IntArray:
    """The components with enough observations behind them to be matched.

    Over-fitted local models hold components that are hardly more than their prior; those of all
    silos look alike and would be fused into a component of nothing. A component is left out if it
    has too few observations to tell its shape *and* next to none of its silo's; at least the
    largest stays. Of a network, the hidden units that are switched on.
    """
    structure, counts = posterior.structure, posterior.counts
    if structure is not None and structure.kind == layers.KIND:
        return layers.kept_units(structure, 1)
    if counts is None:
        return np.arange(posterior.n_components)
    least = min(posterior.family.least_count, _NEGLIGIBLE_SHARE * float(counts.sum()))
    return np.flatnonzero((counts >= least) | (counts == counts.max()))


def may_have_splits(posterior: Posterior) -> bool:
    """Whether one component against two can be judged: a mixture of known prior and counts."""
    structure = posterior.structure
    mixture = structure is None or structure.kind == "mixture"
    return mixture and posterior.prior is not None and posterior.counts is not None


@dataclass(frozen=True, eq=False)
class Sample:
    """What silos are like, so that a part of them can be treated as all are.

    Parameters
    ----------
    natural : array of shape (n, p)
        Components.
    gap : float
        How far apart two components of one silo usually are.
    """

    natural: FloatArray
    gap: float

    @classmethod
    def of(cls, posteriors: Sequence[Posterior]) -> Sample:
        """Take some silos for all."""
        rows = [p.natural[with_data(p)] for p in posteriors]
        natural = np.concatenate(rows)
        return cls(natural, _usual_gap(_gaps_in_silos(posteriors[0].family, rows)))


def near_pairs(
    family: Family, silos: Sequence[FloatArray], sample: Sample | None = None
) -> list[BoolArray]:
    """Which components of a silo are nearer to each other than those of one silo usually are.

    Parameters
    ----------
    family : Family
    silos : sequence of arrays of shape (L, p)
    sample : Sample, optional
        Tells what is usual; default: these silos.

    Returns
    -------
    list of bool arrays of shape (L, L)
    """
    if sample is None:
        gaps = _gaps_in_silos(family, silos)
        usual = _usual_gap(gaps)
    else:
        gaps, usual = _gaps_in_silos(family, silos, sample.natural), sample.gap
    return [gap < _NEAR * usual for gap in gaps]


def _gaps_in_silos(
    family: Family, silos: Sequence[FloatArray], *like: FloatArray
) -> list[FloatArray]:
    stacked = np.concatenate(silos)
    if isinstance(family, Centred):
        stacked = family.centred(stacked, *like)
    if isinstance(family, Tempered):
        stacked = family.comparable(stacked, *like)
    edges = np.cumsum([0, *(len(silo) for silo in silos)])
    return [_pairwise_gaps(family, stacked[a:b]) for a, b in pairwise(edges)]


def _usual_gap(gaps: Sequence[FloatArray]) -> float:
    all_gaps = np.concatenate([gap[np.triu_indices(len(gap), k=1)] for gap in gaps])
    return float(np.median(all_gaps)) if len(all_gaps) else 0.0


def _pairwise_gaps(family: Family, natural: FloatArray) -> FloatArray:
    """Jensen gap of each pair, (L, L); infinite where there are too many to compute."""
    n = len(natural)
    if n * n * natural.shape[1] > _MAX_TRIAL_ENTRIES:
        return np.full((n, n), np.inf)
    a, b = np.triu_indices(n, k=1)
    log_partition = family.log_partition(natural)
    middle = family.log_partition(0.5 * (natural[a] + natural[b])) if len(a) else np.empty(0)
    gaps = np.full((n, n), np.inf)
    gaps[a, b] = gaps[b, a] = log_partition[a] + log_partition[b] - 2.0 * middle
    return gaps


def merge_splits(
    posterior: Posterior, rows: IntArray, near: BoolArray
) -> list[tuple[IntArray, FloatArray]]:
    """Group a silo's components, and give each group's natural parameters.

    Near and overlapping components of a mixture belong together if one component is the shorter
    description of their observations: two gain less in fit than telling them apart costs.

    Parameters
    ----------
    posterior : Posterior
    rows : int array of shape (L,)
        The components to look at.
    near : bool array of shape (L, L)
        Which of them may belong together.

    Returns
    -------
    list of (rows, natural parameters)
        Single components where the prior or the counts are unknown, or it is not a mixture.
    """
    groups = [np.array([row]) for row in rows]
    natural, near = posterior.natural[rows], near.copy()
    if not may_have_splits(posterior):
        return list(zip(groups, natural, strict=True))
    prior, counts = posterior.prior, np.asarray(posterior.counts)[rows]
    few = counts < _FEW * posterior.family.least_count
    near |= few[:, None] | few
    np.fill_diagonal(near, False)
    while near.any():
        a, b = np.nonzero(np.triu(near, k=1))
        gain = _gain_of_one(posterior, natural, counts, a, b)
        best = int(gain.argmax())
        if not gain[best] > 0:
            break
        i, j = int(a[best]), int(b[best])
        groups[i] = np.concatenate([groups[i], groups.pop(j)])
        natural[i] += natural[j] - prior
        counts[i] += counts[j]
        near[i] |= near[j]
        near[:, i] |= near[:, j]
        near[i, i] = False
        near = np.delete(np.delete(near, j, axis=0), j, axis=1)
        natural, counts = np.delete(natural, j, axis=0), np.delete(counts, j)
    return list(zip(groups, natural, strict=True))


def _gain_of_one(
    posterior: Posterior, natural: FloatArray, counts: FloatArray, a: IntArray, b: IntArray
) -> FloatArray:
    """Log-evidence gained by describing each pair by one component; negative if they are apart.

    What two components gain in fit is ``A(a) + A(b) - A(a + b - prior) - A(prior)``, once it is
    known which of the two each observation is of. Saying that costs as many nats as observations
    tell of it by themselves: all of the entropy where the two are far apart, next to nothing where
    they overlap. Where data are few for their dimension, or the prior is wide, the evidence favours
    one component however far apart two are, so those that are far are left alone.
    """
    family, prior = posterior.family, posterior.prior
    assert prior is not None  # the caller has seen to it
    if not isinstance(family, Tempered):
        return np.full(len(a), -1.0)
    log_partition = family.log_partition(natural)
    together = family.log_partition(natural[a] + natural[b] - prior)
    fit = log_partition[a] + log_partition[b] - together - family.log_partition(prior[None])
    total = counts[a] + counts[b] + 2.0 * _LEAST
    share = (counts[a] + _LEAST) / total
    apart = _divergence_of_two(family, natural, share, a, b)
    each = 0.5 * family.n_parameters(natural)
    chance = np.minimum(each[a], each[b])  # nats, by which two samples of one component differ
    apart = np.maximum(apart - chance / total, 0.0)
    deviations = np.sqrt(2.0 * apart / (share * (1.0 - share)))
    told_apart = total * information_at_distance(deviations, share)
    most = total * entropy(share)
    if isinstance(family, GaussianObservations):
        far = _separation(family, natural, prior, counts[a] + counts[b], a, b) > _FAR
    else:
        far = apart > 2.0 * entropy(share)
    # Those deviations tell too little of Normals of different width.
    doubtful = ~far & (told_apart <= fit) & (most - chance > fit)
    if doubtful.any() and isinstance(family, GaussianObservations):
        normals = family.observation_moments(natural)
        exactly = information(normals, a[doubtful], b[doubtful], share[doubtful])
        exactly = total[doubtful] * exactly - chance[doubtful]
        told_apart[doubtful] = np.maximum(told_apart[doubtful], exactly)
    return np.where(far, -1.0, told_apart - fit)


def _separation(
    family: GaussianObservations,
    natural: FloatArray,
    prior: FloatArray,
    counts: FloatArray,
    a: IntArray,
    b: IntArray,
) -> FloatArray:
    """How many deviations of their observations two components are apart, where that is told.

    The prior is not counted where ``counts`` of both, (m,), are enough: it is often as wide as all
    data, and then components seem to be wide that are not.
    """
    believed = family.separation(natural[a], natural[b])
    with np.errstate(divide="ignore", invalid="ignore"):  # of components without observations
        observed = family.separation(natural[a] - prior, natural[b] - prior)
    told = np.isfinite(observed) & (counts > 2.0 * family.least_count)
    return np.where(told, observed, believed)


def _divergence_of_two(
    family: Tempered, natural: FloatArray, share: FloatArray, a: IntArray, b: IntArray
) -> FloatArray:
    """How far two components are from their average, in nats an observation."""
    size = family.effective_size(natural)
    common = float(np.exp(np.log(size).mean()))
    alike = family.tempered(natural, common / size)
    log_partition = family.log_partition(alike)
    middle = share[:, None] * alike[a] + (1.0 - share)[:, None] * alike[b]
    gap = share * log_partition[a] + (1.0 - share) * log_partition[b]
    gap -= family.log_partition(middle)
    return np.asarray(gap / common)
