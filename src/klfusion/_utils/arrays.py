"""Array types used throughout, and how labels are numbered."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.intp]
BoolArray: TypeAlias = NDArray[np.bool_]


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
