"""Functions of later packages, imported by name when called: imports point in one direction."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

_HOMES: dict[str, str] = {}


def provide(homes: Mapping[str, str]) -> None:
    """Register functions by name, as ``"module:function"`` relative to klfusion."""
    _HOMES.update(homes)


def provided(name: str) -> Any:
    """Import and return a registered function."""
    module, _, function = _HOMES[name].partition(":")
    return getattr(import_module(f"klfusion.{module}"), function)
