"""Mixture weights: the observations behind a global component are those of its local ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from klfusion._typing import FloatArray, IntArray


def fuse_arrays(
    silos: Sequence[Mapping[str, FloatArray]], labels: Sequence[IntArray], n_components: int
) -> dict[str, FloatArray]:
    """Scatter each silo's expected ``counts`` (L,) through its labels and add them up.

    ``weight_prior`` () is the Dirichlet pseudo-count of one component, averaged over silos.
    """
    total = np.zeros(n_components)
    for silo, label in zip(silos, labels, strict=True):
        kept = label >= 0
        np.add.at(total, label[kept], silo["counts"][kept])
    prior = np.mean([float(silo["weight_prior"]) for silo in silos])
    return {"counts": total, "weight_prior": np.array(prior)}
