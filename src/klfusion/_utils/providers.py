"""Functions of later packages, looked up by name when they are called.

`Fusion.add` is a method of an early package and the work of a late one. The package's `__init__`
names where each such function lives, so that imports point one way.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

_HOMES: dict[str, str] = {}


def provide(homes: Mapping[str, str]) -> None:
    """Name the home, ``"module:function"`` within klfusion, of each function."""
    _HOMES.update(homes)


def provided(name: str) -> Any:
    """Import and return a function that was named."""
    module, _, function = _HOMES[name].partition(":")
    return getattr(import_module(f"klfusion.{module}"), function)
