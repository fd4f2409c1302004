"""Mixtures: expected observations per component and the prior of the weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from klfusion._utils.arrays import IntArray
from klfusion.posteriors.structure.structure import Structure, agreed_info, scatter

KIND = "mixture"


def fuse(silos: Sequence[Structure], labels: Sequence[IntArray], n_components: int) -> Structure:
    """Add the expected ``counts`` (L,); average ``weight_prior`` ().

    ``weight_prior`` is the pseudo-count per component in the prior of the weights.
    """
    counts = scatter([s.arrays["counts"] for s in silos], labels, n_components)
    prior = np.mean([s.arrays["weight_prior"] for s in silos])
    arrays = {"counts": counts, "weight_prior": np.asarray(prior)}
    return Structure(KIND, arrays, agreed_info(silos, "covariance_type"))
