"""Growth of the default's time with silos, components per silo and dimension."""

from __future__ import annotations

from typing import Any

import numpy as np

import klfusion as kf
from benchmarks.measure import Measured, Row, measure
from benchmarks.silos import mixture_silos

# One of these varies; the others are those of `BASE`.
BASE = {"silos": 20, "components": 20, "dimension": 10}
SIZES = {
    "silos": (50, 100, 200, 400),
    "components": (10, 20, 40, 80),
    "dimension": (5, 10, 20, 40),
}
REPEATS = {"silos": 1, "components": 3, "dimension": 3}
QUICK_SIZES = {"silos": (10, 20), "components": (5, 10), "dimension": (5, 10)}


def exponent(sizes: list[float], seconds: list[float]) -> float:
    """Slope of the least-squares line through the logarithms: the power of size in time.

    >>> round(exponent([1, 2, 4], [3, 12, 48]), 6)
    2.0
    """
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def _fused(repeats: int, silos: int, components: int, dimension: int) -> Measured:
    made, _ = mixture_silos(
        silos, np.random.default_rng(0),
        n_true=10 * components, size=components, dim=dimension,
    )  # fmt: skip
    return measure(lambda: kf.fuse(made), repeats=repeats)


def run(quick: bool = False) -> list[Row]:
    """One row per varied size; its times are those of the largest."""
    kf.fuse(mixture_silos(3, np.random.default_rng(0), n_true=5, size=3, dim=3)[0])  # imports
    rows = []
    for what, sizes in (QUICK_SIZES if quick else SIZES).items():
        repeats = 1 if quick else REPEATS[what]
        runs = [_fused(repeats, **{**BASE, what: size}) for size in sizes]
        cpu = [run.cpu for run in runs]
        rest: dict[str, Any] = {key: value for key, value in BASE.items() if key != what}
        listed = ", ".join(f"{size:,}" for size in sizes)
        rows.append(
            {
                "problem": f"growth with {what}: {listed} "
                f"({', '.join(f'{key} {value}' for key, value in rest.items())})",
                "peer": "itself at other sizes",
                "ours_s": runs[-1].wall, "cpu_s": cpu[-1], "peak_mb": runs[-1].peak_mb,
                "exponent": exponent(list(sizes), cpu),
                "sizes": list(sizes), "all_cpu_s": cpu,
                "all_peak_mb": [run.peak_mb for run in runs],
                "note": "CPU " + ", ".join(f"{s:.3g}" for s in cpu) + " s",
            }
        )  # fmt: skip
    return rows
