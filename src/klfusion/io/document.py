"""A posterior or a fusion as a JSON document and named arrays, with checks on reading."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from klfusion.errors import FileFormatError, KLFusionError
from klfusion.families import Family, family_from_config
from klfusion.fusion.result import BySilo, Fusion
from klfusion.fusion.settings import FuseSettings
from klfusion.io import kept as _kept
from klfusion.io.container import Entry, parse_json
from klfusion.io.values import as_array, plain, to_json
from klfusion.io.version_1 import upgraded
from klfusion.objective.merge_path import MergePath
from klfusion.objective.solution import Status
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import Structure

FORMAT = "klfusion"
VERSION = 2  # files of version 1, which had other settings, are read, too

_STRUCTURE, _PATH = "structure.", "path."  # prefixes of array names
_PATH_FIELDS = ("merges", "ratios", "divergences", "n_components", "rows", "losses")
_INTEGERS = {"labels", "offsets", "path.merges", "path.n_components", "path.rows"}  # else float64
_OPTIONAL = {"path.rows", "path.losses"}  # losses exist only if observations are counted
_NOT_FINITE = ("nan", "inf", "-inf")  # as strings: JSON has no such numbers
_NUMBER = (int, float, str)

_TOP = {"format": str, "version": int, "kind": str, "posterior": dict, "sha256": str}
_POSTERIOR = {"family": dict, "name": str, "provenance": dict, "structure": (dict, type(None))}
_FUSION = {
    "silo_names": list, "penalty": _NUMBER, "objective": _NUMBER, "lower_bound": _NUMBER,
    "status": str, "settings": dict, "unmatched": dict, "provenance": dict,
}  # fmt: skip


def take_apart(obj: Posterior | Fusion) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The document without its hash, and float64 and int64 arrays by name."""
    if not isinstance(obj, Posterior | Fusion):
        raise KLFusionError(f"expected a Posterior or a Fusion, got {type(obj).__name__}")
    posterior = obj.posterior if isinstance(obj, Fusion) else obj
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "kind": "posterior",
        "posterior": _posterior_document(posterior),
    }
    arrays = _posterior_arrays(posterior)
    if isinstance(obj, Fusion):
        document |= {"kind": "fusion", "fusion": _fusion_document(obj)}
        arrays |= _fusion_arrays(obj)
        if obj.silos is not None:
            parts = [(_posterior_document(p), _float_arrays(p)) for p in obj.silos]
            document["fusion"]["silos"], arrays[_kept.ARRAY] = _kept.pack(parts)
    return document, {
        name: as_array(name, values, integers=name in _INTEGERS) for name, values in arrays.items()
    }


def _posterior_document(posterior: Posterior) -> dict[str, Any]:
    structure = posterior.structure
    return {
        "family": plain(posterior.family.to_config(), "family"),
        "name": posterior.name,
        "provenance": plain(posterior.provenance, "provenance"),
        "structure": None
        if structure is None
        else {"kind": structure.kind, "info": plain(structure.info, "structure.info")},
    }


def _posterior_arrays(posterior: Posterior) -> dict[str, ArrayLike]:
    arrays: dict[str, ArrayLike] = {"natural": posterior.natural}
    if posterior.prior is not None:
        arrays["prior"] = posterior.prior
    if posterior.counts is not None:
        arrays["counts"] = posterior.counts
    if posterior.structure is not None:
        arrays |= {f"{_STRUCTURE}{k}": array for k, array in posterior.structure.arrays.items()}
    return arrays


def _float_arrays(posterior: Posterior) -> dict[str, NDArray[Any]]:
    return {name: as_array(name, values) for name, values in _posterior_arrays(posterior).items()}


def _fusion_document(fusion: Fusion) -> dict[str, Any]:
    return {
        "silo_names": plain(fusion.silo_names, "silo_names"),
        "penalty": to_json(fusion.penalty),
        "objective": to_json(fusion.objective),
        "lower_bound": to_json(fusion.lower_bound),
        "status": fusion.status.name,
        "settings": fusion.settings.to_config(),
        "unmatched": {
            silo: {str(k): reason for k, reason in own.items()}
            for silo, own in fusion.unmatched.items()
        },
        "provenance": plain(fusion.provenance, "provenance"),
    }


