"""Before matching: leave out what is empty, and put together what one silo split.

An over-fitted mixture describes one cluster of observations by two components. They may not be
matched to one global component, and the distance between them would pass for a distance between
different ones. With the prior and the counts known, the evidence of one component against two
can be computed from the posteriors alone.
"""

from __future__ import annotations

import numpy as np

from klfusion._typing import FloatArray, IntArray
from klfusion.posterior import Posterior

_MAX_TRIAL_ENTRIES = 20_000_000  # larger silos are left as they are
_NEGLIGIBLE_SHARE = 0.02  # of a silo's observations


def with_data(posterior: Posterior) -> IntArray:
    """The components with enough observations behind them to be matched.

    Over-fitted local models hold components that are hardly more than their prior; those of all
    silos look alike and would be fused into a component of nothing. A component is left out if it
    has too few observations to tell its shape *and* next to none of its silo's; at least the
    largest stays.
    """
    counts = posterior.counts
    if counts is None:
        return np.arange(posterior.n_components)
    least = min(posterior.family.least_count, _NEGLIGIBLE_SHARE * float(counts.sum()))
    return np.flatnonzero((counts >= least) | (counts == counts.max()))


def merge_splits(posterior: Posterior, rows: IntArray) -> list[tuple[IntArray, FloatArray]]:
    """Group a silo's components, and give each group's natural parameters.

    Components ``a`` and ``b`` of a mixture belong together if one component explains their
    observations better, ``A(a) + A(b) - A(a + b - prior) - A(prior)`` (what two gain in fit) being
    less than ``N log N - N_a log N_a - N_b log N_b`` (what telling them apart costs).

    Parameters
    ----------
    posterior : Posterior
    rows : int array
        The components to look at.

    Returns
    -------
    list of (rows, natural parameters)
        Single components where the prior or the counts are unknown, or it is not a mixture.
    """
    groups = [np.array([row]) for row in rows]
    natural = posterior.natural[rows]
    prior, structure = posterior.prior, posterior.structure
    mixture = structure is None or structure.kind == "mixture"
    small = len(rows) ** 2 * natural.shape[1] <= _MAX_TRIAL_ENTRIES
    if prior is None or posterior.counts is None or not mixture or not small:
        return list(zip(groups, natural, strict=True))
    counts = posterior.counts[rows]
    while len(groups) > 1:
        a, b = np.triu_indices(len(groups), k=1)
        gain = _gain_of_one(posterior, natural, counts, a, b)
        best = int(gain.argmax())
        if not gain[best] > 0:
            break
        i, j = int(a[best]), int(b[best])
        groups[i] = np.concatenate([groups[i], groups.pop(j)])
        natural[i] += natural[j] - prior
        natural = np.delete(natural, j, axis=0)
        counts = np.delete(np.where(np.arange(len(counts)) == i, counts[i] + counts[j], counts), j)
    return list(zip(groups, natural, strict=True))


def _gain_of_one(
    posterior: Posterior, natural: FloatArray, counts: FloatArray, a: IntArray, b: IntArray
) -> FloatArray:
    """Log-evidence gained by describing each pair by one component."""
    family, prior = posterior.family, posterior.prior
    assert prior is not None  # the caller has seen to it
    log_partition = family.log_partition(natural)
    together = family.log_partition(natural[a] + natural[b] - prior)
    fit = log_partition[a] + log_partition[b] - together - family.log_partition(prior[None])
    n_log_n = counts * np.log(np.maximum(counts, 1.0))
    total = counts[a] + counts[b]
    tell_apart = total * np.log(np.maximum(total, 1.0)) - n_log_n[a] - n_log_n[b]
    return np.asarray(tell_apart - fit)
