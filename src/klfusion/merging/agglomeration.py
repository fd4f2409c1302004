"""Agglomerative paths: always merge the pair of clusters with the lowest price.

The price on the *penalty path* is the penalty above which a merge lowers the objective,
``r = increase of the Jensen gap / (sqrt(n_a) + sqrt(n_b) - sqrt(n_a + n_b))``. The path merges the
pair with the smallest ``r`` that shares no silo. One pass gives a solution for every penalty.

All pairs are candidates, with few comparisons. The Jensen gap of a union is at least the sum of its
parts' gaps. So the increase of merging ``c`` with the union of ``a`` and ``b`` has a bound: that
with either, less that of merging ``a`` and ``b``. The exact increase is computed only when this
bound comes near the lowest price.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray, merge_saving
from klfusion._utils.running import Report, require_memory
from klfusion.objective.clusters import Clusters
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import MergePath

_ALMOST_NONE = 1e-150  # a penalty at which copies alone become one
Which = IntArray | slice | int


class Merge(NamedTuple):
    """Cluster ``b`` becomes part of ``a``, which increases the Jensen gaps by ``increase``."""

    price: float
    a: int
    b: int
    increase: float


class Candidates(Protocol):
    """The merges to choose from, all pairs of clusters or some of them."""

    def cheapest(self, most: float) -> Merge | None:
        """The merge with the lowest price, if that is below ``most``."""

    def apply(self, merge: Merge) -> None:
        """Merge the two clusters, and update the candidates."""


class Pricing(Protocol):
    """Prices of merges, given the increase of the Jensen gaps."""

    def prices(self, increases: FloatArray, a: IntArray | int, b: Which) -> FloatArray:
        """Prices of merging clusters ``a`` and ``b``; a larger increase has a higher price."""

    def increases(self, prices: FloatArray, a: IntArray | int, b: Which) -> FloatArray:
        """The increases that have such prices."""

    def merge(self, a: int, b: int) -> None:
        """Cluster ``b`` becomes part of ``a``."""


class PenaltyPricing:
    """Price of a merge: the penalty above which it lowers the objective."""

    def __init__(self, state: Clusters) -> None:
        self._counts = state.counts.astype(np.float64)  # of a cluster that is gone: its last
        self._roots = np.sqrt(self._counts)

    def prices(self, increases: FloatArray, a: IntArray | int, b: Which) -> FloatArray:
        """Increase of the gaps per decrease of ``sum_g sqrt(n_g)``."""
        return np.asarray(increases / self._saving(a, b))

    def increases(self, prices: FloatArray, a: IntArray | int, b: Which) -> FloatArray:
        """The inverse of `prices`."""
        return np.asarray(prices * self._saving(a, b))

    def merge(self, a: int, b: int) -> None:
        """The counts add up."""
        self._counts[a] += self._counts[b]
        self._roots[a] = math.sqrt(self._counts[a])

    def _saving(self, a: IntArray | int, b: Which) -> FloatArray:
        """`merge_saving` of their counts."""
        together = np.sqrt(self._counts[a] + self._counts[b])
        return np.asarray(self._roots[a] + self._roots[b] - together)


def agglomerate(
    candidates: Candidates, n: int, report: Report, most: float = np.inf
) -> Iterator[Merge]:
    """Merge the cheapest of the candidates while its price is below ``most``.

    Each merge is given before it is made, so that the clusters can still be looked at. Of ``n``
    components; the number of merges goes to ``report``.
    """
    number = 0
    while (merge := candidates.cheapest(most)) is not None:
        number += 1
        yield merge
        candidates.apply(merge)
        report("merging", number, n)


def penalty_path_of(n: int, made: Sequence[Merge]) -> MergePath:
    """The path of merges whose prices are penalties."""
    price, a, b, increase = np.array(made, dtype=np.float64).reshape(-1, 4).T
    merges = np.stack([a, b], axis=1).astype(np.intp)
    return MergePath.of_merges(n, merges, increase, price)


# Bounds below this multiple of the lowest price are replaced by exact prices: those of a cluster
# just merged, and those of a cluster whose bound has become the lowest price. Larger multiples
# compute more prices that are never needed, smaller ones compute them in smaller batches.
_AFTER_MERGE, _WHEN_LOWEST = 1.5, 2.0


class Nearest:
    """A symmetric matrix of distances, and the smallest of each row."""

    def __init__(self, matrix: FloatArray) -> None:
        self.matrix = matrix
        self.nearest = matrix.argmin(axis=1)
        self.smallest = matrix[np.arange(len(matrix)), self.nearest]

    def replace(self, a: int, b: int, distances: FloatArray) -> None:
        """Give row ``a`` new distances (n,); row ``b`` has none from now on."""
        matrix = self.matrix
        matrix[b] = matrix[:, b] = np.inf
        matrix[a] = matrix[:, a] = distances
        stale: BoolArray = (self.nearest == a) | (self.nearest == b)
        stale[a] = stale[b] = True
        self._search(stale.nonzero()[0])
        closer = (distances < self.smallest).nonzero()[0]
        self.nearest[closer], self.smallest[closer] = a, distances[closer]

    def raise_to(self, a: int, others: IntArray, distances: FloatArray) -> None:
        """Give row ``a`` distances to ``others`` that are no smaller than before."""
        self.matrix[a, others] = self.matrix[others, a] = distances
        self._search(np.append(others[self.nearest[others] == a], a))

    def _search(self, rows: IntArray) -> None:
        own = self.matrix[rows]
        nearest = own.argmin(axis=1)
        self.nearest[rows] = nearest
        self.smallest[rows] = own[np.arange(len(rows)), nearest]


class AllPairs:
    """Candidates: every pair of clusters with a finite price.

    The ``state`` has single components, with ``prices``, (n, n), infinite for pairs that may not
    merge. A union may not merge with what one of its parts may not. Some prices may be lower
    bounds, those ``bounded``, (n, n).
    """

    def __init__(
        self,
        state: Clusters,
        prices: FloatArray,
        pricing: Pricing,
        bounded: BoolArray | None = None,
    ) -> None:
        every = np.arange(state.size)
        self._state, self._pricing = state, pricing
        self._increases = pricing.increases(prices, every[:, None], every)
        self._pairs = Nearest(prices)
        none = np.zeros((state.size, state.size), dtype=bool)
        self._bounded = none if bounded is None else bounded

    def cheapest(self, most: float) -> Merge | None:
        """The pair with the lowest price; bounds that are lower are made exact first."""
        pairs = self._pairs
        while (price := float(pairs.smallest[a := int(pairs.smallest.argmin())])) < most:
            b = int(pairs.nearest[a])
            if not self._bounded[a, b]:
                return Merge(price, a, b, float(self._increases[a, b]))
            self._make_exact(
                a if self._state.counts[a] > 1 else b, max(price, _WHEN_LOWEST * price)
            )
        return None

    def apply(self, merge: Merge) -> None:
        """Merge two clusters; prices of the union are exact where they are low, else bounds."""
        price, a, b, increase = merge
        pricing, matrix = self._pricing, self._increases
        increases = np.maximum(matrix[a], matrix[b])
        increases -= increase
        self._state.merge(a, b, increase)
        pricing.merge(a, b)
        prices = pricing.prices(increases, a, slice(None))
        exact = (prices <= _AFTER_MERGE * price).nonzero()[0]
        if len(exact):
            found = increases[exact] = self._state.merge_increases_with(a, exact)
            prices[exact] = pricing.prices(found, a, exact)
        matrix[b] = matrix[:, b] = np.inf
        matrix[a] = matrix[:, a] = increases
        bounded = np.isfinite(prices)
        bounded[exact] = False
        self._bounded[a] = self._bounded[:, a] = bounded
        self._pairs.replace(a, b, prices)

    def _make_exact(self, one: int, most: float) -> None:
        """Replace a cluster's bounds up to ``most`` by exact prices."""
        others = np.flatnonzero(self._bounded[one] & (self._pairs.matrix[one] <= most))
        increases = self._state.merge_increases_with(one, others)
        self._bounded[one, others] = self._bounded[others, one] = False
        self._increases[one, others] = self._increases[others, one] = increases
        self._pairs.raise_to(one, others, self._pricing.prices(increases, one, others))


