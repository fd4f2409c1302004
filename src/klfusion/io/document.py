"""A posterior or a fusion from a JSON document and named arrays, checked."""

import math
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.errors import FileFormatError, KLFusionError
from klfusion.families import Family, family_from_config
from klfusion.fusion.by_silo import BySilo
from klfusion.fusion.result import Fusion
from klfusion.fusion.settings import FuseSettings
from klfusion.io import kept as _kept
from klfusion.io.container import Entry
from klfusion.io.parts import (
    FORMAT,
    INTEGERS,
    NOT_FINITE,
    NUMBERS,
    OPTIONAL,
    PATH,
    PATH_FIELDS,
    STRUCTURE,
    VERSION,
)
from klfusion.io.strict_json import parse_json
from klfusion.io.version_1 import upgraded
from klfusion.objective.solution import MergePath, Status
from klfusion.posteriors.alike import Together
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import Structure

_TOP = {"format": str, "version": int, "kind": str, "posterior": dict, "sha256": str}
_POSTERIOR = {"family": dict, "name": str, "provenance": dict, "structure": (dict, type(None))}
_LISTS = {"silo_names": list, "settings": dict, "unmatched": dict, "provenance": dict}
_FUSION = {"status": str, **_LISTS, **dict.fromkeys(NUMBERS, (int, float, str))}

_Arrays = Mapping[str, NDArray[Any]]


class Checked(NamedTuple):
    """A checked document, its family, and what it says about silos."""

    document: dict[str, Any]
    family: Family
    silos: _kept.Silos | None


def parsed(data: bytes, entries: Mapping[str, Entry], size: int) -> Any:
    """The JSON document beside these arrays in a file of ``size`` bytes."""
    return parse_json(data, size, sum(8 * math.prod(own.shape) for own in entries.values()))


