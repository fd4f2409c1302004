"""Merging clusters one pair at a time, always the cheapest, with few comparisons.

The Jensen gap of a union is at least the sum of its parts' gaps. So what it takes to merge ``c``
with the union of ``a`` and ``b`` is at least what it takes with either, less what merging those
took. Where that bound is far from the smallest price nothing is computed until it no longer is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion.merging.nearest import Nearest
from klfusion.objective.clusters import Clusters, how_many_shared

# Bounds below so many times the smallest price are made exact: of a cluster just merged, and of one
# whose bound has become the smallest.
_SOON, _NOW = 1.5, 2.0


class Pricing(Protocol):
    """What merges cost, given what they add to the gaps."""

    def prices(self, increases: FloatArray, a: int, others: IntArray) -> FloatArray:
        """Of merging cluster ``a`` with each other, rising with the increase."""

    def increases(self, prices: FloatArray, a: int, others: IntArray) -> FloatArray:
        """The increases that make such prices."""

    def merge(self, a: int, b: int) -> None:
        """Cluster ``b`` is part of ``a`` from now on."""


@dataclass(frozen=True, eq=False)
class Merge:
    """A merge that was made.

    Parameters
    ----------
    a, b : int
        Cluster ``b`` became part of ``a``.
    price, increase : float
    counts : tuple of two ints
        Components of each before.
    others : int array of shape (m,)
        The other clusters.
    meet : bool array of shape (m,)
        Whether they hold a silo that the union holds, too.
    increases : array of shape (m,)
        What merging the union with them takes; exact where asked for, else it may be a bound.
    """

    a: int
    b: int
    price: float
    increase: float
    counts: tuple[int, int]
    others: IntArray
    meet: BoolArray
    increases: FloatArray


def agglomerate(
    state: Clusters,
    pairs: Nearest,
    pricing: Pricing,
    *,
    apart: bool = True,
    also_meeting: bool = False,
    most: float = np.inf,
) -> Iterator[Merge]:
    """Merge the cheapest pair, again and again, and tell of each merge once it is made.

    Parameters
    ----------
    state : Clusters
        Single components; clusters are merged in it.
    pairs : Nearest
        Prices of all pairs of components, infinite where they may not merge.
    pricing : Pricing
    apart : bool
        Whether clusters that hold a common silo stay apart.
    also_meeting : bool
        Whether to compute exactly what it would take to merge those, too.
    most : float
        Where to stop: the first price that is no smaller.

    Yields
    ------
    Merge
    """
    holds = state.occupied().astype(np.float32) * apart
    bounded = np.zeros((state.size, state.size), dtype=bool)
    while (price := float(pairs.smallest.min(initial=np.inf))) < most:
        a = int(pairs.smallest.argmin())
        b = int(pairs.nearest[a])
        if bounded[a, b]:
            one = a if state.counts[a] > 1 else b
            _settle(state, pairs, pricing, bounded, one, max(price, _NOW * price))
            continue
        increase = float(pricing.increases(np.array([price]), a, np.array([b]))[0])
        counts = int(state.counts[a]), int(state.counts[b])
        others = np.flatnonzero(state.counts)
        others = others[(others != a) & (others != b)]
        known = [pricing.increases(pairs.matrix[one, others], one, others) for one in (a, b)]
        increases = np.maximum(*known) - increase
        state.merge(a, b, increase)
        pricing.merge(a, b)
        holds[a] += holds[b]
        meet = how_many_shared(holds[others], holds[a]) > 0
        later = ~meet & (pricing.prices(increases, a, others) > _SOON * price)
        exact = ~later if also_meeting else ~(later | meet)
        increases[exact] = state.merge_increases_with(a, others[exact])
        bounded[a, :] = bounded[:, a] = False
        bounded[a, others[later]] = bounded[others[later], a] = True
        prices = np.where(meet, np.inf, pricing.prices(increases, a, others))
        pairs.replace(a, b, others, prices)
        yield Merge(a, b, price, increase, counts, others, meet, increases)


def _settle(
    state: Clusters, pairs: Nearest, pricing: Pricing, bounded: BoolArray, one: int, most: float
) -> None:
    """Put exact prices of a cluster in the place of bounds up to ``most``."""
    others = np.flatnonzero(bounded[one] & (pairs.matrix[one] <= most))
    increases = state.merge_increases_with(one, others)
    bounded[one, others] = bounded[others, one] = False
    pairs.correct(one, others, pricing.prices(increases, one, others))
