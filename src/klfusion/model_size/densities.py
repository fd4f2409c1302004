"""Densities of log-distances: of components that are the same, and of different ones.

The distance of two components is their symmetrised divergence, times half the harmonic mass. It is
close to a quadratic form of the difference of two estimates, so a distance has nearly a scaled F
distribution: ``x = location + log F(k, nu)``. ``k`` is the number of directions in which components
differ, ``nu`` is how well their spread is known. Pairs of one silo are known to differ; they show
the density of *different*. The density of *same* is learned with the matching. Location, ``k`` and
``nu`` are integrated out over a grid.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from klfusion._utils.arrays import TINY, FloatArray, IntArray, blocks
from klfusion.model_size.log_f import (
    LOWEST,
    NEVER,
    TABULATED,
    at_places,
    different_grid,
    exp_of_less,
    grid_prior,
    interpolate,
    log_f,
    log_sum,
    logaddexp,
    lowest_location,
    outliers_beside,
    places_of,
    same_densities,
    same_grid,
)

_BLOCK_ENTRIES = 1 << 16  # log-odds in a block, which stays in the cache
_MOST_QUANTILES = 300  # that stand for all pairs
_MOST_FACTORS = 1000  # between 1 and 2, whose product is finite


def log_distance(distance: FloatArray) -> FloatArray:
    """Logarithm; copies have a finite one."""
    return np.asarray(np.log(np.maximum(distance, TINY)))


def _quantiles(x: FloatArray, weights: FloatArray, at: FloatArray) -> FloatArray:
    """Quantiles of a weighted sample."""
    if (weights == weights[0]).all():  # sorting takes less time than an order
        ascending, ordered = np.sort(x), weights
    else:
        order = np.argsort(x)  # of equal numbers any may be first
        ascending, ordered = x[order], weights[order]
    below = np.cumsum(ordered) - 0.5 * ordered
    return np.asarray(np.interp(at, below / weights.sum(), ascending))


@dataclass(frozen=True, eq=False)
class Different:
    """Density of log-distances between different components."""

    centre: float  # median log-distance of the pairs; the tables are relative to it
    table: FloatArray

    @classmethod
    def of(
        cls,
        pairs: FloatArray,
        n_independent: float,
        splits: float,
        n_parameters: float,
        weights: FloatArray | None = None,
    ) -> "Different":
        """Fit to log-distances of pairs; a share of ``splits`` are parts of one component.

        The pairs count by their ``weights``, else alike, as ``n_independent`` observations.
        Components of ``n_parameters`` vary in as many directions at most. More mean that they keep
        apart; their prior falls as one over k.
        """
        weights = np.ones(len(pairs)) if weights is None else weights
        if len(pairs) > _MOST_QUANTILES:  # they say as much
            at = (np.arange(_MOST_QUANTILES) + 0.5) / _MOST_QUANTILES
            pairs, weights = _quantiles(pairs, weights, at), np.ones(_MOST_QUANTILES)
        centre = float(_quantiles(pairs, weights, np.array([0.5]))[0])
        order = np.argsort(pairs, kind="stable")
        y, weights = np.maximum(pairs - centre, LOWEST)[order], weights[order] / weights.sum()
        k, nu, location = different_grid()
        location = location / np.sqrt(max(n_independent, 1))
        split = np.array(np.log(splits / -LOWEST))
        total = np.zeros(len(k))
        for own in blocks((len(y), len(k)), _BLOCK_ENTRIES):
            each = log_f(y[own], location, k, nu)
            each += np.log1p(-splits)
            near = each[: np.searchsorted(y[own], 0.0)]
            logaddexp(near, split, near)
            total += weights[own] @ each
        prior = np.minimum(0.0, np.log(max(n_parameters, 1.0) / k))
        weight = total * max(n_independent, 1) + prior
        weight -= log_sum(weight.copy())
        some = weight > -10.0
        location, k, nu, table = location[some], k[some], nu[some], np.empty(len(TABULATED))
        for own in blocks((len(TABULATED), len(k)), _BLOCK_ENTRIES):
            density = log_f(TABULATED[own], location, k, nu)
            density += weight[some]
            table[own] = log_sum(density)
        top = int(table.argmax())
        table[top:] = table[top]  # what is farther is no less different
        return cls(centre, table)

    @property
    def tabulated(self) -> FloatArray:
        """The log-distances of the table."""
        return self.centre + TABULATED

    def log_density(self, x: FloatArray) -> FloatArray:
        """Of log-distances."""
        return at_places(self.table, places_of(x - self.centre))


@dataclass(frozen=True, eq=False)
class Same:
    """Density of log-distances between a component and others of its cluster."""

    centre: float  # that of `Different`
    table: FloatArray
    outlier: FloatArray  # of components that lie anywhere between same and different
    location: float  # relative to the centre

    @classmethod
    def of(cls, centre: float, log_likelihood: FloatArray, noise: float, nearest: float) -> "Same":
        """Average over the grid, weighted by its log-likelihood; as `log_marginal`."""
        lowest = lowest_location(noise - centre, nearest - centre)
        posterior = log_likelihood + grid_prior(noise - centre, nearest - centre)
        weight = np.exp(posterior - posterior.max())
        weight /= weight.sum()
        with np.errstate(divide="ignore"):
            table, other = (
                np.maximum(np.log(one @ weight), NEVER) for one in same_densities(lowest)
            )
        top = int(table.argmax())
        table[:top] = table[top]  # what is nearer is no less alike
        return cls(centre, table, other, float(weight @ same_grid(lowest).location))

    def log_density(self, x: FloatArray) -> FloatArray:
        """Of log-distances."""
        return at_places(self.table, places_of(x - self.centre))

    def log_outlier(self, x: FloatArray, outliers: float) -> FloatArray:
        """Log-likelihood ratio of outliers against all components of a cluster.

        They are the same share of all as others are of those that are taken for outliers.
        """
        places, kept = places_of(x - self.centre), np.log1p(-outliers)
        inlier, outlier = at_places(self.table, places), at_places(self.outlier, places)
        every = logaddexp(kept + inlier, np.log(outliers) + outlier)
        return logaddexp(kept + outlier - every, np.full(x.shape, np.log(outliers)))

    def log_odds(
        self,
        x: FloatArray,
        different: FloatArray,
        shift: FloatArray,
        other: Different,
        outliers: float,
    ) -> FloatArray:
        """Log-likelihood ratio of *same* against *different* that lie farther by ``shift``.

        Under *different* the log-distance is ``different``, unless ``x`` is that of an outlier.
        """
        places = places_of(x - self.centre)  # of both: they have one centre
        inlier = at_places(self.table, places) - other.log_density(different - shift)
        outlier = at_places(self.outlier, places) - at_places(other.table, places)
        return logaddexp(np.log1p(-outliers) + inlier, np.log(outliers) + outlier)

    @property
    def ratio(self) -> float:
        """Squared distance of different components over that of noise, between two."""
        return float(noise_ratio(self.location))


def grid_log_odds(
    x: FloatArray,
    shift: FloatArray,
    other: Different,
    outliers: float,
    noise: float,
    nearest: float,
) -> FloatArray:
    """`Same.log_odds` of log-distances (m,) at each possible point of the grid, (m, grid).

    Which are possible depends on ``noise`` and ``nearest``, see `log_marginal`.
    """
    grid = same_grid(lowest_location(noise - other.centre, nearest - other.centre))
    inlier, failed, beside = np.empty((3, len(x), len(grid.prior)))
    places = places_of(x - other.centre)
    interpolate(grid.density, places, inlier, beside)
    interpolate(grid.outlier, places, failed, beside)
    inlier += (np.log1p(-outliers) - other.log_density(x - shift))[:, None]
    failed += (np.log(outliers) - at_places(other.table, places))[:, None]
    return logaddexp(inlier, failed, inlier, beside)


def grouped_log_odds(
    x: FloatArray,
    shift: FloatArray,
    group: IntArray,
    other: Different,
    outliers: float,
    noise: float,
    nearest: float,
) -> FloatArray:
    """Sums of `grid_log_odds` over groups, (groups, grid); those of a group are neighbours.

    A log-odds is that of an inlier, ``a``, plus ``log(1 + exp(b - a))`` with that of an outlier,
    ``b``. Interpolation is linear. So the sum of the former is a product of weights and the table,
    and ``b - a`` is interpolated at once. Logarithms are of products over groups.
    """
    lowest = lowest_location(noise - other.centre, nearest - other.centre)
    grid, beside = same_grid(lowest), outliers_beside(lowest)
    places = low, share = places_of(x - other.centre)
    inlier = np.log1p(-outliers) - other.log_density(x - shift)
    weight, column = np.concatenate([1.0 - share, share]), np.concatenate([low, low + 1])
    shape = int(group[-1]) + 1, len(TABULATED)
    out = csr_array((weight, (np.tile(group, 2), column)), shape) @ grid.density
    out += np.bincount(group, inlier)[:, None]
    apart = np.log(outliers) - at_places(other.table, places) - inlier
    step = max(1, min(_BLOCK_ENTRIES // out.shape[1], _MOST_FACTORS, len(x)))
    room = np.empty((2, step, out.shape[1]))
    for start in range(0, len(x), step):
        rows = slice(start, start + step)
        own, (above, some) = group[rows], room[:, : len(x) - start]
        first = np.flatnonzero(np.diff(own, prepend=-1))
        interpolate(beside, (low[rows], share[rows]), above, some)
        above += apart[rows, None]
        out[own[first]] += np.add.reduceat(np.clip(above, 0.0, np.inf, out=some), first, axis=0)
        softened = exp_of_less(above)
        softened += 1.0
        out[own[first]] += np.log(np.multiply.reduceat(softened, first, axis=0))
    return np.asarray(out)


def log_marginal(
    log_likelihood: FloatArray, centre: float, noise: float, nearest: float
) -> FloatArray:
    """Log-likelihoods (..., grid) with the grid integrated out, (...).

    ``noise`` is the log-distance of two estimates of one component, without variation. *Same* lies
    no nearer than that, unless the ``nearest`` components do: nearer points are not possible.
    """
    return log_sum(log_likelihood + grid_prior(noise - centre, nearest - centre))


def noise_ratio(location: FloatArray | float) -> FloatArray:
    """Squared distance of different components over that of noise, from a relative location."""
    return np.asarray(np.maximum(np.exp(np.minimum(-np.asarray(location), -LOWEST)) - 1.0, 0.1))


def farther(
    n_a: FloatArray | float, n_b: FloatArray | float, ratio: FloatArray | float
) -> FloatArray:
    """By how much the log-distance of different clusters exceeds that of single components.

    The centre of ``n`` components has ``1/n`` of the noise, and the distance is weighted by the
    harmonic mean of the sizes.
    """
    harmonic = 2.0 * n_a * n_b / (np.asarray(n_a) + n_b)
    return np.asarray(np.log((1.0 + harmonic * ratio) / (1.0 + ratio)))
