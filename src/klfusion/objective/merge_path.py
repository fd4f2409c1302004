"""`MergePath`: a model for every penalty, and for every size."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray, relabel
from klfusion._utils.penalty import merge_saving
from klfusion.errors import KLFusionError


@dataclass(frozen=True, eq=False)
class MergePath:
    """Every size from all components apart (step 0) to no merge left.

    A merge costs divergence and saves penalty. So each step has a penalty above which it lowers the
    objective, and one pass gives a model for every penalty and every size.

    Parameters
    ----------
    merges : int array of shape (m, 2)
        Step ``t`` merges the clusters that hold components ``merges[t, 0]`` and ``merges[t, 1]``.
    ratios : array of shape (m,)
        The penalty above which each merge alone lowers the objective.
    divergences : array of shape (m + 1,)
        Total Jensen gap before each step, and at the end.
    n_components : int array of shape (m + 1,)
        Number of clusters before each step, and at the end.
    rows : int array of shape (number of local components,), optional
        The path's row of each local component, silos one after the other; -1 if left out.
    losses : array of shape (m + 1,), optional
        Estimated predictive loss after so many merges, in nats per observation; None where the
        number of observations behind the posteriors is unknown.
    evidence : array of shape (m + 1,), optional
        Log-evidence of each step's clusters, in nats; None unless the default chose the size.

    Examples
    --------
    >>> import klfusion as kf
    >>> rates = kf.families.Gamma()
    >>> shapes = {"a": [30, 900], "b": [910, 32], "c": [31, 250]}
    >>> path = kf.fuse(
    ...     [kf.Posterior(rates, rates.natural(s, [10, 10]), name=n) for n, s in shapes.items()]
    ... ).path
    >>> for size, penalty, objective in zip(
    ...     path.n_components[1:], path.penalties, path.objectives[1:], strict=True
    ... ):
    ...     print(size, penalty.round(2), objective.round(2))
    5 0.02 0.11
    4 0.03 0.16
    3 0.07 0.39
    2 216.91 899.44
    """

    merges: IntArray
    ratios: FloatArray
    divergences: FloatArray
    n_components: IntArray
    rows: IntArray | None = None
    losses: FloatArray | None = None
    evidence: FloatArray | None = None

    @classmethod
    def of_merges(
        cls,
        n: int,
        merges: IntArray,
        increases: FloatArray,
        ratios: FloatArray | None = None,
        losses: FloatArray | None = None,
    ) -> MergePath:
        """The path of some merges, (m, 2), of ``n`` components, and the increases of the gaps."""
        if ratios is None:
            ratios = increases / merge_saving(*_sizes(n, merges).T)
        divergences = np.concatenate([[0.0], np.cumsum(increases)])
        return cls(merges, ratios, divergences, n - np.arange(len(merges) + 1), losses=losses)

    @cached_property
    def sizes(self) -> IntArray:
        """Number of components in each of the two clusters that a step merges, (m, 2)."""
        return _sizes(int(self.n_components[0]), self.merges)

    @property
    def penalties(self) -> FloatArray:
        """The penalty that reaches each step: the running maximum of the ratios, (m,)."""
        return np.maximum.accumulate(self.ratios)

    @property
    def objectives(self) -> FloatArray:
        """The objective of each step's clusters, at the penalty that reaches them, (m + 1,)."""
        saved = np.concatenate([[0.0], np.cumsum(merge_saving(*self.sizes.T))])
        roots = self.n_components[0] - saved
        return np.asarray(self.divergences + np.concatenate([[0.0], self.penalties]) * roots)

    @property
    def stability(self) -> FloatArray:
        """Logarithm of the factor by which the penalty can grow at each size, (m + 1,).

        0 for a size that no penalty gives; infinite for the first and the last.
        """
        edges = np.concatenate([[0.0], self.penalties, [np.inf]])
        with np.errstate(divide="ignore", invalid="ignore"):
            lasts = np.log(edges[1:]) - np.log(edges[:-1])
        return np.where(np.isnan(lasts), 0.0, lasts)

    def steps_at(self, penalty: float) -> int:
        """Number of merges that lower the objective at a penalty."""
        return int(np.searchsorted(self.penalties, penalty, side="right"))

    def steps_within(self, max_loss: float) -> int:
        """Number of merges with a total loss of at most so many nats per observation."""
        if self.losses is None:
            raise KLFusionError(
                "expected posteriors that tell how many observations they are worth, which "
                "losses are counted in; got a family that does not: give n_components or penalty"
            )
        return int(np.searchsorted(self.losses, max_loss, side="right")) - 1

    def labels(self, steps: int) -> IntArray:
        """Cluster of each component after so many merges, (n,)."""
        labels = np.arange(self.n_components[0], dtype=np.intp)
        for a, b in self.merges[:steps]:
            labels[labels == labels[b]] = labels[a]
        return relabel(labels)


def _sizes(n: int, merges: IntArray) -> IntArray:
    """Replay merges of ``n`` components: sizes of both clusters before each, (m, 2)."""
    counts, sizes = np.ones(n, dtype=np.intp), np.empty_like(merges)
    for step, (a, b) in enumerate(merges):
        sizes[step] = counts[a], counts[b]
        counts[a] += counts[b]
    return sizes
