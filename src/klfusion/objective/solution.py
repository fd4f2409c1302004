"""What every method returns: `Matching`, and `MergePath`, a model for every penalty and size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray, merge_saving, relabel, total_penalty
from klfusion._utils.running import Report
from klfusion.errors import KLFusionError
from klfusion.objective.problem import FusionProblem


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


Plan = FloatArray | IntArray  # weights (n, G), or labels (n,) of a binary plan


class Status(Enum):
    """How a fusion ended; the value is the message people read."""

    CONVERGED = "converged: the search stopped by its own criterion before max_iter"
    MAX_ITER = "stopped at max_iter before converging: raise max_iter or tol"
    SINGLE_SILO = "only one silo: it was returned as it is"
    NAMED = "components were matched by their names; nothing was searched"
    KEPT = "the matching was kept, not searched anew: silos came or went, or a size was picked"

    def __str__(self) -> str:
        return self.value

    @classmethod
    def of(cls, converged: bool) -> Status:
        """Converged, or stopped at the limit."""
        return cls.CONVERGED if converged else cls.MAX_ITER


@dataclass(frozen=True, eq=False)
class Matching:
    """What every method returns, components in the problem's order."""

    labels: IntArray  # global component of each local one, (n,); -1 for none
    objective: float  # total divergence plus penalty
    lower_bound: float  # of all plans at the divergences from the final components
    trace: list[float]  # the objective after each sweep; it never rises
    penalty: float  # weight of `sum_g sqrt(n_g)`, in nats; 0 where the size was given
    status: Status
    path: MergePath | None = None  # its `rows` are the problem's; None if it is of a sample
    plan: FloatArray | None = None  # fractional, (n, G); the labels are its rounding
    location: FloatArray | None = None  # point estimates, (G, k), where the method has its own
    variation: FloatArray | None = None  # between silos, as estimated
    probability: FloatArray | None = None  # that each component is of its cluster, (n,)
    part_of: IntArray | None = None  # the component of its silo that a fragment belongs to; -1

    def of_rows(self, rows: IntArray, n: int) -> Matching:
        """The matching of some rows as that of all ``n``: the others are matched to none."""
        labels = np.full(n, -1, dtype=np.intp)
        labels[rows] = self.labels
        path = self.path
        if path is not None and path.n_components[0] == len(rows):  # else it is of a sample
            on_path = np.full(n, -1, dtype=np.intp)
            on_path[rows] = np.arange(len(rows))
            path = replace(path, rows=on_path)
        probability = self.probability
        if probability is not None:
            probability = np.full(n, np.nan)
            probability[rows] = self.probability
        return replace(self, labels=labels, path=path, probability=probability)


@dataclass(frozen=True, eq=False)
class Search:
    """What a search needs besides a problem: a size, limits, random numbers and a callback."""

    n_components: int | None  # of the global model, where it is known
    rng: np.random.Generator
    report: Report  # called with the stage, the steps done and their number
    n_init: int = 1  # starts
    max_iter: int = 100  # most sweeps of one start
    tol: float = 1e-9  # relative fall of the objective below which a start has converged


def objective(problem: FusionProblem, plan: Plan, n_components: int, penalty: float) -> float:
    """The paper's objective (eq. 9) of a plan at its own barycenters."""
    if plan.ndim == 2:  # a column's norm is the root of its sum of squares
        counts = np.square(plan).sum(axis=0)
    else:
        counts = np.bincount(plan, minlength=n_components)
    return problem.divergence(plan, n_components) + total_penalty(counts, penalty)
