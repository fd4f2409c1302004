"""Measuring two sides alike: in one process and one thread, wall and CPU time, peak memory."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from threadpoolctl import threadpool_limits

from klfusion._utils import threads

Row = dict[str, Any]
_PROCESS = Path("/proc/self")
# A call is repeated until it has taken about so long, but not more often than that: what others
# do on the machine slows one run by half and the next not at all.
LEAST_SECONDS, MOST_REPEATS = 1.5, 31
# Which extra of klfusion installs a peer.
_EXTRAS = {
    "cvxpy": "bench", "ot": "bench", "torch": "torch", "hmmlearn": "hmmlearn",
    "distributed": "dask",
}  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """The last result, median times in seconds, and the peak in MB where the system tells it."""

    result: Any
    wall: float
    cpu: float
    peak_mb: float | None


def measure(call: Callable[[], Any], repeats: int = 1) -> Measured:
    """Run so many times, short calls more often; the memory is that of the last run.

    The peak is how far resident memory rose above where it stood before the call: what the
    arguments take is not in it, nor what earlier calls left with the allocator. Linux only.
    """
    walls: list[float] = []
    cpus: list[float] = []
    with threadpool_limits(1):
        while len(walls) < repeats:
            result = None  # else the last result would be in memory beside the next
            if len(walls) == repeats - 1:
                before = _reset_peak()
            wall, cpu = time.perf_counter(), time.process_time()
            result = call()
            cpus.append(time.process_time() - cpu)
            walls.append(time.perf_counter() - wall)
            if len(walls) == 1:
                repeats = max(repeats, min(MOST_REPEATS, int(LEAST_SECONDS / walls[0])))
    peak = None if before is None else max(0.0, (_memory("VmHWM") - before) / 1024)
    return Measured(result, median(walls), median(cpus), peak)


def _reset_peak() -> int | None:
    """Let the peak be what is resident now, in kB; None where that cannot be done."""
    gc.collect()
    with suppress(AttributeError, OSError, TypeError):  # where the C library is not GNU's
        ctypes.CDLL(None).malloc_trim(0)  # else what was freed would be used again, unseen
    try:
        (_PROCESS / "clear_refs").write_text("5")
        return _memory("VmRSS")
    except OSError:
        return None


def high_water_mb() -> float | None:
    """The most this process has held since it began, or since the last `measure` did."""
    return _memory("VmHWM") / 1024 if _PROCESS.exists() else None


def _memory(field: str) -> int:
    lines = (_PROCESS / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def compare(problem: str, peer: str, ours: Measured, theirs: Measured, **more: Any) -> Row:
    """Make a row: the ratio is of CPU times, which others on the machine hardly move."""
    return {
        "problem": problem, "peer": peer,
        "ours_s": ours.wall, "peer_s": theirs.wall,
        "cpu_s": ours.cpu, "peer_cpu_s": theirs.cpu, "ratio": theirs.cpu / ours.cpu,
        "peak_mb": ours.peak_mb, "peer_peak_mb": theirs.peak_mb,
        **more,
    }  # fmt: skip


def has(library: str) -> bool:
    """Import a peer, or say what is left out without it, and how to get it."""
    try:
        import_module(library)
    except ImportError:
        Console(width=160, highlight=False).print(
            f"{library} is not installed, rows against it are left out: "
            f"pip install 'klfusion[{_EXTRAS[library]}]'",
            markup=False,
        )
        return False
    return True


def machine() -> dict[str, Any]:
    """What the figures are of."""
    return {
        "cores": os.cpu_count(), "processor": platform.machine(),
        "blas_threads": 1, "threads": threads.available(),
        "python": platform.python_version(), "numpy": np.__version__,
    }  # fmt: skip
