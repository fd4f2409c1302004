"""Of the package itself: versions of libraries, and functions of later packages by name.

Such a function is imported when it is called: imports point in one direction.
"""

import platform
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any


@cache  # the lookup reads a file
def library_version() -> str:
    """Installed version of klfusion."""
    try:
        return version("klfusion")
    except PackageNotFoundError:  # a source tree that is not installed
        return "unknown"


def provenance(**fields: Any) -> dict[str, Any]:
    """Versions of libraries and the given fields: arrays as lists, None left out."""
    import numpy  # noqa: PLC0415 (slow; `library_version` needs neither)
    import scipy  # noqa: PLC0415

    versions = {"klfusion": library_version(), "numpy": numpy.__version__}
    versions |= {"scipy": scipy.__version__, "python": platform.python_version()}
    given = {key: value for key, value in fields.items() if value is not None}
    arrays = {key: v.tolist() for key, v in given.items() if isinstance(v, numpy.ndarray)}
    return {**versions, **given, **arrays}


_HOMES: dict[str, str] = {}


def provide(homes: Mapping[str, str]) -> None:
    """Register functions by name, as ``"module:function"`` relative to klfusion."""
    _HOMES.update(homes)


def provided(name: str) -> Any:
    """Import and return a registered function."""
    module, _, function = _HOMES[name].partition(":")
    return getattr(import_module(f"klfusion.{module}"), function)
