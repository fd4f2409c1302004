"""Repeat a step until the objective hardly falls, or until nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from klfusion._utils.arrays import BoolArray, IntArray
from klfusion._utils.progress import Report, silent

_State = TypeVar("_State")
_Labels = TypeVar("_Labels", IntArray, BoolArray)


class Descent(NamedTuple, Generic[_State]):
    """Where a descent stopped.

    Parameters
    ----------
    state
        After the last step that is kept.
    trace : list of float
        The objective at the start and after each step that is kept.
    converged : bool
        Whether the next step did not lower the objective, or by no more than the tolerance.
    """

    state: _State
    trace: list[float]
    converged: bool


def descend(
    step: Callable[[_State], tuple[_State, float]],
    start: _State,
    value: float,
    *,
    tol: float = 0.0,
    max_iter: int,
    stage: str = "",
    report: Report = silent,
) -> Descent[_State]:
    """Repeat a step until it lowers the objective by no more than ``tol``, relative.

    Parameters
    ----------
    step : callable
        Gives the next state and its objective; must not change the state it is given.
    start, value
        First state, and its objective.
    tol : float
        Share of the objective.
    max_iter : int
        Most steps.
    stage, report
        The progress to report before each step, and where to.

    Returns
    -------
    Descent

    Examples
    --------
    >>> def halve(x):
    ...     return x / 2, x / 2 + 1.0
    >>> descend(halve, 4.0, 5.0, tol=0.3, max_iter=9)
    Descent(state=1.0, trace=[5.0, 3.0, 2.0], converged=True)
    """
    state, trace = start, [value]
    for number in range(max_iter):
        report(stage, number + 1, None)
        new, value = step(state)
        if trace[-1] - value <= tol * abs(trace[-1]):
            return Descent(state, trace, converged=True)
        state = new
        trace.append(value)
    return Descent(state, trace, converged=False)


def settle(step: Callable[[_Labels], _Labels], labels: _Labels, *, max_iter: int) -> _Labels:
    """Repeat a step on labels until it changes none of them.

    Examples
    --------
    >>> import numpy as np
    >>> settle(lambda labels: np.minimum(labels + 1, 4), np.array([0, 3]), max_iter=9)
    array([4, 4])
    """
    for _ in range(max_iter):
        labels, before = step(labels), labels
        if (labels == before).all():
            break
    return labels
