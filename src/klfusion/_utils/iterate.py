"""Repeat a step until the objective hardly falls, or until nothing changes."""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from klfusion._utils.arrays import BoolArray, IntArray
from klfusion._utils.progress import Report, silent

_State = TypeVar("_State")
_Labels = TypeVar("_Labels", IntArray, BoolArray)


class Descent(NamedTuple, Generic[_State]):
    """Where a descent stopped: after the last step that lowered the objective."""

    state: _State
    trace: list[float]  # the objective at the start and after each step
    converged: bool  # whether the next step lowers it by no more than the tolerance


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

    A ``step`` returns the next state and its objective, and leaves its argument unchanged.
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
    """Repeat a step on labels (n,) until it changes none of them."""
    for _ in range(max_iter):
        labels, before = step(labels), labels
        if (labels == before).all():
            break
    return labels