def check(document: Any, entries: Mapping[str, Entry], size: int) -> Checked:
    """Check every field, dtype and shape in a file of ``size`` bytes before any array is read."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise FileFormatError(f"expected a {FORMAT!r} document, got {reprlib.repr(document)}")
    version = document.get("version")
    if type(version) is not int or version < 1:
        raise FileFormatError(f"expected a format version >= 1, got {reprlib.repr(version)}")
    if version > VERSION:
        raise FileFormatError(
            f"expected format version {VERSION}, got {version}: made by a newer klfusion, upgrade"
        )
    document = upgraded(document) if version == 1 else document
    kind = document.get("kind")
    if kind not in ("posterior", "fusion"):
        raise FileFormatError(f"expected a posterior or a fusion, got {reprlib.repr(kind)}")
    _check_fields(document, _TOP | ({"fusion": dict} if kind == "fusion" else {}), "document")
    _check_fields(document["posterior"], _POSTERIOR, "posterior")
    if document["posterior"]["structure"] is not None:
        _check_fields(document["posterior"]["structure"], {"kind": str, "info": dict}, "structure")
    silos = None
    if kind == "fusion":
        fusion = document["fusion"]
        _check_fields(fusion, _FUSION | dict.fromkeys({_kept.ARRAY} & {*fusion}, dict), "fusion")
        _check_words(fusion)
        if _kept.ARRAY in fusion:
            silos = _kept.check(fusion[_kept.ARRAY], len(fusion["silo_names"]), size)
    with _code_of_families():
        family = family_from_config(document["posterior"]["family"])
        _check_layout(entries, _expected_shapes(document, family.size, silos, entries))
    return Checked(document, family, silos)


def _check_fields(value: dict[str, Any], types: Mapping[str, Any], where: str) -> None:
    if set(value) != set(types):
        raise FileFormatError(
            f"{where}: expected the fields {', '.join(sorted(types))}, "
            f"got {reprlib.repr(sorted(value))}"
        )
    for key, kind in types.items():
        if not isinstance(value[key], kind) or isinstance(value[key], bool):
            raise FileFormatError(f"{where}: unexpected {key}, got {reprlib.repr(value[key])}")


def _check_words(fusion: dict[str, Any]) -> None:
    if not all(isinstance(name, str) for name in fusion["silo_names"]):
        raise FileFormatError("fusion: expected silo_names to be strings")
    known: tuple[str, ...] = tuple(Status.__members__)
    expected = {"status": (f"a status of {', '.join(known)}", known)}
    expected |= {key: (f"{key} to be a number", NOT_FINITE) for key in NUMBERS}
    for key, (what, words) in expected.items():
        if isinstance(fusion[key], str) and fusion[key] not in words:
            raise FileFormatError(f"fusion: expected {what}, got {reprlib.repr(fusion[key])}")


def _expected_shapes(
    document: dict[str, Any], size: int, kept: _kept.Silos | None, entries: Mapping[str, Entry]
) -> dict[str, tuple[int, ...]]:
    """Expected shape of every array; free lengths are those of the file."""

    def length(name: str) -> int:
        entry = entries.get(name)
        return entry.shape[0] if entry and entry.shape else 0

    n = length("natural")
    shapes: dict[str, tuple[int, ...]] = {"natural": (n, size)}
    shapes |= {k: s for k, s in {"prior": (size,), "counts": (n,)}.items() if k in entries}
    if document["posterior"]["structure"] is not None:
        shapes |= {k: e.shape for k, e in entries.items() if k.startswith(STRUCTURE)}
    if document["kind"] == "fusion":
        total, silos = length("labels"), len(document["fusion"]["silo_names"])
        shapes |= {"labels": (total,), "offsets": (silos + 1,), "divergences": (total,)}
        shapes["trace"] = (length("trace"),)
        if "probability" in entries:
            shapes["probability"] = (total,)
        if any(name.startswith(PATH) for name in entries):
            m = length("path.merges")
            path_shapes = [(m, 2), (m,), (m + 1,), (m + 1,), (total,), (m + 1,), (m + 1,)]
            named = {f"{PATH}{k}": s for k, s in zip(PATH_FIELDS, path_shapes, strict=True)}
            shapes |= {k: s for k, s in named.items() if k not in OPTIONAL or k in entries}
        if kept is not None:
            shapes[_kept.ARRAY] = (kept.n_numbers(),)
    return shapes


def _check_layout(entries: Mapping[str, Entry], shapes: Mapping[str, tuple[int, ...]]) -> None:
    if set(entries) != set(shapes):
        raise FileFormatError(
            f"expected the arrays {', '.join(sorted(shapes))}, got {reprlib.repr(sorted(entries))}"
        )
    for name, entry in entries.items():
        dtype, shape = "I64" if name in INTEGERS else "F64", shapes[name]
        if entry.dtype != dtype:
            raise FileFormatError(f"array {name!r}: expected dtype {dtype}, got {entry.dtype!r}")
        if entry.shape != shape:
            raise FileFormatError(f"array {name!r}: expected shape {shape}, got {entry.shape}")


def build(checked: Checked, arrays: _Arrays) -> Posterior | Fusion:
    """Build the object from a checked document, which is used up, and arrays, all checked."""
    document, fusion = checked.document, checked.document.get("fusion")
    posterior = _posterior(document["posterior"], checked.family, arrays)
    if fusion is None:
        return posterior
    fusion.pop(_kept.ARRAY, None)  # takes as much memory as the posteriors
    return _fusion(fusion, posterior, checked.silos, arrays)


def _posterior(part: Mapping[str, Any], family: Family, arrays: _Arrays) -> Posterior:
    structure, prior, counts = part["structure"], arrays.get("prior"), arrays.get("counts")
    with _code_of_families():
        structure = _structure(structure, arrays)
        return Posterior(
            family, arrays["natural"], part["name"], prior, counts, structure, part["provenance"]
        )


def _structure(part: Mapping[str, Any] | None, arrays: _Arrays) -> Structure | None:
    if part is None:
        return None
    own = {k.removeprefix(STRUCTURE): a for k, a in arrays.items() if k.startswith(STRUCTURE)}
    return Structure(part["kind"], own, part["info"])


def _silos(
    kept: _kept.Silos | None, names: Sequence[str], sizes: list[int], arrays: _Arrays
) -> tuple[Posterior, ...] | None:
    """The silos' posteriors, if the file has them."""
    if kept is None:
        return None
    silos: list[Any] = [None] * len(names)
    flat, starts, together = arrays[_kept.ARRAY], kept.starts(), Together()
    with _code_of_families():
        for numbers, alike in _kept.unpack(kept, names, flat):
            for j, silo in zip(numbers, together.add(alike), strict=True):
                silos[j] = silo
        infinite = np.flatnonzero(~np.isfinite(flat))[:1]
        at = np.searchsorted(starts, infinite, side="right") - 1
        together.check(silos[j] for j in at)
    for silo, size in zip(silos, sizes, strict=True):
        if silo.n_components != size:
            raise FileFormatError(
                f"silo {silo.name!r}: expected {size} components, one for each label, "
                f"got {silo.n_components}"
            )
    return tuple(silos)


