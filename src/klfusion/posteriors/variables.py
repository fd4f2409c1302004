"""Variables of draws: what silos that have one must agree on."""

from collections.abc import Mapping, Sequence
from typing import Any

from klfusion._utils.text import few
from klfusion.errors import IncompatibleSilosError
from klfusion.posteriors.posterior import check_equal

# How many of the last axes are one value, by the kind of a support; of other kinds none.
EVENT_AXES = {"simplex": 1, "ordered": 1, "cholesky": 2, "cholesky_corr": 2}

_Own = Mapping[str, Any]  # a variable, as a structure's ``info`` has it


def check_variables(silos: Sequence[tuple[str, Sequence[_Own]]], *, whole: bool = False) -> None:
    """Refuse silos, as (name, variables), unless each variable is the same where there is one.

    Along the axes that are one value, silos need the same labels in one order: a coordinate of a
    simplex depends on the entries before it. Along others the names of coordinates have the labels,
    and silos may have any, except with ``whole``.
    """
    found: dict[str, list[tuple[str, _Own]]] = {}
    for silo, variables in silos:
        for own in variables:
            found.setdefault(own["name"], []).append((silo, own))
    for key in ("support", "dims", "scale"):
        for name, given in found.items():
            values = [(silo, own.get(key)) for silo, own in given]
            check_equal(values, f"{name!r} with {key} {values[0][1]}")
    for name, given in found.items():
        first, dims = given[0][1], given[0][1]["dims"]
        batch = len(dims) - EVENT_AXES.get(str(first["support"].get("kind")), 0)
        for axis in range(0 if whole else max(batch, 0), len(dims)):
            labels = [(silo, [*own["labels"][axis]]) for silo, own in given]
            _check_labels(labels, f"along {dims[axis]!r} of {name!r}")


def _check_labels(labels: Sequence[tuple[str, list[str]]], where: str) -> None:
    """Refuse silos, as (name, labels), whose labels or their order differ."""
    first, agreed = labels[0]
    for silo, own in labels:
        if own == agreed:
            continue
        differ = sorted({*own} ^ {*agreed})
        moved = [key for key, known in zip(own, agreed, strict=False) if key != known]
        order = f"{few(moved)} elsewhere; give draws, prior and coords in one order at all silos"
        why = f"{few(differ)} at one of them alone" if differ else order
        expected = f"expected {few(agreed)} {where} as in silo {first!r}"
        raise IncompatibleSilosError(f"silo {silo!r}: {expected}, got {few(own)}: {why}", silo=silo)
