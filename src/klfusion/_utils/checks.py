"""Checks of settings before any work, with one-line errors, and the text of messages."""

from collections.abc import Sequence, Sized
from typing import Any

import numpy as np

from klfusion.errors import KLFusionError

_LONGEST = 80  # characters of a setting that an error repeats


def printable(text: str) -> str:
    """One line without control characters, for untrusted names."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


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


def is_integer(value: object) -> bool:
    """Whether a setting is an integer and not a boolean."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether a setting is a number and not a boolean."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def check_integer(name: str, value: object, least: int = 1) -> None:
    """Refuse everything but integers of at least ``least``."""
    if not (is_integer(value) and value >= least):  # type: ignore[operator]
        raise KLFusionError(f"expected {name} to be an integer >= {least}, got {brief(value)}")


def check_flag(name: str, value: object, *, optional: bool = False) -> None:
    """Refuse everything but booleans, or None if optional: the text "no" would be true."""
    if not (isinstance(value, bool | np.bool_) or (optional and value is None)):
        raise KLFusionError(f"expected {name} to be True or False, got {brief(value)}")


def seed_of(random_state: Any) -> int:
    """The seed, where one was given; 0 for other sources of random numbers."""
    return int(random_state) if is_integer(random_state) else 0


def generator(random_state: Any) -> np.random.Generator:
    """A random generator from a seed or another generator."""
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        text = "expected random_state to be an integer >= 0, a Generator or None"
        raise KLFusionError(f"{text}, got {brief(random_state)}") from error


def check_number(name: str, value: object, low: float = 0.0, high: float = np.inf) -> None:
    """Refuse everything but numbers > ``low`` and < ``high``."""
    if not (is_number(value) and low < value < high):  # type: ignore[operator]
        span = f"> {low:g}" if high == np.inf else f"> {low:g} and < {high:g}"
        raise KLFusionError(f"expected {name} to be a number {span}, got {brief(value)}")
