"""Densities of log-distances: of components that are the same, and of different ones.

The distance of two components is their symmetrised divergence, times half the harmonic mass. It is
close to a quadratic form of the difference of two estimates, so a distance has nearly a scaled F
distribution: ``x = location + log F(k, nu)``. ``k`` is the number of directions in which components
differ, ``nu`` is how well their spread is known. Pairs of one silo are known to differ; they show
the density of *different*. The density of *same* is learned with the matching. Location, ``k`` and
``nu`` are integrated out over a grid.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import betaln, logsumexp, polygamma

from klfusion._utils.arrays import TINY, FloatArray, IntArray, blocks

# Degrees of freedom (k, nu) of log-distances between copies of one component, equally likely.
_SAME = np.array(
    [(k, nu) for k in (2, 5, 10, 40) for nu in (8, 300)]
    + [(20, 30), (100, 30), (100, 1000), (400, 100), (400, 3000), (2000, 3000)],
    dtype=np.float64,
)
# The same of different components. Few directions mean that some lie near by chance.
_DIFFERENT = np.array(
    [(k, nu) for k in (1, 2, 3, 5, 8, 13, 21, 34, 55, 150, 500, 2000) for nu in (6, 20, 100, 1000)],
    dtype=np.float64,
)
_STEP, _HIGH = 0.025, 4.0  # of the tabulated log-distances
LOWEST = -12.0  # log-distance over that of different components; what is nearer counts as that
_Y: FloatArray = np.arange(LOWEST, _HIGH + 0.5 * _STEP, _STEP)
_LOG_2 = float(np.log(2.0))
_BLOCK_ENTRIES = 1 << 16  # log-odds in a block, which stays in the cache
_MOST_QUANTILES = 300  # that stand for all pairs
_NEVER = -1e4  # log-density that stands for none, finite to be interpolated


def log_distance(distance: FloatArray) -> FloatArray:
    """Logarithm; copies have a finite one."""
    return np.asarray(np.log(np.maximum(distance, TINY)))


def _log_f(y: FloatArray, k: FloatArray, nu: FloatArray) -> FloatArray:
    """Log-density of the logarithm of an F variate."""
    ratio = k / nu
    tail = np.exp(y)
    tail *= ratio
    np.log1p(tail, out=tail)
    tail *= 0.5 * (k + nu)
    out = np.log(ratio) + y
    out *= 0.5 * k
    out -= tail
    out -= betaln(0.5 * k, 0.5 * nu)
    return np.asarray(out)


def _logaddexp(
    a: FloatArray,
    b: FloatArray,
    out: FloatArray | None = None,
    room: FloatArray | None = None,
) -> FloatArray:
    """`numpy.logaddexp`, five times as fast, of numbers of which the larger is finite."""
    smaller = np.minimum(a, b, out=room)
    larger = np.maximum(a, b, out=out)
    smaller -= larger
    _without_underflow(smaller)
    larger += np.log1p(np.exp(smaller, out=smaller), out=smaller)
    return np.asarray(larger)


def _log_sum(x: FloatArray) -> FloatArray:
    """`scipy.special.logsumexp` of finite numbers over the last axis; overwrites them."""
    largest = x.max(axis=-1)
    x -= largest[..., None]
    _without_underflow(x)
    return np.asarray(largest + np.log(np.exp(x, out=x).sum(axis=-1)))


def _without_underflow(x: FloatArray) -> None:
    """Raise exponents that change no sum; underflow takes several times as long."""
    np.maximum(x, 0.5 * np.log(TINY), out=x)


def _deviation(k: FloatArray, nu: FloatArray) -> FloatArray:
    """Standard deviation of the logarithm of an F variate."""
    return np.asarray(np.sqrt(polygamma(1, 0.5 * k) + polygamma(1, 0.5 * nu)))


def _places(y: FloatArray) -> tuple[IntArray, FloatArray]:
    """The entry of `_Y` below each log-distance, and the share of the way to the next."""
    place = (np.maximum(np.fmin(y, _HIGH), LOWEST) - LOWEST) / _STEP  # NaN is far
    low: IntArray = np.minimum(place.astype(np.intp), len(_Y) - 2)
    return low, place - low


def _at(table: FloatArray, places: tuple[IntArray, FloatArray]) -> FloatArray:
    """Linear interpolation of a table over `_Y`, (..., columns of the table)."""
    low, share = places
    share = share.reshape(*low.shape, *[1] * (table.ndim - 1))
    below, above = np.take(table, low, axis=0), np.take(table, low + 1, axis=0)
    return np.asarray(below * (1.0 - share) + above * share)


def _interpolate(
    table: FloatArray, places: tuple[IntArray, FloatArray], out: FloatArray, room: FloatArray
) -> None:
    """`_at` of a table (y, columns) written to ``out``, (m, columns)."""
    low, share = places[0], places[1][:, None]
    np.take(table, low, axis=0, out=out, mode="clip")  # else it would be buffered
    out *= 1.0 - share
    np.take(table, low + 1, axis=0, out=room, mode="clip")
    room *= share
    out += room


def _quantiles(x: FloatArray, weights: FloatArray, at: FloatArray) -> FloatArray:
    """Quantiles of a weighted sample."""
    order = np.argsort(x, kind="stable")
    ordered = weights[order]
    below = np.cumsum(ordered) - 0.5 * ordered
    return np.asarray(np.interp(at, below / weights.sum(), x[order]))


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
        y, weights = np.maximum(pairs - centre, LOWEST), weights / weights.sum()
        shift = np.linspace(-3.0, 3.0, 9) / np.sqrt(max(n_independent, 1))
        k, nu = (np.repeat(column, len(shift)) for column in _DIFFERENT.T)
        location = np.tile(shift, len(_DIFFERENT)) * _deviation(k, nu)
        split = np.where(y < 0, np.log(splits / -LOWEST), -np.inf)[:, None]
        total = np.zeros(len(k))
        for own in blocks((len(y), len(k)), _BLOCK_ENTRIES):
            each = _log_f(y[own, None] - location, k, nu)
            each += np.log1p(-splits)
            total += weights[own] @ _logaddexp(each, split[own], each)
        prior = np.minimum(0.0, np.log(max(n_parameters, 1.0) / k))
        weight = total * max(n_independent, 1) + prior
        weight -= logsumexp(weight)
        some = weight > -10.0
        location, k, nu, table = location[some], k[some], nu[some], np.empty(len(_Y))
        for own in blocks((len(_Y), len(k)), _BLOCK_ENTRIES):
            density = _log_f(_Y[own, None] - location, k, nu)
            density += weight[some]
            table[own] = _log_sum(density)
        top = int(table.argmax())
        table[top:] = table[top]  # what is farther is no less different
        return cls(centre, table)

    @property
    def tabulated(self) -> FloatArray:
        """The log-distances of the table."""
        return self.centre + _Y

    def log_density(self, x: FloatArray) -> FloatArray:
        """Of log-distances."""
        return _at(self.table, _places(x - self.centre))


@lru_cache(maxsize=1)
def _same_grid() -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Log-densities of the grid of `Same`, and of outliers, (y, grid); locations, log-prior."""
    steps = np.minimum(1.6 * _deviation(*_SAME.T), 0.5)
    below = [np.arange(0.1, -LOWEST, step) for step in steps]
    sizes = [len(one) for one in below]
    location = -np.concatenate(below)
    k, nu = (np.repeat(column, sizes) for column in _SAME.T)
    prior = -np.log(np.repeat(sizes, sizes) * len(_SAME))
    y = _Y[:, None] - location
    outlier = np.where((y > 0) & (_Y[:, None] < 0), -np.log(-location), _NEVER)
    return _log_f(y, k, nu), outlier, location, prior


