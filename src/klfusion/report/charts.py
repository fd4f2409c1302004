"""What the report's curves are drawn from: no more points than a screen can show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_MAX_POINTS = 400
_SPAN = 1e6  # of penalties below the largest; below that are copies


def trace_points(trace: Sequence[float | None]) -> list[tuple[int, float]] | None:
    """Sweep and objective; None if it never moved."""
    values = [value for value in trace if value is not None]
    if len(values) < 2:
        return None
    return [(i, values[i]) for i in _thinned(len(values))]


def path_points(path: dict[str, Any]) -> dict[str, Any] | None:
    """Penalties with the size that each leads to, from the smallest, and the chosen one."""
    penalties = [value for value in path["penalties"] if value is not None]
    sizes, chosen = path["n_components"], path["chosen"]
    if not penalties or max(penalties) <= 0:
        return None
    ends = [max(penalties), chosen["penalty"] or 0.0]
    low = max(min(penalties), max(ends) / _SPAN)
    steps = {min(low, chosen["penalty"] or low) / 1.5: sizes[0]}
    for t in _thinned(len(penalties)):
        steps[max(penalties[t], low)] = sizes[t + 1]  # of equal penalties the last one counts
    return {"points": sorted(steps.items()), "chosen": chosen}


def _thinned(n: int) -> list[int]:
    """Indices of at most so many points as can be seen, the first and the last among them."""
    if n <= _MAX_POINTS:
        return list(range(n))
    return sorted({round(i * (n - 1) / (_MAX_POINTS - 1)) for i in range(_MAX_POINTS)})