def _fusion_arrays(fusion: Fusion) -> dict[str, ArrayLike]:
    """Arrays of all silos joined, with the offset of each silo."""
    sizes = [len(labels) for labels in fusion.labels]
    if sizes != [len(d) for d in fusion.divergences] or len(sizes) != len(fusion.silo_names):
        raise KLFusionError("expected a label and a divergence of every component of every silo")
    arrays: dict[str, ArrayLike] = {
        "labels": np.concatenate([np.empty(0, dtype=np.int64), *fusion.labels]),
        "offsets": np.cumsum([0, *sizes]),
        "divergences": np.concatenate([np.empty(0), *fusion.divergences]),
        "trace": fusion.trace,
    }
    if fusion.path is not None:
        fields = {f"{_PATH}{key}": getattr(fusion.path, key) for key in _PATH_FIELDS}
        arrays |= {name: values for name, values in fields.items() if values is not None}
    return arrays


def check(text: str, entries: Mapping[str, Entry]) -> tuple[dict[str, Any], Family]:
    """Check every field, dtype and shape before any array is read."""
    document = parse_json(text)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise FileFormatError(f"expected a {FORMAT!r} document, got {reprlib.repr(document)}")
    version = document.get("version")
    if type(version) is not int or version < 1:
        raise FileFormatError(f"expected a format version >= 1, got {reprlib.repr(version)}")
    if version > VERSION:
        raise FileFormatError(
            f"expected format version {VERSION}, got {version}: made by a newer klfusion, upgrade"
        )
    if version == 1:
        document = upgraded(document)
    kind = document.get("kind")
    if kind not in ("posterior", "fusion"):
        raise FileFormatError(f"expected a posterior or a fusion, got {reprlib.repr(kind)}")
    _check_fields(document, _TOP | ({"fusion": dict} if kind == "fusion" else {}), "document")
    _check_fields(document["posterior"], _POSTERIOR, "posterior")
    if document["posterior"]["structure"] is not None:
        _check_fields(document["posterior"]["structure"], {"kind": str, "info": dict}, "structure")
    if kind == "fusion":
        kept: dict[str, Any] = {_kept.ARRAY: dict} if _kept.ARRAY in document["fusion"] else {}
        _check_fields(document["fusion"], _FUSION | kept, "fusion")
        _check_words(document["fusion"])
    with _code_of_families():
        family = family_from_config(document["posterior"]["family"])
        _check_layout(entries, _expected_shapes(document, family.size, entries))
    return document, family


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
    if fusion["status"] not in Status.__members__:
        raise FileFormatError(
            f"fusion: expected a status of {', '.join(Status.__members__)}, "
            f"got {reprlib.repr(fusion['status'])}"
        )
    for key in ("penalty", "objective", "lower_bound"):
        if isinstance(fusion[key], str) and fusion[key] not in _NOT_FINITE:
            raise FileFormatError(
                f"fusion: expected {key} to be a number, got {reprlib.repr(fusion[key])}"
            )


def _expected_shapes(
    document: dict[str, Any], size: int, entries: Mapping[str, Entry]
) -> dict[str, tuple[int, ...]]:
    """Expected shape of every array; free lengths are those of the file."""

    def length(name: str) -> int:
        entry = entries.get(name)
        return entry.shape[0] if entry and entry.shape else 0

    n = length("natural")
    shapes: dict[str, tuple[int, ...]] = {"natural": (n, size)}
    shapes |= {k: s for k, s in {"prior": (size,), "counts": (n,)}.items() if k in entries}
    if document["posterior"]["structure"] is not None:
        shapes |= {k: e.shape for k, e in entries.items() if k.startswith(_STRUCTURE)}
    if document["kind"] == "fusion":
        total, silos = length("labels"), len(document["fusion"]["silo_names"])
        shapes |= {"labels": (total,), "offsets": (silos + 1,), "divergences": (total,)}
        shapes["trace"] = (length("trace"),)
        if any(name.startswith(_PATH) for name in entries):
            m = length("path.merges")
            path_shapes = [(m, 2), (m,), (m + 1,), (m + 1,), (total,), (m + 1,)]
            named = {f"{_PATH}{k}": s for k, s in zip(_PATH_FIELDS, path_shapes, strict=True)}
            shapes |= {k: s for k, s in named.items() if k not in _OPTIONAL or k in entries}
        if _kept.ARRAY in document["fusion"]:
            shapes[_kept.ARRAY] = (_kept.check(document["fusion"][_kept.ARRAY], silos),)
    return shapes


