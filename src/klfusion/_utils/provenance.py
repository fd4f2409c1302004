"""Plain facts that travel with a result, so that it can be told later how it was made."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any


@cache  # it is looked up in a file
def library_version() -> str:
    """The version of klfusion that runs."""
    try:
        return version("klfusion")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "unknown"


def provenance(**facts: Any) -> dict[str, Any]:
    """Library versions, and the facts given (arrays as lists) where they are known."""
    import numpy  # noqa: PLC0415 (slow to import, and the command line asks for our version only)
    import scipy  # noqa: PLC0415

    return {
        "klfusion": library_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
        **{
            key: value.tolist() if isinstance(value, numpy.ndarray) else value
            for key, value in facts.items()
            if value is not None
        },
    }
