"""Mixtures over the columns of a table: one schema for all silos, and columns some never measured.

A column that a silo hardly measured is near its prior there. As a distribution that differs from
what other silos observed, although it says nothing about patients. A silo with hardly any rows says
little in every column: it does not decide which of them others are compared in.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from klfusion._utils.arrays import BoolArray
from klfusion._utils.text import few
from klfusion.errors import IncompatibleSilosError
from klfusion.families import Product
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import Structure
from klfusion.posteriors.structure.kinds import MEASURED, blocks_of, factors_of

_SAME = ("kind", "categories", "unit", "reference", "block", "point_mass", "log")


def check_schemas(structures: Sequence[tuple[str, Structure]]) -> None:
    """Refuse silos, by name, whose schemas differ; the error names silo and column."""
    known = [(name, s.info["schema"]) for name, s in structures if s.info.get("schema")]
    for name, schema in known[1:]:
        first, own = _by_column(known[0][1]), _by_column(schema)
        where, agreed = f"silo {name!r}", f"as in silo {known[0][0]!r}"
        if list(first) != list(own):
            differ = [column for column in {**first, **own} if (column in first) != (column in own)]
            which = f"columns {few(differ)} differ" if differ else "their order differs"
            message = f"{where}: expected the columns of one schema, {agreed}: {which}"
            raise IncompatibleSilosError(message, silo=name)
        for column, expected in first.items():
            for key in _SAME:
                if own[column].get(key) != expected.get(key):
                    raise IncompatibleSilosError(
                        f"{where}, column {column!r}: expected {key} {expected.get(key)!r} "
                        f"{agreed}, got {own[column].get(key)!r}: agree on one schema",
                        silo=name,
                    )


def _by_column(schema: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    plain = (
        {key: list(v) if isinstance(v, tuple) else v for key, v in own.items()} for own in schema
    )
    return {str(own["name"]): own for own in plain}


def unmeasured(posteriors: Sequence[Posterior]) -> BoolArray | None:
    """Natural parameters (p,) of columns that some silo hardly measured; None if there are none.

    A silo that did has, per component, rows enough to measure the column, and fewer cells of it
    than lift a posterior above its prior.
    """
    family = posteriors[0].family
    if not isinstance(family, Product):
        return None
    structures = (p.structure for p in posteriors)
    known = [
        s for s in structures if s is not None and MEASURED in s.arrays and s.info.get("schema")
    ]
    if len(known) < len(posteriors):
        return None
    groups = factors_of(blocks_of(known[0].info["schema"]))
    first = [group[0] for group in groups]  # columns of a block count the same rows
    least = np.array([factor.least_count for _, factor in family.factors])
    cells = np.array([s.arrays[MEASURED][:, first].mean(axis=0) for s in known])
    rows = np.array([[s.arrays["counts"].mean()] for s in known])
    lacking = (cells < least) & (rows >= least)
    if not lacking.any():
        return None
    if lacking.any(axis=0).all():
        names = [name for name, _ in family.factors]
        missing = [
            f"{p.name!r} lacks {few([n for n, lacks in zip(names, own, strict=True) if lacks])}"
            for p, own in zip(posteriors, lacking, strict=True)
            if own.any()
        ]
        raise IncompatibleSilosError(
            f"expected a column that every silo measured, got none: {'; '.join(missing)}"
        )
    return np.repeat(lacking.any(axis=0), [factor.size for _, factor in family.factors])
