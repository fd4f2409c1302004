"""A request to end, as ``kill`` and shells that close send it."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_TERMINATED = 143  # 128 and the number of the signal, as shells have it


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Within it a request to end is no kill: ``with`` blocks are left. Own handlers stay."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
