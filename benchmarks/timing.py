"""Timing two things fairly: in turn, in one process, the median of several runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Timed:
    """The last result, and the median wall time in seconds."""

    result: Any
    seconds: float


def timed(run: Callable[[], Any], repeats: int = 1) -> Timed:
    """Run several times and keep the median time."""
    seconds = []
    result = None
    for _ in range(repeats):
        start = time.perf_counter()
        result = run()
        seconds.append(time.perf_counter() - start)
    return Timed(result, median(seconds))
