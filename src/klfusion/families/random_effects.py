"""Random-effects models: how much matched components differ between silos.

As an estimate of the global component a silo's own is less precise, because components vary between
silos: variances add. The *reliability* of a part, such as means or shapes, is its intraclass
correlation. A part whose variance is all within global components does not help to match.
"""

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray

_LEAST_RELIABLE = 0.01  # so that every part counts


def group_means(values: FloatArray, labels: IntArray) -> FloatArray:
    """Average over each group, for each of its members: ``(n, ...) -> (n, ...)``."""
    counts = np.bincount(labels)
    sums = np.zeros((len(counts), *values.shape[1:]))
    np.add.at(sums, labels, values)
    means = sums / np.maximum(counts, 1).reshape(-1, *[1] * (values.ndim - 1))
    return np.asarray(means[labels])


def variance_between_silos(squares: FloatArray, own: FloatArray, labels: IntArray) -> float:
    """Mean of squared residuals (n,) from group averages, less what variances ``own`` (n,) add."""
    counts = np.bincount(labels)
    expected = own @ (1.0 - 1.0 / counts[labels])
    return float(max(squares.sum() - expected, 0.0) / (len(labels) - np.count_nonzero(counts)))


def reliability(values: FloatArray, labels: IntArray) -> float:
    """Intraclass correlation of ``(n, k)`` values: the share of variance between groups."""
    counts = np.bincount(labels)
    n, groups = len(labels), np.count_nonzero(counts)
    if groups < 2:
        return 1.0
    means = group_means(values, labels)
    within = float(np.square(values - means).sum()) / (n - groups)
    about_all = float(np.square(means - values.mean(axis=0)).sum()) / (groups - 1)
    size = (n - float(np.square(counts).sum()) / n) / (groups - 1)
    between = max(about_all - within, 0.0) / size
    if between + within == 0.0:
        return 1.0
    return max(between / (between + within), _LEAST_RELIABLE)
