"""Prior over partitions of local components, at most one per silo in each cluster.

There are ``S`` clusters shared by silos and ``P`` private to one. A shared cluster is equally
likely to have any number of silos from 2 to ``J``, and any silos of that number. The share of
private clusters has a uniform prior, which is integrated out.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from klfusion._utils.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class PartitionPrior:
    """Log-prior of partitions of the components of so many silos."""

    n_silos: int

    def of_sizes(self, sizes: IntArray) -> float:
        """Log-prior of a partition with clusters of these sizes; 0 is no cluster."""
        return float(self.changed(sizes, np.zeros((1, 0)), np.zeros((1, 0)))[0])

    def changed(self, sizes: IntArray | FloatArray, old: FloatArray, new: FloatArray) -> FloatArray:
        """Log-prior after clusters of sizes ``old`` (m, a) are replaced by ``new`` (m, b), (m,)."""
        shared, private, choices = (
            count(_floats(sizes)).sum() - count(old).sum(axis=1) + count(new).sum(axis=1)
            for count in (_is_shared, _is_private, self._log_choices)
        )
        return self._log(shared, private, choices)

    def along(self, n: int, sizes: IntArray) -> FloatArray:
        """Log-prior before each merge of a path of ``n`` components, and at its end, (m + 1,).

        The merges are of clusters of ``sizes``, (m, 2).
        """
        totals, both = [], _floats(sizes)
        for count, start in ((_is_shared, 0), (_is_private, n), (self._log_choices, 0)):
            gained = count(both.sum(axis=1)) - count(both).sum(axis=1)
            totals.append(start + np.concatenate([[0.0], np.cumsum(gained)]))
        return self._log(*totals)

    def joining(self, sizes: IntArray | FloatArray) -> FloatArray:
        """Log-prior odds of joining each cluster against opening a new one, (..., G)."""
        old, there, alone = _floats(sizes), list[FloatArray](), list[FloatArray]()
        for count in (_is_shared, _is_private, self._log_choices):
            each = count(old)
            total = each.sum(axis=-1, keepdims=True)
            there.append(total - each + count(old + 1.0))
            alone.append(total + count(np.ones(1)))
        return self._log(*there) - self._log(*alone)

    def _log(self, shared: FloatArray, private: FloatArray, choices: FloatArray) -> FloatArray:
        several = gammaln(shared + 1.0) + gammaln(private + 1.0)
        of_sizes = shared * np.log(max(self.n_silos - 1, 1)) + private * np.log(self.n_silos)
        total = shared + private
        return np.asarray(gammaln(total) - gammaln(total + 2.0) + several - of_sizes - choices)

    def _log_choices(self, sizes: FloatArray) -> FloatArray:
        """Logarithm of the number of choices of the silos of shared clusters."""
        n = float(self.n_silos)
        choices = gammaln(n + 1.0) - gammaln(sizes + 1.0) - gammaln(np.maximum(n - sizes, 0) + 1.0)
        return np.where(_is_shared(sizes), choices, 0.0)


def _floats(sizes: IntArray | FloatArray) -> FloatArray:
    return np.asarray(sizes, dtype=np.float64)


def _is_shared(sizes: FloatArray) -> FloatArray:
    return np.asarray(sizes > 1, dtype=np.float64)


def _is_private(sizes: FloatArray) -> FloatArray:
    return np.asarray(sizes == 1, dtype=np.float64)
