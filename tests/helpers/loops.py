"""Many cheap cases of one check as one test."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def for_each(names: str, values: Iterable[Any]) -> Callable[[Callable[..., None]], Any]:
    """Call the test once per value, in one test; the value that fails is named.

    Parameters
    ----------
    names : str
        One argument of the test, or several, separated by commas.
    values : iterable
        What the argument is, or tuples of what the arguments are.
    """
    keys, cases = [name.strip() for name in names.split(",")], list(values)

    def decorate(test: Callable[..., None]) -> Any:
        @functools.wraps(test)
        def looped(*args: Any, **kwargs: Any) -> None:
            for case in cases:
                own = dict(zip(keys, case if len(keys) > 1 else (case,), strict=True))
                try:
                    test(*args, **kwargs, **own)
                except BaseException as error:
                    error.add_note(", ".join(f"{key}={value}" for key, value in own.items()))
                    raise

        signature = inspect.signature(test)
        others = [p for p in signature.parameters.values() if p.name not in keys]
        looped.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return looped

    return decorate
