"""Hidden Markov chains: the transitions between global states are those of their local ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.posteriors.structure.structure import Structure, agreed_info, scatter

KIND = "hmm"


def fuse(silos: Sequence[Structure], labels: Sequence[IntArray], n_components: int) -> Structure:
    """Add up expected counts; average the priors.

    ``start`` (L,) and ``transition`` (L, L) are the expected numbers of sequences that begin in
    a state and of steps from row to column; ``start_prior`` and ``transition_prior`` are the
    Dirichlet pseudo-counts that come on top of them. States that no silo has together were never
    seen to follow each other: there the prior alone speaks.
    """
    arrays = {}
    for key in ("start", "transition"):
        arrays[key] = scatter([s.arrays[key] for s in silos], labels, n_components)
        priors = [s.arrays[f"{key}_prior"] for s in silos]
        arrays[f"{key}_prior"] = _average(priors, labels, n_components)
    info = dict(agreed_info(silos, "covariance_type"))
    if all("frame_weight" in s.info for s in silos):  # estimated by each silo
        info["frame_weight"] = float(np.mean([s.info["frame_weight"] for s in silos]))
    return Structure(KIND, arrays, info)


def _average(
    priors: Sequence[FloatArray], labels: Sequence[IntArray], n_components: int
) -> FloatArray:
    """The mean over the silos that have an entry.

    An entry none has is a step between two states, so it gets the smallest there is: in a sticky
    prior larger ones are for staying.
    """
    total = scatter(priors, labels, n_components)
    known = scatter([np.ones_like(p) for p in priors], labels, n_components)
    lowest = min(float(p.min()) for p in priors)
    return np.where(known > 0, total / np.maximum(known, 1.0), lowest)
