"""Array types used throughout, the numbering of labels, and the penalty of counts.

The penalty of a binary plan is ``penalty * sum_g sqrt(n_g)``, where cluster ``g`` has ``n_g`` local
components. It is the L2,2,1 norm of the paper, concave in the counts: the next member of a large
cluster costs less than that of a small one.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.intp]
BoolArray: TypeAlias = NDArray[np.bool_]


TINY = float(np.finfo(np.float64).tiny)  # the smallest number of full precision
ROUNDING = float(np.finfo(np.float64).eps)  # of one operation, relative
BLOCK_ENTRIES = 1 << 20  # numbers in a block of rows, 8 MB
CACHED_ENTRIES = 1 << 17  # the same, where temporary arrays are to stay in the cache


def blocks(shape: tuple[int, ...], entries: int = BLOCK_ENTRIES) -> list[slice]:
    """The rows of a large array of this shape, in blocks; one block of a small one."""
    step = max(1, entries // max(1, int(np.prod(shape[1:]))))
    return [slice(low, min(low + step, shape[0])) for low in range(0, max(1, shape[0]), step)]


def in_blocks(
    function: Callable[[FloatArray], FloatArray], rows: FloatArray, entries: int = CACHED_ENTRIES
) -> FloatArray:
    """A function of each row, ``(n, p) -> (n, ...)``, whose temporary arrays stay small."""
    some = blocks(rows.shape, entries)
    first = function(rows[some[0]])
    if len(some) == 1:
        return first
    out = np.empty((len(rows), *first.shape[1:]))
    out[some[0]] = first
    for own in some[1:]:
        out[own] = function(rows[own])
    return out


def relabel(labels: IntArray) -> IntArray:
    """Labels (n,) numbered 0..G-1 without gaps, in the order they had."""
    return np.unique(labels, return_inverse=True)[1].astype(np.intp)


def by_size(counts: IntArray, labels: IntArray, positions: IntArray | None = None) -> IntArray:
    """The labels 0..G-1, the largest first; labels of one size in the order they appear.

    Sizes are ``counts`` (G,). Labels appear in ``labels`` (n,), where -1 is none, at ``positions``
    (n,).
    """
    positions = np.arange(len(labels)) if positions is None else positions
    first = np.full(len(counts), np.iinfo(np.intp).max)
    used = labels >= 0
    np.minimum.at(first, labels[used], positions[used])
    return np.lexsort([first, -counts])


def numbering(order: IntArray, size: int) -> IntArray:
    """New numbers (size + 1,) if the labels in ``order`` become 0, 1, ...; all others are -1."""
    numbers = np.full(size + 1, -1, dtype=np.intp)
    numbers[order] = np.arange(len(order))
    return numbers


Counts = IntArray | FloatArray


def penalties(counts: Counts, penalty: float) -> FloatArray:
    """Penalty of each cluster."""
    return np.asarray(penalty * np.sqrt(counts))


def total_penalty(counts: Counts, penalty: float) -> float:
    """Penalty of all clusters."""
    return float(penalty * np.sqrt(counts).sum())


def joining(counts: Counts, penalty: float) -> FloatArray:
    """Increase of the penalty if one component joins each cluster."""
    return np.asarray(penalty * (np.sqrt(counts + 1.0) - np.sqrt(counts)))


def tangents(counts: Counts, penalty: float) -> FloatArray:
    """Slope of each cluster's penalty at its count: optima at these prices raise no objective."""
    return np.asarray(0.5 * penalty / np.sqrt(np.maximum(counts, 1)))


def merge_saving(n_a: Counts | int, n_b: Counts | int) -> FloatArray:
    """Decrease of ``sum_g sqrt(n_g)`` if clusters of ``n_a`` and ``n_b`` components merge."""
    return np.asarray(np.sqrt(n_a) + np.sqrt(n_b) - np.sqrt(n_a + n_b))
