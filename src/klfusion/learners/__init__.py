"""Local models that no maintained library offers; imported when first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from klfusion.learners.sticky_hdp_hmm import StickyHDPHMM

__all__ = ["StickyHDPHMM"]

_HOMES = {"StickyHDPHMM": "sticky_hdp_hmm"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
