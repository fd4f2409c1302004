"""Give networks with different classes the same outputs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.errors import IncompatibleSilosError
from klfusion.families import DiagonalNormal
from klfusion.posteriors.posterior import Posterior, check_equal
from klfusion.posteriors.structure import Structure
from klfusion.posteriors.structure.network import KIND, layer_arrays, n_layers


def align_classes(posteriors: Sequence[Posterior]) -> list[Posterior]:
    """Give every network one output per class of any silo; return other models unchanged.

    An output that a silo lacks gets weights of mean zero and a class count of zero, so the silo
    does not affect that class. This needs the class counts of every silo.
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
            two = f"{classes[0]} and {next(c for c in classes if c != classes[0])}"
            raise IncompatibleSilosError(
                f"silo {posterior.name!r}: expected class_counts, because silos have different "
                f"classes, {two}; or give all learners the same classes="
            )
    labels = {label for own in classes for label in own}
    # By type first: numbers and strings have no common order.
    union = sorted(labels, key=lambda label: (type(label).__name__, label))
    return [_extended(p, s, union) for p, s in zip(posteriors, networks, strict=True)]


def _check_same(posteriors: Sequence[Posterior], numbers: Sequence[int], what: str) -> None:
    values = [(p.name, number) for p, number in zip(posteriors, numbers, strict=True)]
    check_equal(values, f"a network with {numbers[0]} {what}{'' if numbers[0] == 1 else 's'}")


def _extended(posterior: Posterior, structure: Structure, union: list[Any]) -> Posterior:
    """The network with one output per class of the union."""
    where = np.array([union.index(label) for label in structure.info["classes"]])
    last, size = n_layers(structure) - 1, len(union)
    arrays = dict(structure.arrays)
    arrays |= {key: _padded(arrays[key], where, size) for key in (f"mean.{last}", "class_counts")}
    arrays[f"variance.{last}"] = _filled(arrays[f"variance.{last}"], where, size)
    extended = replace(structure, arrays=arrays, info={**structure.info, "classes": union})
    if last > 1:
        return replace(posterior, structure=extended)
    p, inputs = posterior.params(), int(structure.info["n_in"]) + 1
    mean = np.hstack([p["mean"][:, :inputs], _padded(p["mean"][:, inputs:].T, where, size).T])
    spread = _filled(p["variance"][:, inputs:].T, where, size).T
    family = DiagonalNormal(inputs + size)
    natural = family.natural(mean, np.hstack([p["variance"][:, :inputs], spread]))
    return replace(posterior, family=family, natural=natural, structure=extended)


def _padded(values: FloatArray, where: IntArray, size: int) -> FloatArray:
    """Own outputs in their rows; zeros elsewhere."""
    out = np.zeros((size, *values.shape[1:]))
    out[where] = values
    return out


def _filled(variance: FloatArray, where: IntArray, size: int) -> FloatArray:
    """Own outputs in their rows; the geometric mean of these rows elsewhere."""
    out = np.tile(np.exp(np.log(variance).mean(axis=0)), (size, 1))
    out[where] = variance
    return out
