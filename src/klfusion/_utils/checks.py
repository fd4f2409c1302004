"""What a setting may be: one sentence for one that is not, before any work is done."""

from __future__ import annotations

from typing import Any

import numpy as np

from klfusion.errors import KLFusionError


def is_integer(value: object) -> bool:
    """Whether a setting is a whole number, and not just true or false."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether a setting is a number, and not just true or false."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def check_integer(name: str, value: object, least: int = 1) -> None:
    """Refuse all but whole numbers that are large enough."""
    if not (is_integer(value) and value >= least):  # type: ignore[operator]
        raise KLFusionError(f"expected {name} to be an integer >= {least}, got {value!r}")


def check_flag(name: str, value: object, *, optional: bool = False) -> None:
    """Refuse all but true and false (and none): a word such as "no" would count as true."""
    if not (isinstance(value, bool | np.bool_) or (optional and value is None)):
        raise KLFusionError(f"expected {name} to be True or False, got {value!r}")


def seed_of(random_state: Any) -> int:
    """The seed, where one was given; 0 for other sources of random numbers."""
    return int(random_state) if is_integer(random_state) else 0


def generator(random_state: Any) -> np.random.Generator:
    """A source of random numbers from a seed or another source."""
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise KLFusionError(
            "expected random_state to be an integer >= 0, a Generator or None, "
            f"got {random_state!r}"
        ) from error
