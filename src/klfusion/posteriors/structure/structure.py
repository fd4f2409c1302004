"""`Structure`: arrays and settings around the components of a model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.text import brief
from klfusion.errors import IncompatibleSilosError, InvalidPosteriorError
from klfusion.posteriors.structure.words import normalised


@dataclass(frozen=True)
class Structure:
    """Arrays and settings around the components, such as the weights of a mixture.

    Parameters
    ----------
    kind : str
        ``"mixture"``, ``"hmm"``, ``"topics"``, ``"layers"``, ``"sites"``, ``"regression"``,
        ``"components"``, ``"classes"`` or ``"named"``; decides how it is fused. Structures of other
        kinds are not fused.
    arrays : mapping of str to array
        Read-only float64 arrays; never observations.
    info : mapping of str to JSON-able values
        Settings needed to rebuild the model.

    Examples
    --------
    >>> from klfusion.posteriors.structure import Structure
    >>> weights = Structure("mixture", {"counts": [10, 5], "weight_prior": 1.0})
    >>> weights.arrays["counts"]
    array([10.,  5.])
    """

    kind: str
    arrays: Mapping[str, FloatArray] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str):
            raise InvalidPosteriorError(f"expected kind to be text, got {brief(self.kind)}")
        for what in ("arrays", "info"):
            value = getattr(self, what)
            if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
                expected = f"expected {what} of a structure to be a mapping of text to values"
                raise InvalidPosteriorError(f"{expected}, got {brief(value)}")
        frozen = {key: self._frozen(key, array) for key, array in self.arrays.items()}
        object.__setattr__(self, "arrays", frozen)

    def _frozen(self, key: str, values: Any) -> FloatArray:
        array, where = np.asarray(values), f"{self.kind}.{key}"
        if array.dtype.kind not in "fiub":
            got = f"dtype {array.dtype}"
            raise InvalidPosteriorError(f"{where}: expected an array of numbers, got {got}")
        array = np.array(array, dtype=np.float64, order="C")
        array.flags.writeable = False
        return array


def agreed_info(silos: Sequence[Structure], *keys: str) -> Mapping[str, Any]:
    """The first silo's settings; refuse silos that differ in one of ``keys``."""
    for key in keys:
        found = dict.fromkeys(normalised(str(s.info.get(key))) for s in silos)
        if len(found) > 1:
            got = ", ".join(found)
            raise IncompatibleSilosError(f"expected silos with the same {key}, got {got}")
    return silos[0].info


POINT = "point_estimates"  # key in `info`: whether the prior was made up for the comparison


def is_point(structure: Structure | None) -> bool:
    """Whether a mixture was fitted without a prior, so that the one it has may be any."""
    return structure is not None and structure.info.get(POINT) is True


def with_prior(structure: Structure | None) -> Structure | None:
    """The structure of components in which the prior stays."""
    if structure is None or not is_point(structure):
        return structure
    info = {key: value for key, value in structure.info.items() if key != POINT}
    return replace(structure, info=info)


def is_tied(structure: Structure | None) -> bool:
    """Whether the components of a mixture or of an HMM share their covariance."""
    return structure is not None and structure.info.get("covariance_type") == "tied"


def scatter(
    arrays: Sequence[FloatArray], labels: Sequence[IntArray | FloatArray], size: int
) -> FloatArray:
    """Sum arrays (L,) or matrices (L, L) over silos by label; label -1 is skipped.

    Labels (L,) may be responsibilities (L, size). The diagonal of a matrix, such as steps within a
    state, stays on the diagonal.
    """
    if labels[0].ndim == 2:
        shared = [_shared(a, share.astype(float)) for a, share in zip(arrays, labels, strict=True)]
        return np.asarray(np.sum(shared, axis=0))
    if arrays[0].ndim == 1:
        all_labels, values = np.concatenate(labels), np.concatenate(arrays)
        rows = all_labels >= 0
        return np.bincount(all_labels[rows], values[rows], minlength=size).astype(np.float64)
    total = np.zeros((size,) * arrays[0].ndim)
    for array, label in zip(arrays, labels, strict=True):
        kept = np.flatnonzero(label >= 0)
        target = np.ix_(*[label[kept].astype(np.intp)] * array.ndim)
        np.add.at(total, target, array[np.ix_(*[kept] * array.ndim)])
    return total


def _shared(array: FloatArray, share: FloatArray) -> FloatArray:
    """An array (L,) or matrix (L, L) shared out by responsibilities (L, size)."""
    if array.ndim == 1:
        return np.asarray(share.T @ array)
    within = np.diag(array)
    return np.asarray(share.T @ (array - np.diag(within)) @ share + np.diag(share.T @ within))
