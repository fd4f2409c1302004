"""All matchings of two silos: the evidence of every size, and the probability of every pair.

Two silos may have many matchings that are almost equally probable, none of which is more probable
than that of nothing. So all of them count, and not only the most probable one of each size. Belief
propagation between the components of both silos gives the sum over matchings of all sizes,

    Z(s) = sum_k e_k exp(s k),    e_k = sum over matchings of k pairs of prod (odds of their pairs),

in Bethe's approximation, and the marginals of pairs (Huang and Jebara 2009; Vontobel 2013). The
saddle point of ``log Z(s) - s k`` gives ``log e_k`` (Daniels 1954). There is one such sum for each
point of the grid of `Same`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import log_softmax

from klfusion._utils.arrays import FloatArray, IntArray, relabel
from klfusion.model_size.densities import Different, grid_log_odds, log_distance, log_marginal
from klfusion.model_size.distances import pair_distances
from klfusion.model_size.evidence import LinkageSettings, log_odds_shared, noise_distance
from klfusion.model_size.log_f import grid_prior
from klfusion.model_size.partitions import PartitionPrior
from klfusion.objective.problem import FusionProblem

_STEP = 2.0  # nats
_TILTS = np.arange(-12.0, 9.0, _STEP)  # log-odds s that are added to those of all pairs
_PASSES = 60  # of messages, at most
_SETTLED = 1e-3  # change of a message
_CERTAIN = 600.0  # nats; more may overflow
_TINY = 1e-6  # a probability that stands for none
_NEGLIGIBLE = 12.0  # nats below the best point of the grid, by the most probable matchings
_MOST_ENTRIES = 1 << 18  # log-odds of all pairs at all points; of more, the path's matchings stand


@dataclass(frozen=True, eq=False)
class AllMatchings:
    """All matchings of two silos, under the model."""

    problem: FusionProblem
    sums: Matchings  # at the points of the grid that are not negligible
    log_prior: FloatArray  # of these points
    evidence: FloatArray  # of 0, 1, ... pairs
    likelihood: FloatArray  # log-likelihood ratio at each point of the grid, (sizes, grid)

    @classmethod
    def of(
        cls,
        problem: FusionProblem,
        different: Different,
        settings: LinkageSettings,
        on_path: tuple[FloatArray, FloatArray, float],
    ) -> AllMatchings | None:
        """From the result of `path_evidence`; None if there are too many components."""
        _, likelihood, nearest = on_path
        noise = noise_distance(problem)
        log_prior = grid_prior(noise - different.centre, nearest - different.centre)
        sizes = np.full((len(likelihood) - 1, 2), 1)
        of_size = PartitionPrior(2).along(problem.n, sizes)
        weight = (likelihood + of_size[:, None])[1:].max(axis=0) + log_prior
        points = np.flatnonzero(weight > weight.max() - _NEGLIGIBLE)
        first, second = problem.silos
        x = log_distance(pair_distances(problem)[first, second])
        if x.size * len(points) > _MOST_ENTRIES:
            return None
        of_grid = settings.failed_fits, noise, nearest
        odds = grid_log_odds(x.ravel(), np.zeros(x.size), different, *of_grid)
        sums = Matchings(odds.T[points].reshape(-1, *x.shape))
        likelihood = likelihood.copy()
        likelihood[:, points] = sums.log_sums
        evidence = log_marginal(likelihood, different.centre, noise, nearest) + of_size
        return cls(problem, sums, log_prior[points], evidence, likelihood)

    def labels(self, evidence: FloatArray) -> IntArray:
        """Labels, given the evidence of sizes.

        If it is more probable than not that something is shared, pairs are matched that are more
        probable than not, given that.
        """
        labels = np.arange(self.problem.n, dtype=np.intp)
        if log_odds_shared(evidence) > 0.0:
            given = np.append(-np.inf, evidence[1:])
            a, b = np.nonzero(self.sums.probabilities(self.log_prior, given) > 0.5)
            first, second = self.problem.silos
            labels[second.start + b] = first.start + a
        return relabel(labels)


@dataclass(frozen=True, eq=False)
class Matchings:
    """All matchings with log-odds (m, L, G) of pairs at ``m`` points of a grid."""

    log_odds: FloatArray

    @cached_property
    def log_sums(self) -> FloatArray:
        """Logarithms of the sums over matchings of 0, 1, ... pairs, (sizes, m)."""
        log_sum, pairs = self._tilted
        size = np.arange(min(self.log_odds.shape[1:]) + 1.0)[:, None, None]
        variance = np.maximum(np.gradient(pairs, _STEP, axis=0), 1e-9)
        bound = log_sum - _TILTS[:, None] * size  # (sizes, tilts, m)
        best = bound.argmin(axis=1)[:, None]
        of_best, off, bound = (
            np.take_along_axis(np.broadcast_to(each, bound.shape), best, axis=1)[:, 0]
            for each in (variance, size - pairs, bound)
        )
        off = np.minimum(np.abs(off), 0.5 * _STEP * of_best)  # beyond, another tilt is nearer
        out = bound - 0.5 * off**2 / of_best
        out -= 0.5 * np.log(np.maximum(2.0 * np.pi * of_best, 1.0))
        out[0] = 0.0
        return np.asarray(out)

    def probabilities(self, log_prior: FloatArray, evidence: FloatArray) -> FloatArray:
        """Of each pair, (L, G), given the log-prior of the grid (m,) and the evidence of sizes."""
        weight = log_softmax(self.log_sums + log_prior, axis=1) + log_softmax(evidence)[:, None]
        pairs, out = self._tilted[1], np.zeros(self.log_odds.shape[1:])
        share = np.zeros_like(pairs)  # of each tilt: marginals of a size lie between those of two
        point = np.arange(pairs.shape[1])
        for size in range(1, len(weight)):
            high = np.clip((pairs < size).sum(axis=0), 1, len(pairs) - 1)
            low, above = pairs[high - 1, point], pairs[high, point]
            way = np.clip((size - low) / np.maximum(above - low, 1e-9), 0.0, 1.0)
            share[high - 1, point] += (1.0 - way) * np.exp(weight[size])
            share[high, point] += way * np.exp(weight[size])
        some = share.max(axis=0) > _TINY
        propagated = Matchings(self.log_odds[some])._propagated()
        for own, (_, together) in zip(share[:, some], propagated, strict=True):
            out += np.tensordot(own, together, axes=1)
        return out

    @cached_property
    def _tilted(self) -> tuple[FloatArray, FloatArray]:
        """Logarithm of the sum over all matchings, and expected pairs, at each tilt, (tilts, m)."""
        found = [(total, together.sum(axis=(1, 2))) for total, together in self._propagated()]
        log_sum, pairs = (np.stack(each) for each in zip(*found, strict=True))
        return log_sum, pairs

    def _propagated(self) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Logarithms of sums over matchings (m,), and marginals of pairs (m, L, G), of each tilt.

        Messages begin with those of the tilt before.
        """
        free = np.ones_like(self.log_odds)  # messages: that no other row takes the column
        for tilt in _TILTS:
            odds = np.exp(np.clip(self.log_odds + tilt, -_CERTAIN, _CERTAIN))
            _settle(odds, free)
            row = 1.0 / (1.0 + others(odds * free, axis=2))
            together = odds * free * row
            total = np.log1p((odds * free).sum(axis=2)).sum(axis=1)
            total += np.log1p((odds * row).sum(axis=1)).sum(axis=1)
            total -= np.log1p(together).sum(axis=(1, 2))
            yield total, together / (1.0 + together)


def _settle(odds: FloatArray, free: FloatArray) -> None:
    """Pass messages at each point, (m, L, G), until they stay; ``free`` is changed in place."""
    moving = np.arange(len(odds))
    for _ in range(_PASSES):
        own = odds[moving]
        row = 1.0 / (1.0 + others(own * free[moving], axis=2))
        after = 1.0 / (1.0 + others(own * row, axis=1))
        change = np.abs(after - free[moving]).max(axis=(1, 2))
        free[moving] = after
        moving = moving[change >= _SETTLED]
        if len(moving) == 0:
            break


def others(values: FloatArray, axis: int) -> FloatArray:
    """Sums along an axis without the entry itself; the largest would cancel in a difference."""
    largest = np.expand_dims(values.argmax(axis=axis), axis)
    of_largest = np.take_along_axis(values, largest, axis)
    rest = values.copy()
    np.put_along_axis(rest, largest, 0.0, axis)
    sums = rest.sum(axis=axis, keepdims=True)
    np.subtract(sums + of_largest, rest, out=rest)
    np.put_along_axis(rest, largest, sums, axis)
    return np.maximum(rest, 0.0, out=rest)
