"""The silos' posteriors in a fusion's file: one flat array, an index, and shared values once."""

from __future__ import annotations

import math
import reprlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from klfusion.errors import FileFormatError
from klfusion.families import Family, family_from_config
from klfusion.io.container import MAX_AXES
from klfusion.io.strict_json import MOST_TIMES, canonical_json
from klfusion.posteriors.alike import Alike, unchecked
from klfusion.posteriors.structure import Structure

ARRAY = "silos"  # the name of the flat array
_EACH = {"family", "provenance", "structure", "shapes"}
_AROUND = {"kind", "info"}
_OWN = ("counts", "natural", "prior")
_MAX_LENGTH = 2**40
_STRUCTURE = "structure."

_Named = tuple[tuple[str, tuple[int, ...], int], ...]  # names, shapes and sizes of arrays
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


class Form(NamedTuple):
    """All of a silo but its name, its provenance and its numbers."""

    layout: int
    kind: str | None  # of the structure, if there is one
    info: int  # its place among the shared values
    arrays: _Named  # of the structure
    size: int  # how many numbers there are, which may be more than a file can hold


class Silos(NamedTuple):
    """Checked silos of a file: per silo the places of its form and of its provenance."""

    shared: list[Any]
    layouts: list[tuple[int, _Named]]  # the place of a family, and own arrays
    forms: list[Form]
    form: NDArray[np.intp]
    provenance: NDArray[np.intp]

    def n_numbers(self) -> int:
        """How many numbers all silos have."""
        times = np.bincount(self.form, minlength=len(self.forms)).tolist()
        return sum(n * form.size for n, form in zip(times, self.forms, strict=True))

    def starts(self) -> NDArray[np.intp]:
        """Where the numbers of each silo start in the flat array."""
        sizes = np.array([form.size for form in self.forms], dtype=np.intp)[self.form]
        return np.cumsum(sizes) - sizes


def check(part: Any, n_silos: int, n_bytes: int) -> Silos:
    """Check the document on silos in a file of ``n_bytes``."""
    if not isinstance(part, dict) or set(part) != {"shared", "each"}:
        raise FileFormatError(f"silos: expected the fields each, shared, got {reprlib.repr(part)}")
    shared, each = part["shared"], part["each"]
    if not isinstance(shared, list) or not isinstance(each, list) or len(each) != n_silos:
        raise FileFormatError(f"silos: expected a list of {n_silos}, got {reprlib.repr(each)}")
    known: dict[str, tuple[_Named, _Named]] = {}
    layouts: dict[tuple[int, _Named], int] = {}
    forms: dict[tuple[int, str | None, int, _Named], int] = {}
    form, provenance = np.empty((2, n_silos), dtype=np.intp)
    for j, one in enumerate(each):
        if not isinstance(one, dict) or one.keys() != _EACH:
            raise FileFormatError(f"silos, number {j}: expected the fields {sorted(_EACH)}")
        structure, shapes = one["structure"], one["shapes"]
        family, kind, info = _place(one["family"], shared, j), None, 0
        if structure is not None:
            if not isinstance(structure, dict) or structure.keys() != _AROUND:
                got = reprlib.repr(structure)
                raise FileFormatError(f"silos, number {j}: unexpected structure, got {got}")
            kind, info = structure["kind"], _place(structure["info"], shared, j)
            if not isinstance(kind, str):
                expected = "expected the kind of structure to be a string"
                raise FileFormatError(f"silos, number {j}: {expected}")
        text = repr(shapes)  # shows types
        if text not in known:
            known[text] = _arrays(shapes, f"silos, number {j}")
        own, around = known[text]
        if around and kind is None:
            got = reprlib.repr(f"{_STRUCTURE}{around[0][0]}")
            raise FileFormatError(f"silos, number {j}: unexpected array {got}")
        layout = layouts.setdefault((family, own), len(layouts))
        form[j] = forms.setdefault((layout, kind, info, around), len(forms))
        provenance[j] = _place(one["provenance"], shared, j)
    named = [*layouts]
    found = [Form(*key, _size(named[key[0]][1]) + _size(key[3])) for key in forms]
    silos = Silos(shared, named, found, form, provenance)
    _check_infos(silos, n_bytes)
    return silos


