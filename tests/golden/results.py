"""What is kept of a result, and in which words two of them differ."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

PATH = Path(__file__).with_name("golden.json")
# Relative. The last digits of sums depend on the machine: BLAS and numpy choose another order of
# summation for another processor. Labels and sizes do not, so they are compared exactly.
TOLERANCE = 1e-9


def record(fusion):
    """A fusion as plain values: labels and size exactly, the rest as a few numbers.

    Positive and negative entries are summed apart, so that no digits cancel. Sums weighted by the
    place in the array change if entries are exchanged.
    """
    posterior = fusion.posterior
    arrays = {"natural": posterior.natural}
    for key in ("prior", "counts"):
        if getattr(posterior, key) is not None:
            arrays[key] = getattr(posterior, key)
    if posterior.structure is not None:
        arrays |= {f"structure {key}": a for key, a in posterior.structure.arrays.items()}
    return {
        "n_components": fusion.n_components,
        "penalty": float(fusion.penalty),
        "objective": float(fusion.objective),
        **{f"{key} {what}": sum_ for key, a in arrays.items() for what, sum_ in sums(a).items()},
        "labels": [" ".join(map(str, own.tolist())) for own in fusion.labels],
    }


def sums(array):
    flat = np.asarray(array, dtype=np.float64).ravel()
    place = np.arange(1, len(flat) + 1) / len(flat)
    return {
        "positive": float(flat[flat > 0].sum()),
        "negative": float(flat[flat < 0].sum()),
        "by place": float((place * np.abs(flat)).sum()),
    }


def differences(before, after, tolerance=TOLERANCE):
    """What changed, one line each; none if nothing did."""
    lines = []
    for key in {**before, **after}:
        old, new = before.get(key), after.get(key)
        if key == "labels":
            lines += _label_differences(old, new)
        elif isinstance(old, float) and isinstance(new, float):
            if not math.isclose(old, new, rel_tol=tolerance):
                change = abs(new - old) / max(abs(old), abs(new))
                lines.append(f"{key}: {old!r} -> {new!r}, relative change {change:.1e}")
        elif old != new:
            lines.append(f"{key}: {old!r} -> {new!r}")
    return lines


def _label_differences(old, new):
    if len(old) != len(new):
        return [f"labels: {len(old)} silos -> {len(new)} silos"]
    both = enumerate(zip(old, new, strict=True))
    return [f"labels of silo {j}: {a} -> {b}" for j, (a, b) in both if a != b]


def load():
    return json.loads(PATH.read_text()) if PATH.exists() else {}


def write(results):
    """Replace the file in one step."""
    beside = PATH.with_suffix(".part")
    beside.write_text(json.dumps(results, indent=1) + "\n")
    beside.replace(PATH)
