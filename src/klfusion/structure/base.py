"""The structure around a model's components: plain arrays, plain words, and a kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from klfusion._typing import FloatArray, IntArray
from klfusion.errors import IncompatibleSilosError, InvalidPosteriorError
from klfusion.structure import mixture


@dataclass(frozen=True)
class Structure:
    """Arrays and settings around the components, such as the weights of a mixture.

    Parameters
    ----------
    kind : str
        What it is, ``"mixture"`` for instance; decides how it is fused.
    arrays : mapping of str to array
    info : mapping of str to JSON-able values
        Settings needed to rebuild the model.
    """

    kind: str
    arrays: Mapping[str, FloatArray] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)

    def check(self, where: str) -> None:
        """Raise if any array holds NaN or infinity."""
        for key, array in self.arrays.items():
            if not np.isfinite(array).all():
                raise InvalidPosteriorError(
                    f"{where}: expected finite numbers in {self.kind}.{key}, got NaN or infinity"
                )


_Fuser = Callable[
    [Sequence[Mapping[str, FloatArray]], Sequence[IntArray], int], dict[str, FloatArray]
]
_FUSERS: dict[str, _Fuser] = {"mixture": mixture.fuse_arrays}


def fuse_structures(
    structures: Sequence[Structure | None], labels: Sequence[IntArray], n_components: int
) -> Structure | None:
    """Carry the silos' structures through the matching.

    ``labels[j]`` holds the global component of each local one of silo ``j``, -1 for none. Silos
    without structure give a fusion without; silos of different kinds are refused.
    """
    present = [s for s in structures if s is not None]
    if len(present) < len(structures):
        return None
    kinds = sorted({s.kind for s in present})
    if len(kinds) > 1:
        raise IncompatibleSilosError(f"expected models of one kind, got {', '.join(kinds)}")
    if kinds[0] not in _FUSERS:
        return None
    arrays = _FUSERS[kinds[0]]([s.arrays for s in present], labels, n_components)
    return Structure(kind=kinds[0], arrays=arrays, info=present[0].info)
