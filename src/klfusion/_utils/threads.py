"""Threads for long loops over arrays.

numpy releases the interpreter lock while it computes. The number of threads is that of its matrix
products: ``OMP_NUM_THREADS``, or else the cores available to this process. Parallel fits and Dask
set that variable, so that processes do not oversubscribe the cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

_MIN_ENTRIES = 1 << 16  # per thread: a tenth of a millisecond of work


def available() -> int:
    """Number of threads that may run at once.

    Examples
    --------
    >>> from klfusion._utils import threads
    >>> threads.available() >= 1
    True
    """
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share(work: Callable[[slice], None], n: int, entries: int) -> None:
    """Call ``work`` with slices that partition ``range(n)``, in parallel if there is enough work.

    Parameters
    ----------
    work : callable
        Writes the results of its slice to memory that no other slice uses.
    n : int
    entries : int
        Numbers to process in total.

    Examples
    --------
    >>> import numpy as np
    >>> from klfusion._utils import threads
    >>> squares = np.zeros(5)
    >>> def work(some: slice) -> None:
    ...     squares[some] = np.arange(5.0)[some] ** 2
    >>> threads.share(work, n=5, entries=10**6)
    >>> squares
    array([ 0.,  1.,  4.,  9., 16.])
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
