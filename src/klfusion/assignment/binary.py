"""The assignment of silos at fixed costs: of one, of all without a penalty, of all with it.

With all silos but one fixed, the penalty (`klfusion._utils.arrays`) is linear in that silo's plan.
So each block is one rectangular LAP.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from klfusion._utils.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    joining,
    penalties,
    total_penalty,
)
from klfusion._utils.running import settle


def assign_silo(
    costs: FloatArray, new: float = np.inf, forbidden: BoolArray | None = None
) -> IntArray:
    """Distinct columns of the rows of one silo, (L,), at least cost; -1 for a new component.

    ``costs`` is (L, G). Any row may open a new component at the cost ``new``; none may if that is
    infinite. No row may take the ``forbidden`` columns, (G,).
    """
    if forbidden is not None:
        costs = np.where(forbidden, np.inf, costs)
    if new == np.inf:
        columns: IntArray = linear_sum_assignment(costs)[1]
        return columns
    n_rows, n_columns = costs.shape
    columns = linear_sum_assignment(np.hstack([costs, np.full((n_rows, n_rows), new)]))[1]
    return np.where(columns < n_columns, columns, -1)


def solve_hungarian(costs: FloatArray, silos: Sequence[slice]) -> IntArray:
    """Exact assignment without penalty: one rectangular LAP per silo (paper, sections 3 and 4.1).

    ``costs`` is (n, G). ``silos`` are the rows of each silo, no more than there are columns. Gives
    the column of each row, (n,).
    """
    labels = np.empty(len(costs), dtype=np.intp)
    for rows in silos:
        labels[rows] = assign_silo(costs[rows])
    return labels


_LEAST_GAIN = 1e-12  # share of the penalty; rounding explains smaller gains


class BinaryPlan(NamedTuple):
    """A binary plan that no single silo can improve."""

    labels: IntArray
    objective: float


def binary_objective(costs: FloatArray, labels: IntArray, penalty: float) -> float:
    """``sum_i costs[i, labels[i]] + penalty * sum_g sqrt(n_g)``."""
    counts = np.bincount(labels, minlength=costs.shape[1])
    return float(costs[np.arange(len(labels)), labels].sum()) + total_penalty(counts, penalty)


def solve_binary(
    costs: FloatArray,
    silos: Sequence[slice],
    penalty: float,
    start: IntArray | None = None,
    max_sweeps: int = 100,
) -> BinaryPlan:
    """Minimise the binary objective at fixed costs, (n, G).

    ``silos`` are the rows of each silo, in order, no more than there are columns. The plan is no
    worse than ``start``, (n,); default: each silo's best block without the penalty. Neither moving
    one silo nor emptying one column improves it.

    Examples
    --------
    >>> import numpy as np
    >>> costs = np.array([[0.0, 9.0], [0.3, 0.0]])        # two silos of one component each
    >>> solve_binary(costs, [slice(0, 1), slice(1, 2)], penalty=1.0).labels
    array([0, 0])
    """
    blocks = _Blocks(costs, silos, penalty)
    labels = solve_hungarian(costs, silos) if start is None else start
    while True:
        swept = settle(blocks.sweep, labels, max_iter=max_sweeps)
        labels = blocks.without_columns(swept)
        if labels is swept:
            return BinaryPlan(labels, binary_objective(costs, labels, penalty))


class _Blocks:
    """The problem, and its two moves; both leave the labels they are given as they are."""

    def __init__(self, costs: FloatArray, silos: Sequence[slice], penalty: float) -> None:
        self.costs, self.silos, self.penalty = costs, silos, penalty
        self.silo = np.repeat(np.arange(len(silos)), [rows.stop - rows.start for rows in silos])
        self.starts = np.array([rows.start for rows in silos])
        self.joining = joining(np.arange(len(silos) + 1), penalty)

    def sweep(self, labels: IntArray) -> IntArray:
        """Give each silo its best block in turn."""
        labels = labels.copy()
        counts = np.bincount(labels, minlength=self.costs.shape[1])
        for j in self._unsettled(labels, counts):
            rows = self.silos[j]
            counts[labels[rows]] -= 1
            labels[rows] = assign_silo(self.costs[rows] + self.joining[counts])
            counts[labels[rows]] += 1
        return labels

    def _unsettled(self, labels: IntArray, counts: IntArray) -> list[int]:
        """Silos that may have a better block: not every component is in its own best column."""
        joining = self.joining
        own = np.zeros((len(self.starts), self.costs.shape[1]))
        own[self.silo, labels] = (joining[counts - 1] - joining[counts])[labels]  # silo removed
        best = (self.costs + (own + joining[counts])[self.silo]).argmin(axis=1)
        settled = np.logical_and.reduceat(best == labels, self.starts)
        unsettled: list[int] = np.flatnonzero(~settled).tolist()
        return unsettled

    def without_columns(self, labels: IntArray) -> IntArray:
        """Empty columns as long as that lowers the objective; the same array if none does.

        Members of the column go to their best column among those in use and free in their silo.
        The gain is computed with the counts of the other columns as they are. It is at least that,
        since the marginal penalty falls as columns fill up.
        """
        costs, row = self.costs, np.arange(len(labels))
        counts = np.bincount(labels, minlength=costs.shape[1])
        taken = np.zeros((len(self.silos), costs.shape[1]), dtype=bool)
        taken[self.silo, labels] = True
        barrier = np.where(taken[self.silo], np.inf, 0.0)  # columns in use by the silo
        while True:
            closed = counts == 0
            detour = costs + np.where(closed, np.inf, self.joining[counts])
            detour += barrier
            loss = detour.min(axis=1) - costs[row, labels]
            gain = penalties(counts, self.penalty)
            gain -= np.bincount(labels, weights=loss, minlength=len(counts))
            column = int(np.where(closed, -np.inf, gain).argmax())
            if not gain[column] > _LEAST_GAIN * self.penalty or closed[column]:
                return labels
            members = np.flatnonzero(labels == column)
            labels = labels.copy()
            labels[members] = detour[members].argmin(axis=1)
            for member in members:
                barrier[self.silos[self.silo[member]], labels[member]] = np.inf
            counts[column] = 0
            np.add.at(counts, labels[members], 1)
