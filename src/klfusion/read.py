"""Reading what `fuse` was given: models, posteriors or files, each as a posterior."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from klfusion.adapters import extract
from klfusion.errors import IncompatibleSilosError, KLFusionError
from klfusion.fusion.result import Fusion
from klfusion.io.storage import load
from klfusion.posteriors.posterior import Posterior


def read_silos(models: Sequence[Any] | Mapping[str, Any], number: int = 0) -> list[Posterior]:
    """Read or extract every silo, as it is; those without a name are numbered from ``number``."""
    return [
        posterior_of(model, name, i) for i, (name, model) in enumerate(named_silos(models), number)
    ]


def named_silos(models: Sequence[Any] | Mapping[str, Any]) -> list[tuple[str | None, Any]]:
    """What was given for each silo, with its name where there is one; one at least."""
    named: list[tuple[str | None, Any]]
    if hasattr(models, "items"):  # a mapping, or a pandas Series
        named = list(models.items())
        for name, _ in named:
            if not isinstance(name, str) or not name:
                raise KLFusionError(f"expected silo names to be non-empty strings, got {name!r}")
    elif isinstance(models, Iterable) and not isinstance(models, str | bytes | os.PathLike):
        named = [(None, model) for model in models]
    else:
        raise KLFusionError(
            f"expected a list or mapping of silos, got a single {type(models).__name__}: "
            "put it into a list"
        )
    if not named:
        raise IncompatibleSilosError("expected at least one silo, got none")
    return named


def posterior_of(model: Any, name: str | None, number: int) -> Posterior:
    """Read or extract one silo."""
    if isinstance(model, str | os.PathLike):
        model = load(model)
    if isinstance(model, Fusion):  # a fusion can be a silo of a larger one
        model = model.posterior
    if isinstance(model, Posterior):
        return model if name is None else replace(model, name=name)
    return extract(model, name=name or f"silo-{number + 1}")
