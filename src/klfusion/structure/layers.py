"""A network with one hidden layer: what surrounds its hidden units, and how it is fused.

A component is a hidden unit, ``[incoming weights (n_in), bias, outgoing weights (n_out)]``; around
the units stand the output biases and the sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from klfusion._typing import FloatArray, IntArray
from klfusion.errors import IncompatibleSilosError
from klfusion.structure.base import Structure

KIND = "layers"
# What all silos must agree on, so that their units mean the same.
_COMMON = ("n_in", "n_out", "activation")
# A share of exactly zero would be a weight known for certain, which no Normal can say.
_LEAST_SHARE = 1e-6


def fuse(silos: Sequence[Structure], labels: Sequence[IntArray], n_components: int) -> Structure:
    """Combine the output biases, and keep what share of each fused unit the silos have.

    Silo ``j`` counts for output ``k`` with ``a_jk = n_jk / n_k``, its share of the observations of
    that class, where every silo has ``class_counts``; with ``1 / J`` otherwise.

    - Output bias: the mean of natural parameters with weights ``a_jk``.
    - Outgoing weights: a fused unit is the plain average of its members, but in the network the
      contributions of units add up, and a silo without the unit contributes zero. So
      ``share[g, k] = sum of a_jk over the members of g`` (``n_g / J`` without class counts); see
      `outgoing`. What is already scaled by a share, because it was fused before, stays so.
    """
    for key in _COMMON:
        found = {str(s.info[key]): None for s in silos}
        if len(found) > 1:
            raise IncompatibleSilosError(
                f"expected networks with the same {key}, got {', '.join(found)}"
            )
    counts = [s.arrays["class_counts"] for s in silos if "class_counts" in s.arrays]
    weights = _class_shares(counts if len(counts) == len(silos) else None, silos)
    precisions = [1.0 / s.arrays["bias_variance"] for s in silos]
    precision = np.sum(weights * precisions, axis=0)
    shift = np.sum(weights * precisions * [s.arrays["bias_mean"] for s in silos], axis=0)
    share = np.zeros((n_components, weights.shape[1]))
    for silo, label, weight in zip(silos, labels, weights, strict=True):
        kept = label >= 0
        np.add.at(share, label[kept], silo.arrays["share"][kept] * weight)
    arrays = {
        "bias_mean": shift / precision,
        "bias_variance": 1.0 / precision,
        "share": np.maximum(share, _LEAST_SHARE),
    }
    if len(counts) == len(silos):
        arrays["class_counts"] = np.sum(counts, axis=0)
    return Structure(KIND, arrays, silos[0].info)


def outgoing(
    mean: FloatArray, variance: FloatArray, share: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Outgoing weights of fused units in the network: ``share * w``, all arrays (units, n_out).

    The mean is ``share * mean``, the variance ``share^2 * variance``: as certain as a typical
    silo, like all that is averaged, and exactly the silos' own where they are copies.
    """
    return share * mean, share**2 * variance


def _class_shares(counts: Sequence[FloatArray] | None, silos: Sequence[Structure]) -> FloatArray:
    """``a`` (silos, n_out); its columns add up to one."""
    equal = np.full((len(silos), int(silos[0].info["n_out"])), 1.0 / len(silos))
    if counts is None:
        return equal
    total = np.sum(counts, axis=0)
    seen = np.asarray(counts) / np.where(total > 0, total, 1.0)
    return np.where(total > 0, seen, equal)
