"""`PenaltyPath`: a model for every penalty, and for every size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray, relabel
from klfusion.errors import KLFusionError


@dataclass(frozen=True, eq=False)
class PenaltyPath:
    """Every size from all components apart (step 0) to no merge left.

    What a merge costs is divergence, what it saves is penalty, so that each step has a penalty from
    which on it pays: one pass gives a model for every penalty, and every size.

    Parameters
    ----------
    merges : int array of shape (m, 2)
        Step ``t`` merges the clusters of rows ``merges[t, 0]`` and ``merges[t, 1]`` (each named
        by one of its components).
    ratios : array of shape (m,)
        The penalty at which each merge pays by itself.
    divergences : array of shape (m + 1,)
        Total Jensen gap before each step, and at the end.
    n_components : int array of shape (m + 1,)
        Number of clusters before each step, and at the end.
    losses : array of shape (m + 1,), optional
        What prediction loses by so many merges, in nats an observation, as estimated from the
        posteriors alone; None where it is not known how many observations are behind them.
    rows : int array of shape (number of local components,), optional
        The path's row of each local component, silos one after the other; -1 for one left out.

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

    @property
    def penalties(self) -> FloatArray:
        """The penalty that reaches each step: the running maximum of the ratios, (m,)."""
        return np.maximum.accumulate(self.ratios)

    @property
    def objectives(self) -> FloatArray:
        """The objective of each step's clusters, at the penalty that reaches them, (m + 1,)."""
        counts = np.ones(self.n_components[0])
        roots = [counts.sum()]
        for a, b in self.merges:
            together = counts[a] + counts[b]
            roots.append(roots[-1] + np.sqrt(together) - np.sqrt(counts[a]) - np.sqrt(counts[b]))
            counts[a], counts[b] = together, 0.0
        return np.asarray(self.divergences + np.concatenate([[0.0], self.penalties]) * roots)

    @property
    def stability(self) -> FloatArray:
        """How long each size lasts, (m + 1,): by what factor the penalty can grow, as a logarithm.

        0 for a size that no penalty gives; infinite for the first and the last.
        """
        edges = np.concatenate([[0.0], self.penalties, [np.inf]])
        with np.errstate(divide="ignore", invalid="ignore"):
            lasts = np.log(edges[1:]) - np.log(edges[:-1])
        return np.where(np.isnan(lasts), 0.0, lasts)

    def steps_at(self, penalty: float) -> int:
        """How many merges a penalty pays for."""
        return int(np.searchsorted(self.penalties, penalty, side="right"))

    def steps_within(self, max_loss: float) -> int:
        """How many merges lose at most so much, in nats an observation."""
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