def _check_layout(entries: Mapping[str, Entry], shapes: Mapping[str, tuple[int, ...]]) -> None:
    if set(entries) != set(shapes):
        raise FileFormatError(
            f"expected the arrays {', '.join(sorted(shapes))}, got {reprlib.repr(sorted(entries))}"
        )
    for name, entry in entries.items():
        dtype = "I64" if name in _INTEGERS else "F64"
        if entry.dtype != dtype:
            raise FileFormatError(f"array {name!r}: expected dtype {dtype}, got {entry.dtype!r}")
        if entry.shape != shapes[name]:
            raise FileFormatError(
                f"array {name!r}: expected shape {shapes[name]}, got {entry.shape}"
            )


def build(
    document: dict[str, Any], family: Family, arrays: Mapping[str, NDArray[Any]]
) -> Posterior | Fusion:
    """Build the object from a checked document and arrays, with a check of every number."""
    posterior = _build_posterior(document["posterior"], family, arrays)
    return (
        _build_fusion(document["fusion"], posterior, arrays) if "fusion" in document else posterior
    )


def _build_posterior(
    part: Mapping[str, Any], family: Family, arrays: Mapping[str, NDArray[Any]]
) -> Posterior:
    structure = part["structure"]
    if structure is not None:
        own = {k.removeprefix(_STRUCTURE): a for k, a in arrays.items() if k.startswith(_STRUCTURE)}
        structure = Structure(structure["kind"], own, structure["info"])
    with _code_of_families():
        return Posterior(
            family=family,
            natural=arrays["natural"],
            name=part["name"],
            prior=arrays.get("prior"),
            counts=arrays.get("counts"),
            structure=structure,
            provenance=part["provenance"],
        )


def _build_silos(
    part: dict[str, Any], sizes: list[int], arrays: Mapping[str, NDArray[Any]]
) -> tuple[Posterior, ...] | None:
    """The silos' posteriors, if the file has them."""
    if _kept.ARRAY not in part:
        return None
    silos = []
    with _code_of_families():
        parts = _kept.unpack(part[_kept.ARRAY], part["silo_names"], arrays[_kept.ARRAY])
        for (one, own), size in zip(parts, sizes, strict=True):
            silos.append(_build_posterior(one, family_from_config(one["family"]), own))
            if silos[-1].n_components != size:
                raise FileFormatError(
                    f"silo {one['name']!r}: expected {size} components, one for each label, "
                    f"got {silos[-1].n_components}"
                )
    return tuple(silos)


def _build_fusion(
    part: dict[str, Any], posterior: Posterior, arrays: Mapping[str, NDArray[Any]]
) -> Fusion:
    labels, offsets = arrays["labels"].astype(np.intp, copy=False), arrays["offsets"]
    _check_range("labels", labels, -1, posterior.n_components - 1)
    if offsets[0] != 0 or offsets[-1] != len(labels) or (offsets[1:] < offsets[:-1]).any():
        raise FileFormatError(f"array 'offsets': expected to rise from 0 to {len(labels)}")
    silos = [slice(low, high) for low, high in pairwise(offsets.tolist())]
    path = None
    if "path.merges" in arrays:
        fields = {key: f"{_PATH}{key}" for key in _PATH_FIELDS}
        path = MergePath(**{k: arrays[name] for k, name in fields.items() if name in arrays})
        _check_range("path.n_components", path.n_components, 1, len(labels))
        _check_range("path.merges", path.merges, 0, int(path.n_components[0]) - 1)
        if path.rows is not None:
            _check_range("path.rows", path.rows, -1, int(path.n_components[0]) - 1)
    names = tuple(part["silo_names"])
    try:
        settings = FuseSettings.from_config(part["settings"], len(names))
    except KLFusionError as error:
        raise FileFormatError(str(error)) from error
    return Fusion(
        posterior=posterior,
        silo_names=names,
        labels=BySilo((labels[rows] for rows in silos), names),
        divergences=BySilo((arrays["divergences"][rows] for rows in silos), names),
        penalty=float(part["penalty"]),
        objective=float(part["objective"]),
        lower_bound=float(part["lower_bound"]),
        trace=arrays["trace"],
        status=Status[part["status"]],
        settings=settings,
        path=path,
        provenance=part["provenance"],
        silos=_build_silos(part, np.diff(offsets).tolist(), arrays),
        unmatched=_build_unmatched(part),
    )


def _build_unmatched(part: dict[str, Any]) -> dict[str, dict[int, str]]:
    """Reasons by silo and component."""
    try:
        return {
            silo: {int(k): str(reason) for k, reason in own.items()}
            for silo, own in part["unmatched"].items()
        }
    except (AttributeError, ValueError) as error:
        raise FileFormatError(
            f"fusion: unexpected unmatched, got {reprlib.repr(part['unmatched'])}"
        ) from error


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
