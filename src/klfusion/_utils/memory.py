"""Checks that an array fits in memory before it is allocated."""

import os

from klfusion.errors import KLFusionError


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


def require(n_bytes: int, what: str, instead: str) -> None:
    """Raise a `KLFusionError` if ``n_bytes`` are not available."""
    free = available_bytes()
    if n_bytes > free:
        raise KLFusionError(
            f"{what} needs {n_bytes / 1e9:,.1f} GB of memory, {free / 1e9:,.1f} GB are free: "
            f"{instead}"
        )
