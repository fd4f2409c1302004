"""What long computations need: progress, memory, threads, and steps repeated to a tolerance."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

from klfusion._utils.arrays import BoolArray, IntArray
from klfusion._utils.checks import check_flag
from klfusion.errors import KLFusionError

Report = Callable[[str, int, int | None], None]
_REFRESH = 0.1  # seconds between two drawings of a progress bar


def silent(stage: str, done: int, total: int | None) -> None:
    """Report nothing."""


@contextmanager
def progress_bar(show: bool | None = None) -> Iterator[Report]:
    """Yield ``report(stage, done, total)``; by default a bar appears on terminals only."""
    check_flag("progress", show, optional=True)
    if not (sys.stderr.isatty() if show is None else show):
        yield silent
        return
    from rich.console import Console  # noqa: PLC0415 (only if a bar is shown)
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    # Without a thread of its own, which an interrupt could leave behind.
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as bar:
        task, shown = bar.add_task("fusing", total=None), -_REFRESH

        def report(stage: str, done: int, total: int | None) -> None:
            nonlocal shown
            now = time.monotonic()
            due = now - shown >= _REFRESH
            shown = now if due else shown
            bar.update(task, description=stage, completed=done, total=total, refresh=due)

        yield report


def available_bytes() -> int:
    """Memory available without swapping, in bytes; a huge number if unknown."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:  # noqa: PTH123 (not a file on disk)
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return 1 << 62


def require_memory(n_bytes: int, what: str, instead: str) -> None:
    """Raise a `KLFusionError` if ``n_bytes`` are not available."""
    free = available_bytes()
    if n_bytes > free:
        raise KLFusionError(
            f"{what} needs {n_bytes / 1e9:,.1f} GB of memory, {free / 1e9:,.1f} GB are free: "
            f"{instead}"
        )


_MIN_ENTRIES = 1 << 16  # per thread: a tenth of a millisecond of work


def available_threads() -> int:
    """Number of threads that may run at once."""
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share(work: Callable[[slice], None], n: int, entries: int) -> None:
    """Call ``work`` with slices that partition ``range(n)``, in parallel if there is enough work.

    Each call writes to memory that no other slice uses; ``entries`` numbers are processed in total.
    """
    parts = min(available_threads(), entries // _MIN_ENTRIES, n)
    if parts < 2:
        work(slice(0, n))
        return
    edges = [n * k // parts for k in range(parts + 1)]
    own, *others = [slice(a, b) for a, b in pairwise(edges)]
    futures = [_pool().submit(work, some) for some in others]
    try:
        work(own)
    finally:  # wait: no thread may write after the return
        errors = [future.exception() for future in futures]
    for error in errors:
        if error is not None:
            raise error


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(available_threads(), thread_name_prefix="klfusion")


if hasattr(os, "register_at_fork"):  # a forked child has no threads
    os.register_at_fork(after_in_child=_pool.cache_clear)


_State = TypeVar("_State")
_Labels = TypeVar("_Labels", IntArray, BoolArray)


class Descent(NamedTuple, Generic[_State]):
    """Where a descent stopped: after the last step that lowered the objective."""

    state: _State
    trace: list[float]  # the objective at the start and after each step
    converged: bool  # whether the next step lowers it by no more than the tolerance


def descend(
    step: Callable[[_State], tuple[_State, float]],
    start: _State,
    value: float,
    *,
    tol: float = 0.0,
    max_iter: int,
    stage: str = "",
    report: Report = silent,
) -> Descent[_State]:
    """Repeat a step until it lowers the objective by no more than ``tol``, relative.

    A ``step`` returns the next state and its objective, and leaves its argument unchanged.
    """
    state, trace = start, [value]
    for number in range(max_iter):
        report(stage, number + 1, None)
        new, value = step(state)
        if trace[-1] - value <= tol * abs(trace[-1]):
            return Descent(state, trace, converged=True)
        state = new
        trace.append(value)
    return Descent(state, trace, converged=False)


def settle(step: Callable[[_Labels], _Labels], labels: _Labels, *, max_iter: int) -> _Labels:
    """Repeat a step on labels (n,) until it changes none of them."""
    for _ in range(max_iter):
        labels, before = step(labels), labels
        if (labels == before).all():
            break
    return labels
