"""How much components of one kind differ between silos, and what that says of a family's parts.

A posterior's precision tells how well a silo knows *its own* component. What the silo says about
the global one is limited by how much components vary from silo to silo: as in a random-effects
model, variances add. And a part in which components of different kinds vary no more than those of
one kind tells nothing about which kind it is, however precise: what it tells is its *reliability*
(the intraclass correlation), the share of its variance that is between kinds.
"""

from __future__ import annotations

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray

_LEAST_RELIABLE = 0.01  # so that no part is lost altogether


def group_means(values: FloatArray, labels: IntArray) -> FloatArray:
    """Average over each group, for each of its members: ``(n, ...) -> (n, ...)``."""
    counts = np.bincount(labels)
    sums = np.zeros((len(counts), *values.shape[1:]))
    np.add.at(sums, labels, values)
    means = sums / np.maximum(counts, 1).reshape(-1, *[1] * (values.ndim - 1))
    return np.asarray(means[labels])


def variance_between_silos(squares: FloatArray, own: FloatArray, labels: IntArray) -> float:
    """Mean square of residuals from the group, less what members are uncertain of themselves.

    Parameters
    ----------
    squares : array of shape (n,)
        Squared residuals from the average of each one's group.
    own : array of shape (n,)
        What is expected of them if silos do not vary, before the average is taken out.
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
    """Of components with variances ``(n, k)``, one a dimension or one for all, ``(4 + k,)``.

    Variance between silos of means (as ``1 / kappa``) and of variances (as ``1 / shape``), the
    reliability of both, and the usual variances.
    """
    usual = np.exp(np.log(variance).mean(axis=0))
    in_group = group_means(variance, labels)
    of_means = (np.square(mean - group_means(mean, labels)) / in_group).mean(axis=1)
    of_shapes = np.square(variance / in_group - 1.0).mean(axis=1)
    return np.concatenate(
        [
            [
                variance_between_silos(of_means, (1.0 / kappa).mean(axis=1), labels),
                variance_between_silos(of_shapes, (1.0 / shape).mean(axis=1), labels),
                reliability(mean / np.sqrt(usual), labels),
                reliability(np.log(variance / usual), labels),
            ],
            usual,
        ]
    )


def diagonal_varied(
    kappa: FloatArray, variance: FloatArray, shape: FloatArray, variation: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """``kappa``, variance and shape with what varies between silos, and as reliable as they are."""
    of_means, of_shapes, means_tell, shapes_tell = variation[:4]
    usual = variation[4:]
    return (
        means_tell / (1.0 / kappa + of_means),
        usual * (variance / usual) ** shapes_tell,
        1.0 / (1.0 / shape + of_shapes),
    )
