"""The silos' posteriors in a fusion's file: one flat array, an index, and shared values once."""

from __future__ import annotations

import reprlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from klfusion.errors import FileFormatError
from klfusion.families import Family, family_from_config
from klfusion.io.container import MAX_AXES
from klfusion.io.strict_json import MOST_TIMES, canonical_json
from klfusion.posteriors.alike import Alike, factors_of, unchecked
from klfusion.posteriors.structure import Structure

ARRAY = "silos"  # the name of the flat array
_EACH = {"family", "provenance", "structure", "shapes"}
_fields = itemgetter("family", "provenance", "structure", "shapes")
_AROUND = {"kind", "info"}
_OWN = ("counts", "natural", "prior")
_MAX_LENGTH = 2**40
_STRUCTURE = "structure."

_Named = tuple[tuple[str, tuple[int, ...], int], ...]  # names, shapes and sizes of arrays
_Arrays = tuple[_Named, _Named, int]  # a silo's own, those of its structure, and numbers in all
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

    family: int  # its place among the shared values
    own: _Named
    kind: str | None  # of the structure, if there is one
    info: int  # its place among the shared values
    arrays: _Named  # of the structure
    size: int  # how many numbers there are, which may be more than a file can hold


class Silos(NamedTuple):
    """Checked silos of a file: per silo the places of its form and of its provenance."""

    shared: list[Any]
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
    mappings = {place for place, value in enumerate(shared) if isinstance(value, dict)}
    known: dict[str, _Arrays] = {}
    owns: dict[_Named, _Named] = {}
    places: dict[tuple[int, str | None, int, str], int] = {}
    forms: list[Form] = []
    form, provenance = [], []
    for j, one in enumerate(each):
        if not isinstance(one, dict) or one.keys() != _EACH:
            raise FileFormatError(f"silos, number {j}: expected the fields {sorted(_EACH)}")
        family, source, structure, shapes = _fields(one)
        kind, info = None, family
        if structure is not None:
            if not isinstance(structure, dict) or structure.keys() != _AROUND:
                got = reprlib.repr(structure)
                raise FileFormatError(f"silos, number {j}: unexpected structure, got {got}")
            kind, info = structure["kind"], structure["info"]
            if not isinstance(kind, str):
                expected = "expected the kind of structure to be a string"
                raise FileFormatError(f"silos, number {j}: {expected}")
        if not (type(family) is type(source) is type(info) is int) or not (
            family in mappings and source in mappings and info in mappings
        ):
            got = reprlib.repr([family, source, info])
            expected = "expected a reference to a mapping for family, provenance and info"
            raise FileFormatError(f"silos, number {j}: {expected}, got {got}")
        text = repr(shapes)  # shows types
        key = family, kind, info, text
        place = places.get(key)
        if place is None:
            if text not in known:
                own, around, size = _arrays(shapes, j)
                known[text] = owns.setdefault(own, own), around, size  # others share its own
            own, around, size = known[text]
            if around and kind is None:
                got = reprlib.repr(f"{_STRUCTURE}{around[0][0]}")
                raise FileFormatError(f"silos, number {j}: unexpected array {got}")
            place = places[key] = len(forms)
            forms.append(Form(family, own, kind, info, around, size))
        form.append(place)
        provenance.append(source)
    silos = Silos(shared, forms, np.array(form, np.intp), np.array(provenance, np.intp))
    _check_infos(silos, n_bytes)
    return silos


def _arrays(shapes: Any, j: int) -> _Arrays:
    """Own arrays and those of the structure, in the order of their names."""
    if not isinstance(shapes, dict) or "natural" not in shapes:
        got = reprlib.repr(shapes)
        raise FileFormatError(f"silos, number {j}: expected shapes with natural, got {got}")
    own, around, total = [], [], 0
    for name in sorted(shapes):
        shape, size = shapes[name], 1
        if type(shape) is not list or len(shape) > MAX_AXES:
            shape = (None,)
        for length in shape:
            if type(length) is not int or not 0 <= length < _MAX_LENGTH:
                got = reprlib.repr(shapes[name])
                raise FileFormatError(f"silos, number {j}: unexpected shape, got {got}")
            size *= length
        total += size
        if name in _OWN:
            own.append((name, tuple(shape), size))
        elif name.startswith(_STRUCTURE):
            around.append((name[len(_STRUCTURE) :], tuple(shape), size))
        else:
            got = reprlib.repr(name)
            raise FileFormatError(f"silos, number {j}: unexpected array {got}")
    return tuple(own), tuple(around), total


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
) -> Iterator[tuple[list[int], Alike]]:
    """Silos whose numbers mean the same at a time; forms are used up."""
    shared, forms, form = silos.shared, silos.forms, silos.form
    families = {at: family_from_config(shared[at]) for at in {own.family: None for own in forms}}
    layouts: dict[tuple[tuple[Family, ...], _Named], int] = {}
    factors = {at: factors_of(family) for at, family in families.items()}
    layout = np.array(
        [layouts.setdefault((factors[own.family], own.own), len(layouts)) for own in forms],
        dtype=np.intp,
    )[form]
    order, starts, low = np.argsort(layout, kind="stable"), silos.starts(), 0
    for (_, own), high in zip(layouts, np.cumsum(np.bincount(layout)).tolist(), strict=True):
        numbers, at, arrays = order[low:high], 0, {}
        low, begin = high, starts[numbers]
        for name, shape, size in own:
            rows = flat[begin[0] + at : begin[0] + at + size]
            if len(numbers) > 1:
                rows = flat[np.add.outer(begin, np.arange(at, at + size))]
            arrays[name] = rows.reshape(len(numbers), *shape)
            at += size
        of, places = form[numbers], numbers.tolist()
        found = [forms[k] for k in of.tolist()]
        alike = Alike(
            [families[one.family] for one in found],
            [names[j] for j in places],
            [shared[k] for k in silos.provenance[numbers].tolist()],
            [
                _structure(one, shared, flat, b)
                for one, b in zip(found, (begin + at).tolist(), strict=True)
            ],
            of,
            **arrays,
        )
        yield places, alike
    forms.clear()  # they may take as much memory as the file


def _structure(
    form: Form, shared: Sequence[Any], flat: NDArray[Any], begin: int
) -> Structure | None:
    """The structure whose arrays begin there, without a check."""
    if form.kind is None:
        return None
    arrays = {}
    for name, shape, size in form.arrays:
        numbers = flat[begin : begin + size]
        arrays[name] = numbers if shape == (size,) else numbers.reshape(shape)
        begin += size
    values = {"kind": form.kind, "arrays": arrays, "info": shared[form.info]}
    return unchecked(Structure, values)