@lru_cache(maxsize=1)
def _same_densities() -> tuple[FloatArray, FloatArray]:
    """Densities of the grid of `Same`, and of outliers, (y, grid)."""
    density, outlier, _, _ = _same_grid()
    return np.exp(density), np.exp(outlier)


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
        location = _same_grid()[2]
        posterior = log_likelihood + grid_prior(noise - centre, nearest - centre)
        weight = np.exp(posterior - posterior.max())
        weight /= weight.sum()
        with np.errstate(divide="ignore"):
            table, other = (np.maximum(np.log(one @ weight), _NEVER) for one in _same_densities())
        top = int(table.argmax())
        table[:top] = table[top]  # what is nearer is no less alike
        return cls(centre, table, other, float(weight @ location))

    def log_density(self, x: FloatArray) -> FloatArray:
        """Of log-distances."""
        return _at(self.table, _places(x - self.centre))

    def log_outlier(self, x: FloatArray, outliers: float) -> FloatArray:
        """Log-likelihood ratio of outliers against all components of a cluster.

        They are the same share of all as others are of those that are taken for outliers.
        """
        places, kept = _places(x - self.centre), np.log1p(-outliers)
        inlier, outlier = _at(self.table, places), _at(self.outlier, places)
        every = _logaddexp(kept + inlier, np.log(outliers) + outlier)
        return _logaddexp(kept + outlier - every, np.full(x.shape, np.log(outliers)))

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
        places = _places(x - self.centre)  # of both: they have one centre
        inlier = _at(self.table, places) - other.log_density(different - shift)
        outlier = _at(self.outlier, places) - _at(other.table, places)
        return _logaddexp(np.log1p(-outliers) + inlier, np.log(outliers) + outlier)

    @property
    def ratio(self) -> float:
        """Squared distance of different components over that of noise, between two."""
        return float(noise_ratio(self.location))


