"""The penalty ``penalty * sum_g sqrt(n_g)`` of a binary plan, and its changes.

Cluster ``g`` has ``n_g`` local components. The penalty is the L2,2,1 norm of the paper, concave in
the counts: the next member of a large cluster costs less than that of a small one.
"""

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray

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
