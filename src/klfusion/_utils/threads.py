"""Long loops over arrays, shared between the cores there are.

numpy lets other threads run while it computes. There are as many as its matrix products have:
``OMP_NUM_THREADS``, or else the cores that this process may run on. Where many processes share a
machine (parallel fits, Dask) that variable is set for them, so cores are not asked for twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

_WORTH_IT = 1 << 16  # numbers to be worked on: a tenth of a millisecond of work


def available() -> int:
    """How many threads may run at once.

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
    """Call ``work`` with slices that make up ``range(n)``, at the same time if that pays.

    Parameters
    ----------
    work : callable
        Writes what it finds for its slice where no other writes.
    n : int
    entries : int
        Numbers that all of it has to go through.

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
    parts = min(available(), entries // _WORTH_IT, n)
    if parts < 2:
        work(slice(0, n))
        return
    edges = [n * k // parts for k in range(parts + 1)]
    own, *others = [slice(a, b) for a, b in pairwise(edges)]
    handed_out = [_pool().submit(work, some) for some in others]
    try:
        work(own)
    finally:  # nobody writes any more when this returns, whatever happened
        errors = [future.exception() for future in handed_out]
    for error in errors:
        if error is not None:
            raise error


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(available(), thread_name_prefix="klfusion")


if hasattr(os, "register_at_fork"):  # threads do not live on in a child
    os.register_at_fork(after_in_child=_pool.cache_clear)
