"""Components with weights, transitions and shared coordinates, as draws of a program have them.

``info`` has ``variables`` of one component, ``shared`` variables, ``component_dims``, and the names
of the variables ``weights`` and ``transition``. Arrays are pseudo-counts that data add to Dirichlet
priors: ``counts`` (K,), ``transition`` (K, K). Shared coordinates are Normal, in precisions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.posteriors.structure.structure import Structure, agreed_info, scatter

KIND = "components"
SHARED = ("shared.shift", "shared.precision", "shared.prior_shift", "shared.prior_precision")
_COMMON = ("component_dims", "features", "variables", "shared", "weights", "transition")


def fuse(
    silos: Sequence[Structure], labels: Sequence[IntArray | FloatArray], n_components: int
) -> Structure:
    """Add pseudo-counts; multiply what silos say about shared coordinates, the prior once."""
    info = agreed_info(silos, *_COMMON)
    arrays: dict[str, FloatArray] = {}
    for key, prior in {"counts": "weight_prior", "transition": "transition_prior"}.items():
        if all(key in s.arrays for s in silos):
            arrays[key] = scatter([s.arrays[key] for s in silos], labels, n_components)
            arrays[prior] = np.asarray(np.mean([s.arrays[prior] for s in silos]))
    if all(SHARED[0] in s.arrays for s in silos):
        for own, before in zip(SHARED[:2], SHARED[2:], strict=True):
            prior = np.mean([s.arrays[before] for s in silos], axis=0)
            arrays[own] = prior + sum(s.arrays[own] - s.arrays[before] for s in silos)
            arrays[before] = prior
    return Structure(KIND, arrays, info)
