"""A posterior or a fusion taken apart: a JSON document and named arrays."""

import math
import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from klfusion.errors import KLFusionError
from klfusion.fusion.result import Fusion
from klfusion.io import kept as _kept
from klfusion.posteriors.posterior import Posterior

FORMAT = "klfusion"
VERSION = 2  # files of version 1, which had other settings, are read, too

STRUCTURE, PATH = "structure.", "path."  # prefixes of array names
PATH_FIELDS = ("merges", "ratios", "divergences", "n_components", "rows", "losses", "evidence")
INTEGERS = {"labels", "offsets", "path.merges", "path.n_components", "path.rows"}  # else float64
# Losses exist only if observations are counted.
OPTIONAL = {"path.rows", "path.losses", "path.evidence", "probability"}
NOT_FINITE = ("nan", "inf", "-inf")  # as strings: JSON has no such numbers
NUMBERS = ("penalty", "objective", "lower_bound")


def take_apart(obj: Posterior | Fusion) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The document without its hash, and float64 and int64 arrays by name."""
    if not isinstance(obj, Posterior | Fusion):
        raise KLFusionError(
            f"expected a Posterior or a Fusion, got {type(obj).__name__}: "
            "kf.extract(model, name=...) gives the posterior of a fitted model"
        )
    own, arrays = posterior_parts(obj.posterior if isinstance(obj, Fusion) else obj)
    document: dict[str, Any] = {"format": FORMAT, "version": VERSION, "kind": "posterior"}
    document["posterior"] = own
    if isinstance(obj, Fusion):
        document |= {"kind": "fusion", "fusion": _fusion_document(obj)}
        arrays |= _fusion_arrays(obj)
        if obj.silos is not None:
            packed = _kept.pack([posterior_parts(silo) for silo in obj.silos])
            document["fusion"]["silos"], arrays[_kept.ARRAY] = packed
    return document, arrays


def posterior_parts(posterior: Posterior) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Document and arrays of a posterior."""
    structure, part = posterior.structure, None
    arrays = {key: getattr(posterior, key) for key in ("natural", "prior", "counts")}
    if structure is not None:
        part = {"kind": structure.kind, "info": plain(structure.info, "structure.info")}
        arrays |= {f"{STRUCTURE}{key}": array for key, array in structure.arrays.items()}
    document = {
        "family": plain(posterior.family.to_config(), "family"),
        "name": posterior.name,
        "provenance": plain(posterior.provenance, "provenance"),
        "structure": part,
    }
    return document, _in_dtypes(arrays)


def _in_dtypes(arrays: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """The arrays that are not None, in the dtypes of a file."""
    given = {name: values for name, values in arrays.items() if values is not None}
    return {name: _as_array(name, v, integers=name in INTEGERS) for name, v in given.items()}


def _as_array(name: str, values: ArrayLike, *, integers: bool = False) -> NDArray[Any]:
    """Convert an array to the dtype of the file; refuse if a number would change."""
    given = np.asarray(values)
    if given.dtype.kind not in "biuf":
        raise KLFusionError(f"{name}: expected an array of numbers, got {given.dtype}")
    with np.errstate(all="ignore"):
        array = given.astype(np.int64 if integers else np.float64, order="C", copy=False)
        back = array.astype(given.dtype, copy=False)
    if back is not given and not np.array_equal(back, given, equal_nan=True):
        raise KLFusionError(f"{name}: expected numbers that {array.dtype} can hold")
    return array


def plain(value: Any, where: str) -> Any:
    """Convert to JSON values: numpy scalars and arrays to Python, tuples to lists."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, where) for item in value]
    raise KLFusionError(
        f"{where}: expected JSON values, which are finite numbers, text, lists, and mappings with "
        f"text keys, got {reprlib.repr(value)}"
    )


def _to_json(number: float) -> float | str:
    """A finite number, or the name of one that JSON lacks."""
    return float(number) if math.isfinite(number) else str(float(number))


def _fusion_document(fusion: Fusion) -> dict[str, Any]:
    reasons = {s: {str(k): why for k, why in own.items()} for s, own in fusion.unmatched.items()}
    return {
        "silo_names": plain(fusion.silo_names, "silo_names"),
        **{key: _to_json(getattr(fusion, key)) for key in NUMBERS},
        "status": fusion.status.name,
        "settings": fusion.settings.to_config(),
        "unmatched": reasons,
        "provenance": plain(fusion.provenance, "provenance"),
    }


def _fusion_arrays(fusion: Fusion) -> dict[str, NDArray[Any]]:
    """Arrays of all silos joined, with the offset of each silo."""
    sizes = [len(labels) for labels in fusion.labels]
    if sizes != [len(d) for d in fusion.divergences] or len(sizes) != len(fusion.silo_names):
        raise KLFusionError("expected a label and a divergence of every component of every silo")
    arrays = {
        "labels": np.concatenate([np.empty(0, dtype=np.int64), *fusion.labels]),
        "offsets": np.cumsum([0, *sizes]),
        "divergences": np.concatenate([np.empty(0), *fusion.divergences]),
        "trace": fusion.trace,
    }
    if fusion.probability is not None:
        arrays["probability"] = np.concatenate([np.empty(0), *fusion.probability])
    if fusion.path is not None:
        arrays |= {f"{PATH}{key}": getattr(fusion.path, key) for key in PATH_FIELDS}
    return _in_dtypes(arrays)
