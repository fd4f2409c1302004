"""Distances between clusters that merge, with the nearest of each."""

from __future__ import annotations

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray


class Nearest:
    """A symmetric matrix of distances with the smallest of each row kept up to date."""

    def __init__(self, matrix: FloatArray) -> None:
        self.matrix = matrix
        self.nearest = matrix.argmin(axis=1)
        self.smallest = matrix[np.arange(len(matrix)), self.nearest]

    def replace(self, a: int, b: int, others: IntArray, distances: FloatArray) -> None:
        """Give row ``a`` new distances to ``others``, and none to row ``b``, which is gone."""
        matrix = self.matrix
        matrix[b, :] = matrix[:, b] = matrix[a, :] = matrix[:, a] = np.inf
        matrix[a, others] = matrix[others, a] = distances
        stale: BoolArray = (self.nearest == a) | (self.nearest == b)
        stale[[a, b]] = True
        rows = np.flatnonzero(stale)
        self.nearest[rows] = matrix[rows].argmin(axis=1)
        self.smallest[rows] = matrix[rows, self.nearest[rows]]
        closer = matrix[:, a] < self.smallest
        self.nearest[closer], self.smallest[closer] = a, matrix[closer, a]

    def correct(self, a: int, others: IntArray, distances: FloatArray) -> None:
        """Give row ``a`` other distances to some, none smaller than it had."""
        matrix = self.matrix
        matrix[a, others] = matrix[others, a] = distances
        rows = np.append(others[self.nearest[others] == a], a)
        self.nearest[rows] = matrix[rows].argmin(axis=1)
        self.smallest[rows] = matrix[rows, self.nearest[rows]]
