"""Very many silos: growth of time and memory, fusion from files, fusion on Dask."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

import klfusion as kf
from benchmarks.growth import exponent
from benchmarks.measure import Measured, Row, compare, has, high_water_mb, measure
from benchmarks.silos import mixture_silos
from klfusion.objective.batches import InMemory

MEMORY_LIMIT = "256MB"
WORKERS = (1, 2)
# Memory that workers keep, as docs/scaling.md advises: by default they return it at once.
KEPT = {"MALLOC_TRIM_THRESHOLD_": 134_217_728, "MALLOC_MMAP_THRESHOLD_": 33_554_432}


@dataclass(frozen=True)
class Shape:
    """Numbers of silos, each twice the one before, and the size of a silo."""

    n_silos: tuple[int, ...]
    size: int
    n_true: int
    dim: int

    def __str__(self) -> str:
        return f"{self.size} of {self.n_true} components, {self.dim} dimensions"

    def silos(self, n_silos: int) -> tuple[list[kf.Posterior], NDArray[np.intp]]:
        """Silos, and the true component of each local component."""
        return mixture_silos(
            n_silos, np.random.default_rng(0), n_true=self.n_true, size=self.size, dim=self.dim
        )


FULL = Shape((1_250, 2_500, 5_000, 10_000), size=20, n_true=200, dim=10)
QUICK = Shape((50, 100, 200, 400), size=5, n_true=20, dim=3)


@dataclass(frozen=True)
class Run:
    """A fusion: time, peak memory of the process, size and accuracy."""

    measured: Measured
    process_mb: float | None
    size: int
    ari: float

    def __str__(self) -> str:
        return f"size {self.size}, ARI {self.ari:.4f}{_mb(self.process_mb, ' in all')}"


def _mb(most: float | None, where: str) -> str:
    return "" if most is None else f", {most:,.0f} MB{where}"


def run(quick: bool = False) -> list[Row]:
    """One row per doubling, one for the exponent, one for files and one for Dask."""
    shape = QUICK if quick else FULL
    kf.fuse(mixture_silos(3, np.random.default_rng(0), n_true=5, size=3, dim=3)[0])  # imports
    runs, passes = zip(*(_in_memory(shape, n) for n in shape.n_silos), strict=True)
    rows = [
        _doubled(shape, *some)
        for some in zip(shape.n_silos[1:], runs[1:], runs[:-1], passes[1:], strict=True)
    ]
    rows.append(_growth(shape, runs, passes))
    with tempfile.TemporaryDirectory(prefix="klfusion-silos-") as folder:
        paths, truth = _written(shape, Path(folder))
        out_of_core = _fused(partial(kf.fuse_files, paths, memory_limit=MEMORY_LIMIT), truth)
        rows.append(
            compare(
                f"{len(paths):,} silos in files, memory_limit {MEMORY_LIMIT} ({shape})",
                "silos in memory", out_of_core.measured, runs[-1].measured, **_columns(out_of_core),
            )
        )  # fmt: skip
        if has("distributed"):
            rows.append(_dask_row(shape, paths, truth))
    return rows


# In memory ---------------------------------------------------------------------------------------


def _in_memory(shape: Shape, n_silos: int) -> tuple[Run, int]:
    """Fuse ``n_silos`` silos and count the passes over all of them."""
    silos, truth = shape.silos(n_silos)
    seen: list[Any] = []
    real = InMemory.reduce

    def counted(parts: InMemory, *arguments: Any) -> Any:
        seen.append(arguments)
        return real(parts, *arguments)

    def call() -> kf.Fusion:
        seen.clear()  # short calls are repeated
        return kf.fuse(silos)

    with patch.object(InMemory, "reduce", counted):
        return _fused(call, truth), len(seen)


def _fused(call: Callable[[], kf.Fusion], truth: NDArray[np.intp]) -> Run:
    measured = measure(call)
    most, fusion = high_water_mb(), measured.result
    ari = float(adjusted_rand_score(truth, np.concatenate(fusion.labels)))
    # Without its result, which would count in the next measurement.
    return Run(replace(measured, result=None), most, fusion.n_components, ari)


def _columns(run: Run, **more: Any) -> Row:
    return {
        "size": run.size, "ari": run.ari, "process_mb": run.process_mb, "note": str(run), **more,
    }  # fmt: skip


def _doubled(shape: Shape, n_silos: int, twice: Run, once: Run, passes: int) -> Row:
    times = [getattr(twice.measured, t) / getattr(once.measured, t) for t in ("cpu", "wall")]
    note = f"{times[0]:.2f} times the CPU, {times[1]:.2f} the wall time; {passes} passes; {twice}"
    columns = _columns(twice, n_silos=n_silos, passes=passes, note=note)
    problem = f"{n_silos:,} silos ({shape})"
    return compare(problem, "half as many silos", twice.measured, once.measured, **columns)


def _growth(shape: Shape, runs: Sequence[Run], passes: Sequence[int]) -> Row:
    last, cpu = runs[-1], [run.measured.cpu for run in runs]
    listed = ", ".join(f"{n:,}" for n in shape.n_silos)
    columns = _columns(last, note="CPU " + ", ".join(f"{s:.3g}" for s in cpu) + " s")
    return {
        "problem": f"growth with silos: {listed} ({shape})",
        "peer": "itself at other sizes",
        "ours_s": last.measured.wall, "cpu_s": cpu[-1], "peak_mb": last.measured.peak_mb,
        "exponent": exponent(list(shape.n_silos), cpu),
        "n_silos": list(shape.n_silos), "all_passes": list(passes),
        "all_cpu_s": cpu, "all_s": [run.measured.wall for run in runs],
        "all_mb": [run.process_mb for run in runs],
        **columns,
    }  # fmt: skip


# Files and Dask ----------------------------------------------------------------------------------


def _written(shape: Shape, folder: Path) -> tuple[list[str], NDArray[np.intp]]:
    """One file per silo of the largest problem; no silo stays in memory."""
    silos, truth = shape.silos(shape.n_silos[-1])
    paths = [str(folder / f"{silo.name}.safetensors") for silo in silos]
    for path, silo in zip(paths, silos, strict=True):
        kf.save(path, silo)
    return paths, truth


def _dask_row(shape: Shape, paths: list[str], truth: NDArray[np.intp]) -> Row:
    """Two worker processes against one, by wall time: the work is the same."""
    load = os.getloadavg()[0]
    (one, _), (two, shares) = (_on_dask(paths, truth, n) for n in WORKERS)
    ratio = one.measured.wall / two.measured.wall
    note = f"ratio of wall times, load {load:.1f} before; {shares}; size {two.size}, "
    note += f"ARI {two.ari:.4f}"
    return compare(
        f"{len(paths):,} silos in files, {WORKERS[1]} Dask worker processes ({shape})",
        f"{WORKERS[0]} worker process", two.measured, one.measured,
        **_columns(two, ratio=ratio, load=load, note=note),
    )  # fmt: skip


def _on_dask(paths: list[str], truth: NDArray[np.intp], n_workers: int) -> tuple[Run, str]:
    """Fuse on local processes; CPU time of all processes, memory of the largest worker."""
    from dask import config
    from distributed import Client, LocalCluster

    from klfusion.out_of_core import dask

    spent: list[float] = []

    def call() -> kf.Fusion:
        before = sum(client.run(time.process_time).values())
        fusion = dask.fuse(paths, client)
        spent.append(sum(client.run(time.process_time).values()) - before)
        return fusion

    with (
        config.set({f"distributed.nanny.pre-spawn-environ.{k}": v for k, v in KEPT.items()}),
        LocalCluster(
            n_workers=n_workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.wait_for_workers(n_workers, timeout=60)
        fused = _fused(call, truth)
        held = [mb for mb in client.run(high_water_mb).values() if mb is not None]
    own, theirs = fused.measured.cpu, spent[-1]
    most = max(held, default=None)
    run = Run(replace(fused.measured, cpu=own + theirs, peak_mb=most), most, fused.size, fused.ari)
    driver, workers = _mb(fused.process_mb, ""), _mb(most, " at most")
    return run, f"driver {own:.3g} s of CPU{driver}; workers {theirs:.3g} s{workers}"


# Figure ------------------------------------------------------------------------------------------


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw time and memory against silos from the rows of `run`."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    growth = next(row for row in rows if "exponent" in row)
    n = growth["n_silos"]
    figure, (times, memory) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    times.plot(n, growth["all_s"], "o-", color="#0072B2", label="wall, in memory")
    times.plot(n, growth["all_cpu_s"], "o--", color="#56B4E9", label="CPU, in memory")
    memory.plot(n, growth["all_mb"], "o-", color="#0072B2", label="the process, in memory")
    others = {  # part of a row's name: marker, colour, label of time, label of memory
        "memory_limit": ("s", "#D55E00", "files, memory_limit", "the process, memory_limit"),
        "Dask": ("^", "#009E73", "two Dask workers", "the larger of two Dask workers"),
    }
    for what, (marker, colour, timed, held) in others.items():
        for row in (row for row in rows if what in row["problem"]):
            times.plot(n[-1:], row["ours_s"], marker, color=colour, label=f"wall, {timed}")
            if what == "Dask":
                times.plot(n[-1:], row["peer_s"], "v", color=colour, label="wall, one Dask worker")
            memory.plot(n[-1:], row["process_mb"], marker, color=colour, label=held)
    for panel, unit in ((times, "seconds"), (memory, "MB, at most")):
        panel.set(xlabel="silos", ylabel=unit)
        panel.set_xticks(n, [f"{k:,}" for k in n])
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)
