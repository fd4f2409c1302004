"""Text for messages and terminals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def printable(text: str) -> str:
    """One line without control characters, for untrusted names."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def few(names: Sequence[Any], most: int = 5) -> str:
    """The first few of many names, as in ``'a', 'b', 'c' and 4 more``."""
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