def _place(value: Any, shared: list[Any], j: int) -> int:
    """A checked place among the shared values."""
    if type(value) is not int or not 0 <= value < len(shared):
        got = reprlib.repr(value)
        raise FileFormatError(f"silos, number {j}: expected a reference, got {got}")
    if not isinstance(shared[value], dict):
        raise FileFormatError(f"silos, number {j}: expected a mapping at reference {value}")
    return value


def _arrays(shapes: Any, where: str) -> tuple[_Named, _Named]:
    """Own arrays and those of the structure, in the order of their names."""
    if not isinstance(shapes, dict) or "natural" not in shapes:
        raise FileFormatError(f"{where}: expected shapes with natural, got {reprlib.repr(shapes)}")
    for name, shape in shapes.items():
        if name not in _OWN and not name.startswith(_STRUCTURE):
            raise FileFormatError(f"{where}: unexpected array {reprlib.repr(name)}")
        lengths = shape if isinstance(shape, list) and len(shape) <= MAX_AXES else [None]
        for length in lengths:
            if type(length) is not int or not 0 <= length < _MAX_LENGTH:
                raise FileFormatError(f"{where}: unexpected shape, got {reprlib.repr(shape)}")
    named = [(name, tuple(shapes[name]), math.prod(shapes[name])) for name in sorted(shapes)]
    n = sum(name in _OWN for name in shapes)  # which come first
    return (*named[:n],), (*((k.removeprefix(_STRUCTURE), *rest) for k, *rest in named[n:]),)


def _size(arrays: _Named) -> int:
    return sum(size for _, _, size in arrays)


def _check_infos(silos: Silos, n_bytes: int) -> None:
    """Refuse one long info in many forms: it is read once for each of them."""
    uses = Counter(form.info for form in silos.forms if form.kind is not None)
    again = {at: times for at, times in uses.items() if times > 1}
    work = sum(times * len(canonical_json(silos.shared[at])) for at, times in again.items())
    if work > MOST_TIMES * n_bytes:
        expected = f"silos: expected infos of at most {MOST_TIMES} times the file in all forms"
        raise FileFormatError(f"{expected}, got {work} bytes, for a file of {n_bytes}")


def unpack(
    silos: Silos, names: Sequence[str], flat: NDArray[Any]
) -> Iterator[tuple[NDArray[np.intp], Alike]]:
    """The silos of one layout at a time, with their numbers; forms are used up."""
    shared, forms = silos.shared, silos.forms
    layout = np.array([form.layout for form in forms], dtype=np.intp)[silos.form]
    order, starts = np.argsort(layout, kind="stable"), silos.starts()
    families: dict[int, Family] = {}
    low = 0
    for (family, own), high in zip(silos.layouts, np.cumsum(np.bincount(layout)), strict=True):
        if family not in families:
            families[family] = family_from_config(shared[family])
        numbers, at, arrays = order[low:high], 0, {}
        low, begin = high, starts[numbers]
        for name, shape, size in own:
            rows = flat[begin[0] + at : begin[0] + at + size]
            if len(numbers) > 1:
                rows = flat[np.add.outer(begin, np.arange(at, at + size))]
            arrays[name] = rows.reshape(len(numbers), *shape)
            at += size
        of = silos.form[numbers]
        alike = Alike(
            families[family],
            [names[j] for j in numbers],
            [shared[k] for k in silos.provenance[numbers]],
            [_structure(forms[k], shared, flat, b + at) for k, b in zip(of, begin, strict=True)],
            of,
            **arrays,
        )
        yield numbers, alike
    forms.clear()  # they may take as much memory as the file


def _structure(
    form: Form, shared: Sequence[Any], flat: NDArray[Any], begin: int
) -> Structure | None:
    """The structure whose arrays begin there, without a check."""
    if form.kind is None:
        return None
    arrays = {}
    for name, shape, size in form.arrays:
        arrays[name] = flat[begin : begin + size].reshape(shape)
        begin += size
    return unchecked(Structure, kind=form.kind, arrays=arrays, info=shared[form.info])
