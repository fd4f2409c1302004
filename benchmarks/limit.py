"""Whole fusions against their limit: the bare work of one pass over all components.

The pass has one matrix of divergences between components and centres, one log-partition of each
component, and one assignment per silo. Everything else that a fusion does is on top.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

import klfusion as kf
from benchmarks.measure import Measured, Row, compare, high_water_mb, measure
from benchmarks.silos import mixture_silos, uneven_silos

N_SILOS, QUICK_SILOS = 10_000, 20
_ROWS = 20_000  # components whose divergences are computed at once
IMPORTS = {
    "import klfusion": "import klfusion",
    "klfusion --help": "from klfusion.cli.commands import main; main(['--help'])",
    "import klfusion, and the first use of kf.fuse": "import klfusion as kf; kf.fuse",
}


def bare_pass(silos: list[kf.Posterior], size: int) -> NDArray[np.intp]:
    """Log-partitions, divergences from ``size`` centres, and an assignment per silo."""
    family = silos[0].family
    natural = np.concatenate([silo.natural for silo in silos])
    starts = np.cumsum([0, *(silo.n_components for silo in silos)])
    centres = natural[np.random.default_rng(0).permutation(len(natural))[:size]]
    log_partition = family.log_partition(natural)
    labels = np.empty(len(natural), dtype=np.intp)
    for first in range(0, len(silos), max(1, _ROWS // silos[0].n_components)):
        last = min(first + max(1, _ROWS // silos[0].n_components), len(silos))
        rows = slice(starts[first], starts[last])
        costs = family.kl_from(centres, natural[rows], log_partition[rows])
        for j in range(first, last):
            own = slice(starts[j] - rows.start, starts[j + 1] - rows.start)
            labels[starts[j] : starts[j + 1]] = linear_sum_assignment(costs[own])[1]
    return labels


def topics(n_silos: int, words: int) -> list[kf.Posterior]:
    """Silos of 20 of 50 topics each."""
    rng = np.random.default_rng(0)
    family, true = kf.families.Dirichlet(words), rng.dirichlet(np.full(words, 0.05), size=50)
    silos = []
    for j in range(n_silos):
        counts = np.stack([rng.multinomial(20_000, true[k]) for k in rng.permutation(50)[:20]])
        natural = np.asarray(0.1 + counts, dtype=np.float64)
        silos.append(kf.Posterior(family, natural, name=f"silo-{j}"))
    return silos


def units(n_silos: int, weights: int, size: int = 50, n_true: int = 80) -> list[kf.Posterior]:
    """Silos of ``size`` of ``n_true`` units of a layer each."""
    rng = np.random.default_rng(0)
    family, true = kf.families.DiagonalNormal(weights), rng.normal(size=(n_true, weights))
    silos = []
    for j in range(n_silos):
        means = true[rng.permutation(n_true)[:size]] + 0.3 * rng.normal(size=(size, weights))
        natural = family.natural(means, np.full(means.shape, 0.1))
        silos.append(kf.Posterior(family, natural, name=f"silo-{j}"))
    return silos


def run(quick: bool = False) -> list[Row]:
    """One row per kind of model, and the times of imports."""
    n = QUICK_SILOS if quick else N_SILOS
    kf.fuse(mixture_silos(3, np.random.default_rng(0), n_true=5, size=3, dim=3)[0])  # imports
    rows = [
        _row(f"{n:,} silos x 20 components, 10 dimensions, even", 200,
             partial(_first, mixture_silos, n)),
        _row(f"{n:,} silos x 20 components, 10 dimensions, uneven", 200,
             partial(_first, uneven_silos, n)),
    ]  # fmt: skip
    words, weights = (500, 100) if quick else (12_500, 795)
    rows.append(_row(f"50 topics of {words:,} words, 5 silos", 50, partial(topics, 5, words)))
    rows.append(_row(f"750 units of {weights} weights, 15 silos", 80, partial(units, 15, weights)))
    n, weights = (20, 100) if quick else (1_000, 1_000)
    wide = partial(units, n, weights, 5, 20)
    rows.append(_row(f"{5 * n:,} units of {weights:,} weights, {n:,} silos", 20, wide))
    return rows + [_started(name, code) for name, code in IMPORTS.items()]


def _first(
    make: Callable[..., tuple[list[kf.Posterior], NDArray[np.intp]]], n_silos: int
) -> list[kf.Posterior]:
    return make(n_silos, np.random.default_rng(0))[0]


def _row(problem: str, size: int, make: Callable[[], list[kf.Posterior]]) -> Row:
    silos = make()
    # A first pass takes up to twice the time, in which the system makes room.
    bare = measure(partial(bare_pass, silos, size), repeats=3)
    ours = measure(partial(kf.fuse, silos), repeats=3)
    most, found = high_water_mb(), ours.result.n_components
    memory = "" if most is None else f", {most:,.0f} MB in all"
    note = f"{ours.cpu / bare.cpu:.3g} times the limit; size {found}{memory}"
    return compare(problem, "one bare pass", ours, bare, size=found, process_mb=most, note=note)


def _started(name: str, code: str) -> Row:
    """A new process against one that imports NumPy alone."""

    def call(own: str) -> Measured:
        command = partial(subprocess.run, [sys.executable, "-c", own])
        return measure(partial(command, stdout=subprocess.DEVNULL, check=True), repeats=5)

    ours, numpy = call(code), call("import numpy")
    ratio = numpy.wall / ours.wall
    return compare(name, "import numpy", ours, numpy, ratio=ratio, note="ratio of wall times")
