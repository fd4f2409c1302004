"""Random-effects models: how much matched components differ between silos.

A posterior's precision is that of the silo's *own* component. As an estimate of the global
component it is less precise, because components vary between silos: as in a random-effects model,
variances add. The *reliability* of a part, such as means or shapes, is its intraclass correlation:
the share of its variance that is between global components. A part whose variance is all within
global components does not help to match, however precise it is.
"""

from __future__ import annotations

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
    """Mean square of residuals from the group average, less its expectation without variation.

    Parameters
    ----------
    squares : array of shape (n,)
        Squared residuals from the group average.
    own : array of shape (n,)
        Variance of each member's own estimate.
    labels : int array of shape (n,)
        Groups; at least one has two members.
    """
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


# Means and variances without correlations ---------------------------------------------------------


def diagonal_variation(
    mean: FloatArray, kappa: FloatArray, variance: FloatArray, shape: FloatArray, labels: IntArray
) -> FloatArray:
    """Of components with variances ``(n, k)``, one per dimension or one for all, ``(4 + k,)``.

    Variance between silos of means (as ``1 / kappa``) and of variances (as ``1 / shape``), the
    reliability of both, and reference variances: the geometric means.
    """
    reference = np.exp(np.log(variance).mean(axis=0))
    in_group = group_means(variance, labels)
    of_means = (np.square(mean - group_means(mean, labels)) / in_group).mean(axis=1)
    of_shapes = np.square(variance / in_group - 1.0).mean(axis=1)
    return np.concatenate(
        [
            [
                variance_between_silos(of_means, (1.0 / kappa).mean(axis=1), labels),
                variance_between_silos(of_shapes, (1.0 / shape).mean(axis=1), labels),
                reliability(mean / np.sqrt(reference), labels),
                reliability(np.log(variance / reference), labels),
            ],
            reference,
        ]
    )


def diagonal_varied(
    kappa: FloatArray, variance: FloatArray, shape: FloatArray, variation: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """``kappa``, variance and shape of the global components, weighted by reliability."""
    of_means, of_shapes, means_reliable, shapes_reliable = variation[:4]
    reference = variation[4:]
    return (
        means_reliable / (1.0 / kappa + of_means),
        reference * (variance / reference) ** shapes_reliable,
        1.0 / (1.0 / shape + of_shapes),
    )
