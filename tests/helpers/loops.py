"""Many cheap cases of one check as one test."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def for_each(names: str, values: Iterable[Any]) -> Callable[[Callable[..., None]], Any]:
    """Call the test once per value, in one test; the values that fail are named.

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
            skipped: list[BaseException] = []
            failed: list[BaseException] = []
            for case in cases:
                own = dict(zip(keys, case if len(keys) > 1 else (case,), strict=True))
                try:
                    test(*args, **kwargs, **own)
                except pytest.skip.Exception as reason:
                    skipped.append(reason)
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(", ".join(f"{key}={value}" for key, value in own.items()))
                    failed.append(error)
            if len(failed) > 1:
                raise BaseExceptionGroup(f"{len(failed)} of {len(cases)} cases", failed)
            if failed:
                raise failed[0]
            if len(skipped) == len(cases):
                raise skipped[0]

        return with_parameters(looped, [name for name in parameters(test) if name not in keys])

    return decorate


def parameters(test: Callable[..., None]) -> list[str]:
    """The names of a test's arguments."""
    return list(inspect.signature(test).parameters)


def with_parameters(test: Any, names: Iterable[str]) -> Any:
    """The test, whose arguments pytest finds under these names."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    test.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    return test
