"""Merges of all pairs of clusters, with few comparisons.

The Jensen gap of a union is at least the sum of its parts' gaps. So the increase of merging ``c``
with the union of ``a`` and ``b`` has a bound: that with either, less that of merging ``a`` and
``b``. The exact increase is computed only when this bound comes near the lowest price.
"""

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion.merging.agglomeration import Merge, Pricing
from klfusion.objective.clusters import Clusters, shared_silos

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

    def replace(self, a: int, b: int, others: IntArray, distances: FloatArray) -> None:
        """Give row ``a`` new distances to ``others``; row ``b`` has none from now on."""
        matrix = self.matrix
        matrix[b, :] = matrix[:, b] = matrix[a, :] = matrix[:, a] = np.inf
        matrix[a, others] = matrix[others, a] = distances
        stale: BoolArray = (self.nearest == a) | (self.nearest == b)
        stale[[a, b]] = True
        self._search(np.flatnonzero(stale))
        closer = matrix[:, a] < self.smallest
        self.nearest[closer], self.smallest[closer] = a, matrix[closer, a]

    def raise_to(self, a: int, others: IntArray, distances: FloatArray) -> None:
        """Give row ``a`` distances to ``others`` that are no smaller than before."""
        self.matrix[a, others] = self.matrix[others, a] = distances
        self._search(np.append(others[self.nearest[others] == a], a))

    def _search(self, rows: IntArray) -> None:
        self.nearest[rows] = self.matrix[rows].argmin(axis=1)
        self.smallest[rows] = self.matrix[rows, self.nearest[rows]]


class AllPairs:
    """Candidates: every pair of clusters.

    The ``state`` has single components, with ``prices``, (n, n), infinite for pairs that may not
    merge. Unless ``apart`` is false, clusters that share a silo stay apart.
    """

    def __init__(
        self,
        state: Clusters,
        prices: FloatArray,
        pricing: Pricing,
        *,
        apart: bool = True,
    ) -> None:
        self._state, self._pairs, self._pricing = state, Nearest(prices), pricing
        self._holds = state.occupied().astype(np.float32) * apart
        self._bounded = np.zeros((state.size, state.size), dtype=bool)

    def cheapest(self, most: float) -> Merge | None:
        """The pair with the lowest price; bounds that are lower are made exact first."""
        pairs = self._pairs
        while (price := float(pairs.smallest.min(initial=np.inf))) < most:
            a = int(pairs.smallest.argmin())
            b = int(pairs.nearest[a])
            if not self._bounded[a, b]:
                increase = self._pricing.increases(np.array([price]), a, np.array([b]))
                return Merge(price, a, b, float(increase[0]))
            self._make_exact(
                a if self._state.counts[a] > 1 else b, max(price, _WHEN_LOWEST * price)
            )
        return None

    def apply(self, merge: Merge) -> None:
        """Merge two clusters; prices of the union are exact where they are low, else bounds."""
        price, a, b, increase = merge
        state, pricing, holds = self._state, self._pricing, self._holds
        others = np.flatnonzero(state.counts)
        others = others[(others != a) & (others != b)]
        known = [pricing.increases(self._pairs.matrix[one, others], one, others) for one in (a, b)]
        increases = np.maximum(*known) - increase
        state.merge(a, b, increase)
        pricing.merge(a, b)
        holds[a] += holds[b]
        excluded = shared_silos(holds[others], holds[a]) > 0
        later = ~excluded & (pricing.prices(increases, a, others) > _AFTER_MERGE * price)
        exact = ~(later | excluded)
        increases[exact] = state.merge_increases_with(a, others[exact])
        self._bounded[a, :] = self._bounded[:, a] = False
        self._bounded[a, others[later]] = self._bounded[others[later], a] = True
        prices = np.where(excluded, np.inf, pricing.prices(increases, a, others))
        self._pairs.replace(a, b, others, prices)

    def _make_exact(self, one: int, most: float) -> None:
        """Replace a cluster's bounds up to ``most`` by exact prices."""
        others = np.flatnonzero(self._bounded[one] & (self._pairs.matrix[one] <= most))
        increases = self._state.merge_increases_with(one, others)
        self._bounded[one, others] = self._bounded[others, one] = False
        self._pairs.raise_to(one, others, self._pricing.prices(increases, one, others))
