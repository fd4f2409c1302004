"""The silos' posteriors in a fusion's file: one flat array, an index, and shared values once."""

import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from klfusion.errors import FileFormatError
from klfusion.io.container import MAX_AXES, canonical_json

ARRAY = "silos"  # the name of the flat array
_EACH = {"family", "provenance", "structure", "shapes"}
_MAX_LENGTH = 2**40
_STRUCTURE = "structure."

Part = tuple[Mapping[str, Any], Mapping[str, NDArray[Any]]]  # document and arrays of a posterior


def pack(parts: Sequence[Part]) -> tuple[dict[str, Any], NDArray[np.float64]]:
    """Document and flat array of all silos."""
    shared: dict[bytes, int] = {}
    values: list[Any] = []

    def once(value: Any) -> int:
        key = canonical_json(value)
        if key not in shared:
            shared[key] = len(values)
            values.append(value)
        return shared[key]

    each, flat = [], [np.empty(0)]
    for document, arrays in parts:
        shapes = {name: [*array.shape] for name, array in arrays.items()}
        each.append(_replaced(document, once) | {"shapes": shapes})
        flat += [arrays[name].ravel() for name in sorted(arrays)]
    return {"shared": values, "each": each}, np.concatenate(flat)


def _replaced(one: Mapping[str, Any], by: Callable[[Any], Any]) -> dict[str, Any]:
    """Family, provenance and the structure's info replaced: values by references, or back."""
    structure = one["structure"]
    return {
        "family": by(one["family"]),
        "provenance": by(one["provenance"]),
        "structure": structure and {"kind": structure["kind"], "info": by(structure["info"])},
    }


def check(part: Any, n_silos: int) -> int:
    """Check the document and return the length of the flat array."""
    if not isinstance(part, dict) or set(part) != {"shared", "each"}:
        raise FileFormatError(f"silos: expected the fields each, shared, got {reprlib.repr(part)}")
    shared, each = part["shared"], part["each"]
    if not isinstance(shared, list) or not isinstance(each, list) or len(each) != n_silos:
        raise FileFormatError(f"silos: expected a list of {n_silos}, got {reprlib.repr(each)}")
    return sum(_check_one(one, shared, f"silos, number {j}") for j, one in enumerate(each))


def _check_one(one: Any, shared: list[Any], where: str) -> int:
    if not isinstance(one, dict) or set(one) != _EACH:
        raise FileFormatError(f"{where}: expected the fields {sorted(_EACH)}")
    structure, shapes = one["structure"], one["shapes"]
    references = [one["family"], one["provenance"]]
    if structure is not None:
        if not isinstance(structure, dict) or set(structure) != {"kind", "info"}:
            raise FileFormatError(f"{where}: unexpected structure, got {reprlib.repr(structure)}")
        if not isinstance(structure["kind"], str):
            raise FileFormatError(f"{where}: expected the kind of structure to be a string")
        references.append(structure["info"])
    for index in references:
        if type(index) is not int or not 0 <= index < len(shared):
            raise FileFormatError(f"{where}: expected a reference, got {reprlib.repr(index)}")
        if not isinstance(shared[index], dict):
            raise FileFormatError(f"{where}: expected a mapping at reference {index}")
    if not isinstance(shapes, dict) or "natural" not in shapes:
        raise FileFormatError(f"{where}: expected shapes with natural, got {reprlib.repr(shapes)}")
    for name, shape in shapes.items():
        own = structure is not None and name.startswith(_STRUCTURE)
        if name not in ("natural", "prior", "counts") and not own:
            raise FileFormatError(f"{where}: unexpected array {reprlib.repr(name)}")
        lengths = shape if isinstance(shape, list) and len(shape) <= MAX_AXES else [None]
        if not all(type(length) is int and 0 <= length < _MAX_LENGTH for length in lengths):
            raise FileFormatError(f"{where}: unexpected shape, got {reprlib.repr(shape)}")
    return sum(math.prod(shape) for shape in shapes.values())


def unpack(part: Mapping[str, Any], names: Sequence[str], flat: NDArray[Any]) -> list[Part]:
    """Document and arrays of each silo, from a checked document."""
    parts: list[Part] = []
    shared, begin = part["shared"], 0
    for name, one in zip(names, part["each"], strict=True):
        arrays = {}
        for key, shape in sorted(one["shapes"].items()):
            end = begin + math.prod(shape)
            arrays[key] = flat[begin:end].reshape(shape)
            begin = end
        parts.append((_replaced(one, shared.__getitem__) | {"name": name}, arrays))
    return parts