def penalty_path(problem: FusionProblem, report: Report, most: float = np.inf) -> MergePath:
    """Agglomerate while a merge pays at penalty ``most``: O(n^2) log-partitions and memory."""
    n = problem.n
    require_memory(
        4 * 8 * n * n,
        f"comparing all pairs of {n:,} components",
        "use kf.Binary with a penalty or n_components=, or drop components without data",
    )
    report("comparing", 0, None)
    state = Clusters(problem, np.arange(n, dtype=np.intp))
    one_silo = problem.silo[:, None] == problem.silo
    increases, bounded = _pairs(state, one_silo)
    ratios = np.where(one_silo, np.inf, increases / merge_saving(1, 1))
    candidates = AllPairs(state, ratios, PenaltyPricing(state), bounded)
    return penalty_path_of(n, list(agglomerate(candidates, n, report, most)))


def _pairs(state: Clusters, one_silo: BoolArray) -> tuple[FloatArray, BoolArray | None]:
    """Increases of the gaps by merges of two components, and which of them are lower bounds.

    Those of near pairs are exact: up to a multiple of what the nearest of each have.
    """
    problem = state.problem
    least = problem.family.least_gaps(problem.natural, problem.weights)
    if least is None:
        return problem.pair_increases, None
    least[one_silo] = np.inf
    nearest = least.argmin(axis=1)
    some = np.flatnonzero(np.isfinite(least[np.arange(problem.n), nearest]))
    most = _WHEN_LOWEST * np.median(state.merge_increases(some, nearest[some])) if len(some) else 0
    a, b = np.nonzero(np.triu(least <= most))
    least[a, b] = least[b, a] = state.merge_increases(a, b)
    bounded: BoolArray = np.ones(least.shape, dtype=bool)
    bounded[a, b] = bounded[b, a] = False
    return least, bounded


def penalty_between(path: MergePath, steps: int) -> float:
    """A penalty at which so many merges lower the objective and, if possible, no more."""
    before = float(np.max(path.ratios[:steps], initial=0.0))
    after = float(path.ratios[steps]) if steps < len(path.ratios) else 1.5 * before
    if before == 0.0:  # no merge, or copies only
        return 0.5 * after or _ALMOST_NONE
    return math.sqrt(before * after)
