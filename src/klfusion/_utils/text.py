"""Text for messages and terminals."""

from collections.abc import Sequence, Sized
from typing import Any

_LONGEST = 80  # characters of a setting that an error repeats


def printable(text: str) -> str:
    """One line without control characters, for untrusted names."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def is_unicode(text: str) -> bool:
    """Whether text can be written: a half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def few(names: Sequence[Any], most: int = 5) -> str:
    """The first few of many names, as in ``'a', 'b', 'c' and 4 more``."""
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def brief(value: object) -> str:
    """A setting in an error: its type and size if it is long, for it may hold observations.

    >>> import numpy as np
    >>> brief("no"), brief(np.eye(3)), brief([1.5] * 99)
    ("'no'", 'ndarray of shape (3, 3)', 'list of length 99')
    """
    shape, kind = getattr(value, "shape", ()), type(value).__name__
    if shape:
        return f"{kind} of shape {tuple(shape)}"
    text = repr(value)
    if len(text) <= _LONGEST:
        return text
    return f"{kind} of length {len(value)}" if isinstance(value, Sized) else kind
