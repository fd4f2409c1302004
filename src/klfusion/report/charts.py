"""Points of the report's curves, thinned to what a screen can show."""

from collections.abc import Sequence
from typing import Any

_MAX_POINTS = 400
_SIZES = 3  # times the size of highest evidence: the largest size drawn
_RIVALS = 7  # sizes of highest evidence, as a table
_SPAN = 1e6  # ratio of the largest penalty drawn to the smallest


def trace_points(trace: Sequence[float | None]) -> list[tuple[int, float]] | None:
    """Sweep and objective; None if there was no sweep after the first."""
    values = [value for value in trace if value is not None]
    return [(i, values[i]) for i in _thinned(len(values))] if len(values) > 1 else None


def path_points(path: dict[str, Any]) -> dict[str, Any] | None:
    """Steps (penalty, size) from the smallest penalty drawn, and the fusion's place on them.

    Each size holds up to the next penalty. The place is None for a size off the path.
    """
    penalties = [value for value in path["penalties"] if value is not None]
    sizes, chosen = path["n_components"], path["chosen"]
    if not penalties or penalties[-1] <= 0:
        return None
    low, kept = max(penalties[0], penalties[-1] / _SPAN), set(_thinned(len(penalties)))
    if chosen is not None:
        low = min(low, chosen["penalty"] or low)
        chosen = chosen | {"penalty": max(chosen["penalty"], low)}
        step = sizes.index(chosen["n_components"])  # thinning keeps both ends of this size
        kept |= {step - 1, step} & set(range(len(penalties)))
    steps = {low / 1.5: sizes[0]}
    for t in sorted(kept):
        steps[max(penalties[t], low)] = sizes[t + 1]  # of equal penalties the last one counts
    return {"points": sorted(steps.items()), "chosen": chosen}


def evidence_points(why: dict[str, Any], n_components: int) -> dict[str, Any] | None:
    """Size and log-evidence around the fusion's size, and its closest rivals by size."""
    known = why["sizes"]
    if known is None or len(known) < 2:
        return None
    best = max(known, key=lambda one: one["log_evidence"])["n_components"]
    largest = max(_SIZES * best, n_components + 1)
    shown = [one for one in known if one["n_components"] <= largest] or known
    shown = [shown[i] for i in _thinned(len(shown))][::-1]
    points = [(one["n_components"], one["log_evidence"]) for one in shown]
    rivals = sorted(known, key=lambda one: -one["log_evidence"])[:_RIVALS]
    own = next((point for point in points if point[0] == n_components), None)
    rivals.sort(key=lambda one: one["n_components"])
    return {"points": points, "chosen": own, "rivals": rivals}


def _thinned(n: int) -> list[int]:
    """At most `_MAX_POINTS` of n indices, evenly, with the first and the last."""
    if n <= _MAX_POINTS:
        return list(range(n))
    return sorted({round(i * (n - 1) / (_MAX_POINTS - 1)) for i in range(_MAX_POINTS)})
