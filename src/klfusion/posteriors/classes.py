"""Give networks with different classes the same outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.errors import IncompatibleSilosError
from klfusion.families import DiagonalNormal
from klfusion.posteriors.posterior import Posterior, check_equal
from klfusion.posteriors.structure import Structure
from klfusion.posteriors.structure.network import KIND, layer_arrays, n_layers


def align_classes(posteriors: Sequence[Posterior]) -> list[Posterior]:
    """Give every network one output per class of any silo.

    An output that a silo lacks gets weights of mean zero and a class count of zero, so the silo
    does not affect that class. This needs the class counts of every silo. Networks with equal
    outputs, and models of other kinds, are returned unchanged.

    Raises
    ------
    IncompatibleSilosError
        If inputs, depths, or outputs without class labels differ.
    """
    structures = [p.structure for p in posteriors]
    networks = [s for s in structures if s is not None and s.kind == KIND]
    if len(networks) < len(posteriors):
        return list(posteriors)
    _check_same(posteriors, [int(s.info["n_in"]) for s in networks], "input")
    _check_same(posteriors, [n_layers(s) - 1 for s in networks], "hidden layer")
    classes = [s.info["classes"] for s in networks if "classes" in s.info]
    if len(classes) < len(networks) or all(c == classes[0] for c in classes):
        n_out = [len(layer_arrays(s, n_layers(s) - 1)[0]) for s in networks]
        _check_same(posteriors, n_out, "output")
        return list(posteriors)
    for posterior, structure in zip(posteriors, networks, strict=True):
        if "class_counts" not in structure.arrays:
            raise IncompatibleSilosError(
                f"silo {posterior.name!r}: expected class_counts, because silos have different "
                f"classes, {classes[0]} and {next(c for c in classes if c != classes[0])}; or give "
                "all learners the same classes="
            )
    union = sorted({label for own in classes for label in own}, key=_sort_key)
    return [_extended(p, s, union) for p, s in zip(posteriors, networks, strict=True)]


def _sort_key(label: Any) -> tuple[str, Any]:
    """Sort by type first: numbers and strings have no common order."""
    return type(label).__name__, label


def _check_same(posteriors: Sequence[Posterior], numbers: Sequence[int], what: str) -> None:
    values = [(p.name, number) for p, number in zip(posteriors, numbers, strict=True)]
    check_equal(values, f"a network with {numbers[0]} {what}{'' if numbers[0] == 1 else 's'}")


def _extended(posterior: Posterior, structure: Structure, union: list[Any]) -> Posterior:
    """The network with one output per class of the union."""
    own = structure.info["classes"]
    where = np.array([union.index(label) for label in own])
    last = n_layers(structure) - 1
    mean, variance = layer_arrays(structure, last)
    counts = np.zeros(len(union))
    counts[where] = structure.arrays["class_counts"]
    new_mean = np.zeros((len(union), mean.shape[1]))
    new_mean[where] = mean
    arrays = {
        **structure.arrays,
        f"mean.{last}": new_mean,
        f"variance.{last}": _filled(variance, where, len(union)),
        "class_counts": counts,
    }
    extended = replace(structure, arrays=arrays, info={**structure.info, "classes": union})
    if last > 1:
        return replace(posterior, structure=extended)
    p, inputs = posterior.params(), int(structure.info["n_in"]) + 1
    outgoing = np.zeros((posterior.n_components, len(union)))
    outgoing[:, where] = p["mean"][:, inputs:]
    family = DiagonalNormal(inputs + len(union))
    spread = _filled(p["variance"][:, inputs:].T, where, len(union)).T
    natural = family.natural(
        np.hstack([p["mean"][:, :inputs], outgoing]),
        np.hstack([p["variance"][:, :inputs], spread]),
    )
    return replace(posterior, family=family, natural=natural, structure=extended)


def _filled(variance: FloatArray, where: Any, size: int) -> FloatArray:
    """Own outputs in their rows; the geometric mean of these rows elsewhere."""
    out = np.tile(np.exp(np.log(variance).mean(axis=0)), (size, 1))
    out[where] = variance
    return out
