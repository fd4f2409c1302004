"""Probabilistic programs: sites outside the plate of the components."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.errors import IncompatibleSilosError
from klfusion.posteriors.structure.structure import Structure

KIND = "sites"


def fuse(silos: Sequence[Structure], labels: Sequence[IntArray], n_components: int) -> Structure:
    """Average the shared sites, ``site.mean`` and ``site.variance``, in natural parameters."""
    del labels, n_components  # shared sites do not depend on the matching
    first = silos[0]
    for other in silos[1:]:
        for key in ("sites", "shared"):
            if other.info[key] != first.info[key]:
                raise IncompatibleSilosError(
                    f"expected silos with the same {key}, got {_readable(first.info[key])} "
                    f"and {_readable(other.info[key])}"
                )
    arrays: dict[str, FloatArray] = {}
    for site in first.info["shared"]:
        mean, variance = f"{site['name']}.mean", f"{site['name']}.variance"
        precision = np.mean([1.0 / s.arrays[variance] for s in silos], axis=0)
        shift = np.mean([s.arrays[mean] / s.arrays[variance] for s in silos], axis=0)
        arrays |= {mean: shift / precision, variance: 1.0 / precision}
    return Structure(KIND, arrays, first.info)


def _readable(sites: Sequence[dict[str, object]]) -> str:
    return ", ".join(f"{s['name']} {s['shape']} ({s['support']})" for s in sites) or "none"
