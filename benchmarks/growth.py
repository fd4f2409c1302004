"""Growth of the default's time with silos, components per silo and dimension.

Also that of reports, with silos, and of common vocabularies, with words.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import klfusion as kf
from benchmarks.measure import Measured, Row, measure
from benchmarks.silos import mixture_silos
from klfusion.posteriors.structure import Structure
from klfusion.posteriors.vocabularies import align_vocabularies

# One of these varies; the others are those of `BASE`.
BASE = {"silos": 20, "components": 20, "dimension": 10}
SIZES = {
    "silos": (50, 100, 200, 400),
    "components": (10, 20, 40, 80),
    "dimension": (5, 10, 20, 40),
}
REPEATS = {"silos": 1, "components": 3, "dimension": 3}
QUICK_SIZES = {"silos": (10, 20), "components": (5, 10), "dimension": (5, 10)}


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
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


def _reported(silos: int) -> Measured:
    """Writing the report of a fusion of so many silos."""
    made, _ = mixture_silos(silos, np.random.default_rng(0), n_true=5, size=3, dim=2)
    fusion = kf.fuse(made)
    with TemporaryDirectory() as folder:
        return measure(lambda: fusion.report(str(Path(folder) / "report.html")), repeats=3)


def _aligned(words: int) -> Measured:
    """Bringing 200 topics of two silos, who share nine words in ten, to one vocabulary."""
    rng, family = np.random.default_rng(0), kf.families.Dirichlet(words)
    silos = [
        kf.Posterior(
            family, rng.random((200, words)) + 0.1, name=name, prior=np.full(words, 0.1),
            structure=Structure(
                "topics", info={"vocabulary": [f"w{i}" for i in first + rng.permutation(words)]}
            ),
        )
        for name, first in (("a", 0), ("b", words // 10))
    ]  # fmt: skip
    return measure(lambda: align_vocabularies(silos), repeats=3)


# Beside fusing: what is varied, its sizes, its sizes in small, and how one is measured.
OTHERS = {
    "a report's silos": ((250, 500, 1_000), (10, 20), _reported),
    "aligned words": ((12_500, 25_000, 50_000), (500, 1_000), _aligned),
}


def run(quick: bool = False) -> list[Row]:
    """One row per varied size; its times are those of the largest."""
    kf.fuse(mixture_silos(3, np.random.default_rng(0), n_true=5, size=3, dim=3)[0])  # imports
    rows = []
    for what, sizes in (QUICK_SIZES if quick else SIZES).items():
        repeats = 1 if quick else REPEATS[what]
        runs = [_fused(repeats, **{**BASE, what: size}) for size in sizes]
        rest = ", ".join(f"{key} {value}" for key, value in BASE.items() if key != what)
        rows.append(_row(what, f" ({rest})", sizes, runs))
    for what, (large, small, one) in OTHERS.items():
        own: Sequence[int] = small if quick else large
        rows.append(_row(what, "", own, [one(size) for size in own]))
    return rows


def _row(what: str, rest: str, sizes: Sequence[int], runs: Sequence[Measured]) -> Row:
    cpu = [run.cpu for run in runs]
    return {
        "problem": f"growth with {what}: {', '.join(f'{size:,}' for size in sizes)}{rest}",
        "peer": "itself at other sizes",
        "ours_s": runs[-1].wall, "cpu_s": cpu[-1], "peak_mb": runs[-1].peak_mb,
        "exponent": exponent(sizes, cpu),
        "sizes": list(sizes), "all_cpu_s": cpu,
        "all_peak_mb": [run.peak_mb for run in runs],
        "note": "CPU " + ", ".join(f"{s:.3g}" for s in cpu) + " s",
    }  # fmt: skip
