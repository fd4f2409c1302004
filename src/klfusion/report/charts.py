"""The lines of the report's charts: numbers in, coordinates for a template out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

WIDTH, HEIGHT = 520.0, 230.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 14.0, 14.0, 40.0
_MAX_POINTS = 400  # more than a screen can show
_DECADES = 6.0  # of penalties below the largest; below that are copies


def trace_chart(trace: Sequence[float | None]) -> dict[str, Any] | None:
    """Objective against sweep; None if it never moved."""
    values = [value for value in trace if value is not None]
    if len(values) < 2:
        return None
    keep = _thinned(len(values))
    low, high = min(values), max(values)
    pad = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    axes = _Axes((0.0, float(len(values) - 1)), (low - pad, high + pad))
    points = [axes.place(i, values[i]) for i in keep]
    return {
        **axes.frame,
        "line": _joined(points),
        "points": points if len(points) <= 40 else [],
        "x_ticks": [(axes.x(t), f"{t:.0f}") for t in _whole_ticks(len(values) - 1)],
        "y_ticks": [(axes.y(t), label) for t, label in _ticks(low, high)],
    }


def path_chart(path: dict[str, Any]) -> dict[str, Any] | None:
    """Number of components against penalty (log scale) as steps, with the chosen point."""
    penalties = [value for value in path["penalties"] if value is not None]
    sizes, chosen = path["n_components"], path["chosen"]
    if not penalties or max(penalties) <= 0:
        return None
    top = math.log10(max(penalties))
    logs = [math.log10(value) if value > 0 else -math.inf for value in penalties]
    low = max(min(log for log in logs), top - _DECADES)
    mark = math.log10(chosen["penalty"]) if chosen["penalty"] else None
    ends = [low, top] if mark is None else [low, top, mark]
    margin = 0.06 * (max(ends) - min(ends)) or 0.3
    axes = _Axes((min(ends) - margin, max(ends) + margin), (0.0, 1.06 * sizes[0]))
    corners = [(axes.x_range[0], sizes[0])]
    for t in _thinned(len(logs)):
        at = max(logs[t], low)
        corners += [(at, corners[-1][1]), (at, sizes[t + 1])]
    corners.append((axes.x_range[1], corners[-1][1]))
    return {
        **axes.frame,
        "line": _joined([axes.place(x, y) for x, y in corners]),
        "mark": None if mark is None else axes.place(mark, chosen["n_components"]),
        "mark_label": f"{chosen['n_components']} components",
        "x_ticks": [(axes.x(t), _power(t)) for t in _log_ticks(*axes.x_range)],
        "y_ticks": [(axes.y(t), label) for t, label in _ticks(0, sizes[0]) if t == int(t)],
    }


class _Axes:
    """The way from numbers to places in a chart, which are rounded to tenths."""

    def __init__(self, x_range: tuple[float, float], y_range: tuple[float, float]) -> None:
        self.x_range, self.y_range = x_range, y_range
        self.frame = {
            "width": WIDTH, "height": HEIGHT,
            "left": _LEFT, "right": WIDTH - _RIGHT, "top": _TOP, "bottom": HEIGHT - _BOTTOM,
        }  # fmt: skip

    def x(self, value: float) -> float:
        low, high = self.x_range
        return round(_LEFT + (WIDTH - _LEFT - _RIGHT) * (value - low) / (high - low), 1)

    def y(self, value: float) -> float:
        low, high = self.y_range
        return round(HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * (value - low) / (high - low), 1)

    def place(self, x: float, y: float) -> tuple[float, float]:
        return self.x(x), self.y(y)


def _joined(points: Sequence[tuple[float, float]]) -> str:
    distinct = [points[0], *(b for a, b in pairwise(points) if a != b)]
    return " ".join(f"{x:g},{y:g}" for x, y in distinct)


def _thinned(n: int) -> list[int]:
    """Indices of at most so many points as can be seen, the first and the last among them."""
    if n <= _MAX_POINTS:
        return list(range(n))
    return sorted({round(i * (n - 1) / (_MAX_POINTS - 1)) for i in range(_MAX_POINTS)})


def _ticks(low: float, high: float) -> list[tuple[float, str]]:
    """About four round numbers between two, with just the digits that tell them apart."""
    if high <= low:
        return [(low, f"{low:,.6g}")]
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (m * step) <= 5)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [(k * step, f"{k * step:,.{decimals}f}") for k in range(first, last + 1)]


def _whole_ticks(last: int) -> list[int]:
    step = max(1, math.ceil(last / 8))
    return list(range(0, last + 1, step))


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten, or 1, 2 and 5 of them where few powers fit."""
    parts = (1.0,) if high - low > 2.5 else (1.0, 2.0, 5.0)
    decades = range(math.floor(low), math.ceil(high) + 1)
    logs = [decade + math.log10(part) for decade in decades for part in parts]
    return [log for log in logs if low <= log <= high]


def _power(log: float) -> str:
    value = 10.0**log
    return f"{value:,.0f}" if 1 <= value < 1e6 else f"{value:.3g}"
