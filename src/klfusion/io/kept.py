"""The silos' posteriors in a fusion's file: one flat array, an index, and shared values once."""

import math
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from klfusion.errors import FileFormatError
from klfusion.io.container import MAX_AXES
from klfusion.io.strict_json import canonical_json

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
    lengths: dict[str, int] = {}
    total = 0
    for j, one in enumerate(each):
        where = f"silos, number {j}"
        if not isinstance(one, dict) or one.keys() != _EACH:
            raise FileFormatError(f"{where}: expected the fields {sorted(_EACH)}")
        _check_reference(one["provenance"], shared, where)
        form = _form(one)
        if form not in lengths:
            lengths[form] = _check_form(one, shared, where)
        total += lengths[form]
    return total


def _form(one: Mapping[str, Any]) -> str:
    """All of a silo but its provenance and its numbers, as text, which shows types."""
    return repr((one["family"], one["structure"], one["shapes"]))


def _check_reference(index: Any, shared: list[Any], where: str) -> None:
    if type(index) is not int or not 0 <= index < len(shared):
        raise FileFormatError(f"{where}: expected a reference, got {reprlib.repr(index)}")
    if not isinstance(shared[index], dict):
        raise FileFormatError(f"{where}: expected a mapping at reference {index}")


def _check_form(one: Mapping[str, Any], shared: list[Any], where: str) -> int:
    """Check the form of a silo and return the number of its numbers."""
    structure, shapes = one["structure"], one["shapes"]
    _check_reference(one["family"], shared, where)
    if structure is not None:
        if not isinstance(structure, dict) or set(structure) != {"kind", "info"}:
            raise FileFormatError(f"{where}: unexpected structure, got {reprlib.repr(structure)}")
        if not isinstance(structure["kind"], str):
            raise FileFormatError(f"{where}: expected the kind of structure to be a string")
        _check_reference(structure["info"], shared, where)
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


class SameForm(NamedTuple):
    """Silos that differ in name, provenance and numbers alone."""

    numbers: list[int]
    document: Mapping[str, Any]  # of the first
    provenances: list[Any]
    arrays: dict[str, NDArray[Any]]  # of all of them, (m, *shape)


def unpack(part: dict[str, Any], flat: NDArray[Any]) -> Iterator[SameForm]:
    """The silos of a checked document, those of one form at a time.

    The document is emptied first: it takes as much memory as the posteriors.
    """
    shared, each = part.pop("shared"), part.pop("each")
    origins = [one["provenance"] for one in each]
    forms: dict[str, list[int]] = {}
    for j, one in enumerate(each):
        forms.setdefault(_form(one), []).append(j)
    waiting = [(each[numbers[0]], numbers) for numbers in forms.values()][::-1]
    each.clear()
    forms.clear()
    lengths = np.empty(len(origins), dtype=np.intp)
    for first, numbers in waiting:
        lengths[numbers] = sum(math.prod(shape) for shape in first["shapes"].values())
    starts = np.cumsum(lengths) - lengths
    while waiting:  # what is yielded takes the memory of its document
        first, numbers = waiting.pop()
        arrays, begin = {}, starts[numbers, None]
        for name, shape in sorted(first["shapes"].items()):
            size = math.prod(shape)
            arrays[name] = flat[begin + np.arange(size)].reshape(len(numbers), *shape)
            begin += size
        provenances = [shared[origins[j]] for j in numbers]
        yield SameForm(numbers, _replaced(first, shared.__getitem__), provenances, arrays)
