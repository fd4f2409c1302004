"""The loop of every agglomerative path: always merge the pair of clusters with the lowest price."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.penalty import merge_saving
from klfusion._utils.progress import Report
from klfusion.objective.clusters import Clusters
from klfusion.objective.merge_path import MergePath


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

    def prices(self, increases: FloatArray, a: IntArray | int, b: IntArray) -> FloatArray:
        """Prices of merging clusters ``a`` and ``b``; a larger increase has a higher price."""

    def increases(self, prices: FloatArray, a: IntArray | int, b: IntArray) -> FloatArray:
        """The increases that have such prices."""

    def merge(self, a: int, b: int) -> None:
        """Cluster ``b`` becomes part of ``a``."""


class PenaltyPricing:
    """Price of a merge: the penalty above which it lowers the objective."""

    def __init__(self, state: Clusters) -> None:
        self._counts = state.counts

    def prices(self, increases: FloatArray, a: IntArray | int, b: IntArray) -> FloatArray:
        """Increase of the gaps per decrease of ``sum_g sqrt(n_g)``."""
        return np.asarray(increases / merge_saving(self._counts[a], self._counts[b]))

    def increases(self, prices: FloatArray, a: IntArray | int, b: IntArray) -> FloatArray:
        """The inverse of `prices`."""
        return np.asarray(prices * merge_saving(self._counts[a], self._counts[b]))

    def merge(self, a: int, b: int) -> None:
        """Nothing to do: the counts are the state's own."""


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
