"""Hidden Markov models: starts of sequences and transitions between states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.posteriors.structure.structure import Structure, agreed_info, scatter

KIND = "hmm"


def fuse(silos: Sequence[Structure], labels: Sequence[IntArray], n_components: int) -> Structure:
    """Add expected counts; average the priors.

    ``start`` (L,) holds the expected number of sequences that begin in each state, ``transition``
    (L, L) that of steps from row to column. ``start_prior`` and ``transition_prior`` are their
    Dirichlet pseudo-counts. Steps between states that no silo has both of get the prior alone.
    """
    arrays = {}
    for key in ("start", "transition"):
        arrays[key] = scatter([s.arrays[key] for s in silos], labels, n_components)
        priors = [s.arrays[f"{key}_prior"] for s in silos]
        arrays[f"{key}_prior"] = _average(priors, labels, n_components)
    info = dict(agreed_info(silos, "covariance_type"))
    if all("frame_weight" in s.info for s in silos):  # each silo has its own estimate
        info["frame_weight"] = float(np.mean([s.info["frame_weight"] for s in silos]))
    return Structure(KIND, arrays, info)


def visits(arrays: Mapping[str, FloatArray]) -> FloatArray:
    """Expected observations per state: starts of sequences plus steps to the state."""
    return np.asarray(arrays["start"] + arrays["transition"].sum(axis=0))


def _average(
    priors: Sequence[FloatArray], labels: Sequence[IntArray], n_components: int
) -> FloatArray:
    """The mean over the silos that have an entry.

    An entry that no silo has is a step between two different states. It gets the smallest entry
    of all priors, because larger ones belong to staying in a sticky prior.
    """
    total = scatter(priors, labels, n_components)
    n_silos = scatter([np.ones_like(p) for p in priors], labels, n_components)
    lowest = min(float(p.min()) for p in priors)
    return np.where(n_silos > 0, total / np.maximum(n_silos, 1.0), lowest)