def grid_log_odds(
    x: FloatArray,
    shift: FloatArray,
    other: Different,
    outliers: float,
    room: FloatArray | None = None,
) -> FloatArray:
    """`Same.log_odds` of log-distances (m,) at each point of the grid, (m, grid).

    The result is in the first part of the ``room``, (3, m, grid) or more, if that is given.
    """
    density, outlier, location, _ = _same_grid()
    if room is None:
        room = np.empty((3, len(x), len(location)))
    inlier, failed, beside = room[:, : len(x)]
    places = _places(x - other.centre)
    _interpolate(density, places, inlier, beside)
    _interpolate(outlier, places, failed, beside)
    inlier += (np.log1p(-outliers) - other.log_density(x - shift))[:, None]
    failed += (np.log(outliers) - _at(other.table, places))[:, None]
    return _logaddexp(inlier, failed, inlier, beside)


def grouped_log_odds(
    x: FloatArray, shift: FloatArray, group: IntArray, other: Different, outliers: float
) -> FloatArray:
    """Sums of `grid_log_odds` over groups, (groups, grid); those of a group are neighbours."""
    out = np.zeros((group[-1] + 1, len(_same_grid()[2])))
    step = max(1, min(_BLOCK_ENTRIES // out.shape[1], len(x)))
    room = np.empty((3, step, out.shape[1]))
    for low in range(0, len(x), step):
        rows = slice(low, low + step)
        own = group[rows]
        first = np.flatnonzero(np.diff(own, prepend=-1))
        odds = grid_log_odds(x[rows], shift[rows], other, outliers, room)
        out[own[first]] += np.add.reduceat(odds, first, axis=0)
    return out


def log_marginal(
    log_likelihood: FloatArray, centre: float, noise: float, nearest: float
) -> FloatArray:
    """Log-likelihoods (..., grid) with the grid integrated out, (...).

    ``noise`` is the log-distance of two estimates of one component, without variation. *Same* lies
    no nearer than that, unless the ``nearest`` components do.
    """
    return _log_sum(log_likelihood + grid_prior(noise - centre, nearest - centre))


def grid_prior(noise: float, nearest: float) -> FloatArray:
    """Log-prior of the grid: half for the location of noise, half for any up to *different*."""
    _, _, location, prior = _same_grid()
    at, low = np.clip([noise, min(noise, nearest)], location.min(), location.max())
    some = np.abs(location - at) <= 0.5, location >= low - 0.5
    parts = [prior - logsumexp(prior[own]) + np.where(own, 0.0, _NEVER) for own in some]
    return np.asarray(np.logaddexp(*parts) - _LOG_2)


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
