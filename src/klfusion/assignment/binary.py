"""The binary heterogeneous assignment problem, by block coordinate descent with exact LAPs.

With at most one component of a silo per global component, the paper's L2,2,1 penalty of a binary
plan is ``penalty * sum_g sqrt(n_g)``, ``n_g`` the number of local components in ``g``. With all
silos but one fixed it is linear in that silo's plan, so each block is one rectangular LAP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.penalty import joining, penalties, total_penalty
from klfusion.assignment.hungarian import solve_hungarian

_LEAST_GAIN = 1e-12  # of the penalty: what rounding cannot feign


@dataclass(frozen=True)
class ExactPlan:
    """A binary plan that no single silo can improve."""

    labels: IntArray
    objective: float


def binary_objective(costs: FloatArray, labels: IntArray, penalty: float) -> float:
    """``sum_i costs[i, labels[i]] + penalty * sum_g sqrt(n_g)``."""
    counts = np.bincount(labels, minlength=costs.shape[1])
    return float(costs[np.arange(len(labels)), labels].sum()) + total_penalty(counts, penalty)


def solve_exact(
    costs: FloatArray,
    silos: Sequence[slice],
    penalty: float,
    start: IntArray | None = None,
    max_sweeps: int = 100,
) -> ExactPlan:
    """Minimise the binary objective at fixed costs.

    Parameters
    ----------
    costs : array of shape (n, G)
    silos : sequence of slices
        The rows of each silo, in order; none may have more rows than there are columns.
    penalty : float
        Weight of ``sum_g sqrt(n_g)``.
    start : int array of shape (n,), optional
        A plan to improve; without it each silo's best block without the penalty.
    max_sweeps : int

    Returns
    -------
    ExactPlan
        A plan no worse than ``start``, which neither moving one silo nor emptying one column
        improves.

    Examples
    --------
    >>> import numpy as np
    >>> costs = np.array([[0.0, 9.0], [0.3, 0.0]])        # two silos of one component each
    >>> solve_exact(costs, [slice(0, 1), slice(1, 2)], penalty=1.0).labels
    array([0, 0])
    """
    labels = solve_hungarian(costs, silos) if start is None else start.copy()
    counts = np.bincount(labels, minlength=costs.shape[1])
    while True:
        _descend(costs, silos, penalty, labels, counts, max_sweeps)
        if not _delete_columns(costs, silos, penalty, labels, counts):
            return ExactPlan(labels, binary_objective(costs, labels, penalty))


def _descend(
    costs: FloatArray,
    silos: Sequence[slice],
    penalty: float,
    labels: IntArray,
    counts: IntArray,
    max_sweeps: int,
) -> None:
    """Give each silo its best block in turn, in place, until a whole sweep changes nothing."""
    marginals = joining(np.arange(len(silos) + 1), penalty)
    starts = np.array([rows.start for rows in silos])
    silo = np.repeat(np.arange(len(silos)), [rows.stop - rows.start for rows in silos])
    for _ in range(max_sweeps):
        quiet = True
        for j in _unsettled(costs, silo, starts, marginals, labels, counts):
            rows = silos[j]
            old = labels[rows]
            counts[old] -= 1
            new = linear_sum_assignment(costs[rows] + marginals[counts])[1]
            counts[new] += 1
            if (new != old).any():
                labels[rows] = new
                quiet = False
        if quiet:
            return


def _unsettled(
    costs: FloatArray,
    silo: IntArray,
    starts: IntArray,
    marginals: FloatArray,
    labels: IntArray,
    counts: IntArray,
) -> list[int]:
    """Silos that may have a better block: not every component is in its own best column."""
    own = np.zeros((len(starts), costs.shape[1]))
    own[silo, labels] = (marginals[counts - 1] - marginals[counts])[labels]  # without the silo
    best = (costs + (own + marginals[counts])[silo]).argmin(axis=1)
    settled = np.logical_and.reduceat(best == labels, starts)
    unsettled: list[int] = np.flatnonzero(~settled).tolist()
    return unsettled


def _delete_columns(
    costs: FloatArray,
    silos: Sequence[slice],
    penalty: float,
    labels: IntArray,
    counts: IntArray,
) -> bool:
    """Empty columns, in place, as long as that lowers the objective; whether any was.

    Members of the column go to their best column among those in use and free in their silo. The
    gain is counted with the other columns as full as they are; it is at least that, since the
    marginal penalty falls as columns fill up.
    """
    silo = np.repeat(np.arange(len(silos)), [rows.stop - rows.start for rows in silos])
    row = np.arange(len(labels))
    taken = np.zeros((len(silos), costs.shape[1]), dtype=bool)
    taken[silo, labels] = True
    barrier = np.where(taken[silo], np.inf, 0.0)  # columns another component of the silo is in
    marginals = joining(np.arange(len(silos) + 1), penalty)
    any_deleted = False
    while True:
        closed = counts == 0
        detour = costs + np.where(closed, np.inf, marginals[counts])
        detour += barrier
        loss = detour.min(axis=1) - costs[row, labels]
        gain = penalties(counts, penalty) - np.bincount(labels, weights=loss, minlength=len(counts))
        column = int(np.where(closed, -np.inf, gain).argmax())
        if not gain[column] > _LEAST_GAIN * penalty or closed[column]:
            return any_deleted
        members = np.flatnonzero(labels == column)
        labels[members] = detour[members].argmin(axis=1)
        for member in members:
            barrier[silos[silo[member]], labels[member]] = np.inf
        counts[column] = 0
        np.add.at(counts, labels[members], 1)
        any_deleted = True
