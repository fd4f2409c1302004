"""Checks of settings before any work, with one-line errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from klfusion._utils.text import brief
from klfusion.errors import KLFusionError

_FEW = 5  # names that an error shows in full


@contextmanager
def naming_silo(name: str) -> Iterator[None]:
    """Errors within begin with the name of the silo."""
    try:
        yield
    except KLFusionError as error:
        if str(error).startswith("silo "):
            raise
        mark = ":" if str(error).startswith("expected ") else ","  # a comma before a component
        raise type(error)(f"silo {name!r}{mark} {error}") from error


def is_integer(value: object) -> bool:
    """Whether a setting is an integer and not a boolean."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether a setting is a number and not a boolean."""
    if isinstance(value, int | np.integer):
        return is_integer(value) and abs(int(value)) < 2**1023  # others overflow float64
    return isinstance(value, float | np.floating)


def check_integer(name: str, value: object, least: int = 1) -> None:
    """Refuse everything but integers of at least ``least`` that fit into 64 bits."""
    if not (is_integer(value) and least <= value < 2**63):  # type: ignore[operator]
        raise KLFusionError(f"expected {name} to be an integer >= {least}, got {brief(value)}")


def check_flag(name: str, value: object, *, optional: bool = False) -> None:
    """Refuse everything but booleans, or None if optional: the text "no" would be true."""
    if not (isinstance(value, bool | np.bool_) or (optional and value is None)):
        raise KLFusionError(f"expected {name} to be True or False, got {brief(value)}")


def column_names(x: Any) -> list[str] | None:
    """Names of the columns of a data frame; None for other rows."""
    return [str(name) for name in x.columns] if hasattr(x, "columns") else None


def check_columns(expected: list[str] | None, x: Any) -> None:
    """Refuse a data frame with other columns, or in another order."""
    given = column_names(x)
    if expected is None or given is None or given == expected:
        return
    if max(len(expected), len(given)) > _FEW:  # say the first that differs
        at = next(
            (i for i, (a, b) in enumerate(zip(expected, given, strict=False)) if a != b), None
        )
        got = f"{len(given)} columns" if at is None else f"{given[at]!r} at place {at}"
        known = "" if at is None else f", {expected[at]!r} at place {at}"
        raise KLFusionError(f"expected {len(expected)} columns in this order{known}, got {got}")
    raise KLFusionError(f"expected the columns {expected} in this order, got {given}")


def read_labels(y: Any) -> Any:
    """Labels as an array; refuse missing ones, and labels of several kinds."""
    labels = np.asarray(y)
    if labels.ndim == 1:
        # numpy turns the numbers in a list with texts into texts, and missing ones into "nan".
        check_labels(np.array(y, dtype=object) if labels.dtype.kind == "U" else labels)
    return labels


def check_labels(labels: Any) -> None:
    """Refuse an array of labels (n,) of which some are missing, or of several kinds."""
    nothing: Any = None
    missing = (labels == nothing) | (labels != labels)  # noqa: PLR0124 (NaN)
    if missing.any():
        first = int(missing.argmax())
        raise KLFusionError(f"expected a label for every row, got none for row {first}")
    plain = (label.item() if isinstance(label, np.generic) else label for label in labels.tolist())
    kinds = sorted({type(label).__name__ for label in plain})
    if len(kinds) > 1:
        got = " and ".join(f"some of type {kind}" for kind in kinds)
        raise KLFusionError(f"expected labels of one type, got {got}: convert them all to one")


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


def number(value: Any, name: str, *, above: float, allow_equal: bool = False) -> float:
    """A finite number above a bound, or equal to it if allowed."""
    valid = is_number(value) and np.isfinite(value)
    if not valid or value < above or (value == above and not allow_equal):
        least = f"{'>=' if allow_equal else '>'} {above:g}"
        raise KLFusionError(f"expected {name} to be a finite number {least}, got {value!r}")
    return float(value)


def check_number(name: str, value: object, low: float = 0.0, high: float = np.inf) -> None:
    """Refuse everything but numbers > ``low`` and < ``high``."""
    if not (is_number(value) and low < value < high):  # type: ignore[operator]
        span = f"> {low:g}" if high == np.inf else f"> {low:g} and < {high:g}"
        raise KLFusionError(f"expected {name} to be a number {span}, got {brief(value)}")
