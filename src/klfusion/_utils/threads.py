"""Threads for long loops over arrays: numpy releases the interpreter lock.

Their number is ``OMP_NUM_THREADS``, or else the cores available to this process.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

_MIN_ENTRIES = 1 << 16  # per thread: a tenth of a millisecond of work


def available() -> int:
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
    parts = min(available(), entries // _MIN_ENTRIES, n)
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
    return ThreadPoolExecutor(available(), thread_name_prefix="klfusion")


if hasattr(os, "register_at_fork"):  # a forked child has no threads
    os.register_at_fork(after_in_child=_pool.cache_clear)