def _fusion(
    part: dict[str, Any], posterior: Posterior, kept: _kept.Silos | None, arrays: _Arrays
) -> Fusion:
    labels, offsets = arrays["labels"].astype(np.intp, copy=False), arrays["offsets"]
    _check_range("labels", labels, -1, posterior.n_components - 1)
    if offsets[0] != 0 or offsets[-1] != len(labels) or (offsets[1:] < offsets[:-1]).any():
        raise FileFormatError(f"array 'offsets': expected to rise from 0 to {len(labels)}")
    posteriors = _silos(kept, part["silo_names"], np.diff(offsets).tolist(), arrays)
    names, path = tuple(part["silo_names"]), None
    if "path.merges" in arrays:
        fields = {key: f"{PATH}{key}" for key in PATH_FIELDS}
        path = MergePath(**{k: arrays[name] for k, name in fields.items() if name in arrays})
        _check_range("path.n_components", path.n_components, 1, len(labels))
        _check_range("path.merges", path.merges, 0, int(path.n_components[0]) - 1)
        if path.rows is not None:
            _check_range("path.rows", path.rows, -1, int(path.n_components[0]) - 1)
    try:
        settings = FuseSettings.from_config(part["settings"], len(names))
    except KLFusionError as error:
        raise FileFormatError(str(error)) from error
    return Fusion(
        posterior=posterior,
        silo_names=names,
        labels=BySilo.of(labels, offsets, names),
        divergences=BySilo.of(arrays["divergences"], offsets, names),
        **{key: float(part[key]) for key in NUMBERS},
        trace=arrays["trace"],
        status=Status[part["status"]],
        settings=settings,
        path=path,
        provenance=part["provenance"],
        silos=posteriors,
        unmatched=_unmatched(part["unmatched"]),
        probability=_probability(arrays.get("probability"), offsets, names),
    )


def _probability(
    values: FloatArray | None, offsets: IntArray, names: Sequence[str]
) -> BySilo[FloatArray] | None:
    """Probabilities of matches by silo; NaN where there is none."""
    if values is None:
        return None
    if ((values < 0) | (values > 1)).any():
        raise FileFormatError("array 'probability': expected numbers from 0 to 1")
    return BySilo.of(values, offsets, names)


def _unmatched(part: dict[str, Any]) -> dict[str, dict[int, str]]:
    """Reasons by silo and component."""
    try:
        return {s: {int(k): str(why) for k, why in own.items()} for s, own in part.items()}
    except (AttributeError, ValueError) as error:
        raise FileFormatError(f"fusion: unexpected unmatched, got {reprlib.repr(part)}") from error


def _check_range(name: str, values: NDArray[Any], low: int, high: int) -> None:
    bad = values[(values < low) | (values > high)]
    if len(bad):
        raise FileFormatError(f"array {name!r}: expected {low} to {high}, got {bad[0]}")


@contextmanager
def _code_of_families() -> Iterator[None]:
    """Report any exception of a family, which may be user code, as a `FileFormatError`."""
    try:
        yield
    except (KLFusionError, MemoryError):
        raise
    except Exception as error:
        raise FileFormatError(f"the family refused it: {type(error).__name__}: {error}") from error
