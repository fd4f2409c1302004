"""Equal measurement of both sides: one process, one thread, wall and CPU time, peak memory."""

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

from klfusion._utils.running import available_threads

Row = dict[str, Any]
_PROCESS = Path("/proc/self")
# Short calls are repeated, because other load on the machine makes single times noisy.
MIN_SECONDS, MAX_REPEATS = 1.5, 31
# The extra of klfusion that installs a peer.
_EXTRAS = {
    "cvxpy": "bench", "ot": "bench", "torch": "torch", "hmmlearn": "hmmlearn",
    "distributed": "dask",
}  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """The last result, median times in seconds, and the peak in MB, None if unknown."""

    result: Any
    wall: float
    cpu: float
    peak_mb: float | None


def measure(call: Callable[[], Any], repeats: int = 1) -> Measured:
    """Run at least ``repeats`` times, short calls more often; memory of the last run.

    The peak is the rise of resident memory above its level before the call. It excludes arguments
    and memory that the allocator kept. Linux only.
    """
    walls: list[float] = []
    cpus: list[float] = []
    with threadpool_limits(1):
        while len(walls) < repeats:
            result = None  # frees the last result before the next call
            if len(walls) == repeats - 1:
                before = _reset_peak()
            wall, cpu = time.perf_counter(), time.process_time()
            result = call()
            cpus.append(time.process_time() - cpu)
            walls.append(time.perf_counter() - wall)
            if len(walls) == 1:
                repeats = max(repeats, min(MAX_REPEATS, int(MIN_SECONDS / walls[0])))
    peak = None if before is None else max(0.0, (_memory("VmHWM") - before) / 1024)
    return Measured(result, median(walls), median(cpus), peak)


def _reset_peak() -> int | None:
    """Reset the peak to the resident memory and return it in kB; None if not possible."""
    gc.collect()
    with suppress(AttributeError, OSError, TypeError):  # only GNU's C library has it
        ctypes.CDLL(None).malloc_trim(0)  # returns freed memory, which reuse would hide
    try:
        (_PROCESS / "clear_refs").write_text("5")
        return _memory("VmRSS")
    except OSError:
        return None


def high_water_mb() -> float | None:
    """Peak memory of this process in MB since its start or the last `measure`."""
    return _memory("VmHWM") / 1024 if _PROCESS.exists() else None


def _memory(field: str) -> int:
    lines = (_PROCESS / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def compare(problem: str, peer: str, ours: Measured, theirs: Measured, **more: Any) -> Row:
    """A row with the ratio of CPU times, which depend little on other load."""
    return {
        "problem": problem, "peer": peer,
        "ours_s": ours.wall, "peer_s": theirs.wall,
        "cpu_s": ours.cpu, "peer_cpu_s": theirs.cpu, "ratio": theirs.cpu / ours.cpu,
        "peak_mb": ours.peak_mb, "peer_peak_mb": theirs.peak_mb,
        **more,
    }  # fmt: skip


def has(library: str) -> bool:
    """Whether a peer can be imported; if not, print how to install it."""
    try:
        import_module(library)
    except ImportError:
        Console(width=160, highlight=False).print(
            f"{library} is not installed, its rows are left out: "
            f"pip install 'klfusion[{_EXTRAS[library]}]'",
            markup=False,
        )
        return False
    return True


def machine() -> dict[str, Any]:
    """The machine and the versions behind the figures."""
    return {
        "cores": os.cpu_count(), "processor": platform.machine(),
        "blas_threads": 1, "threads": available_threads(),
        "python": platform.python_version(), "numpy": np.__version__,
    }  # fmt: skip
