"""A fully connected network: what surrounds the units of its first hidden layer, and its fusion.

A component is a unit of the first hidden layer: ``[incoming weights (n_in), bias]``, and for a
network with one hidden layer its ``outgoing weights (n_out)`` too. Around them stand the later
layers: layer ``i`` is ``mean.i`` and ``variance.i``, (units, units of layer ``i - 1``, and one more
for the bias).

A network is fused layer by layer. Once the units of a layer are matched, the next layer's incoming
weights are put into the order of the fused units; a silo without a unit has a weight of zero for
it. Then the next layer's units can be matched like the first's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion.errors import IncompatibleSilosError, KLFusionError
from klfusion.families import DiagonalNormal, Family
from klfusion.posteriors.structure.structure import Structure

KIND = "layers"
# What all silos must agree on, so that their units mean the same.
_COMMON = ("n_in", "activation", "head", "classes")
# Variance of a weight that nobody has: zero would be known for certain, which no Normal can say.
_ABSENT = 1e-12
_SIGNAL = 2.0  # deviations from zero at which a weight is taken to do something
# Where all weights are uncertain many may do something together: those above this share of the
# largest one and of their own deviation.
_LARGE = 0.2

# Labels of each silo's components of the given layer, and how many fused ones there are.
Match = Callable[[Family, Sequence[FloatArray], int], tuple[Sequence[IntArray], int]]


def match_anew(
    family: Family, naturals: Sequence[FloatArray], layer: int
) -> tuple[Sequence[IntArray], int]:
    """Where the matching of the first layer was kept: those of later layers were not."""
    del family, naturals
    raise KLFusionError(
        f"hidden layer {layer + 1} of a network: only the matching of the first is kept, so "
        "expected rematch=True for other silos, or another size by fuse(..., n_components=)"
    )


class _Weights(NamedTuple):
    """A layer of one silo in terms of the fused units before it; the bias is the last column."""

    mean: FloatArray
    variance: FloatArray
    present: BoolArray  # columns that the silo has


def layer_arrays(structure: Structure, layer: int) -> tuple[FloatArray, FloatArray]:
    """Means and variances of a layer after the first, biases in the last column."""
    return structure.arrays[f"mean.{layer}"], structure.arrays[f"variance.{layer}"]


def n_layers(structure: Structure) -> int:
    """Number of layers of weights: hidden ones and the output."""
    return len(structure.info["layers"])


def live_units(mean: FloatArray, variance: FloatArray) -> BoolArray:
    """Which units carry a signal on, told from the weights (n_out, units) that they feed into.

    A unit is off if none of these weights is certain to differ from zero, and none is large.
    """
    size, deviation = np.abs(mean), np.sqrt(variance)
    large = (size > _LARGE * size.max(initial=0.0)) & (size > _LARGE * deviation)
    return np.asarray((large | (size > _SIGNAL * deviation)).any(axis=0))


def kept_units(structure: Structure, layer: int) -> IntArray:
    """The live units before a layer; of a dead network the one nearest to life."""
    mean, variance = (array[:, :-1] for array in layer_arrays(structure, layer))
    live = np.flatnonzero(live_units(mean, variance))
    nearest = (mean**2 / variance).max(axis=0).argmax(keepdims=True)
    return live if len(live) else np.asarray(nearest)


def fuse(
    silos: Sequence[Structure], labels: Sequence[IntArray], n_components: int, match: Match
) -> Structure:
    """Match and average the later hidden layers in turn, and combine the outputs.

    - Hidden layers: weights are averaged in natural parameters over the members of a fused unit
      that have the unit they come from, and scaled by the share of members that do.
    - Outputs: contributions of units *add up*, so silo ``j`` counts for output ``k`` with
      ``a_jk = n_jk / n_k``, its share of the observations of that class, where every silo has
      ``class_counts``, and with ``1 / J`` otherwise: means are ``sum_j a_jk m_jk``, and so are
      deviations, which leaves the fused network as certain as a typical silo.
    """
    _check_alike(silos)
    depth = n_layers(silos[0])
    arrays: dict[str, FloatArray] = {}
    for layer in range(1, depth - 1):
        parts = [_moved(s, layer, own, n_components) for s, own in zip(silos, labels, strict=True)]
        rows = [kept_units(silo, layer + 1) for silo in silos]
        outputs = [layer_arrays(s, depth - 1) for s in silos] if layer == depth - 2 else None
        family, naturals = _components(parts, rows, outputs)
        found, n_components = match(family, naturals, layer)
        labels = [
            _spread(own, kept, len(part.mean))
            for own, kept, part in zip(found, rows, parts, strict=True)
        ]
        arrays |= _named(layer, *_averaged(parts, labels, n_components))
    weights = class_shares(silos)
    last = depth - 1
    parts = [_moved(s, last, own, n_components) for s, own in zip(silos, labels, strict=True)]
    arrays |= _named(last, *_added(parts, weights))
    for key, weight in (("class_counts", 1.0), ("noise_variance", weights)):
        if all(key in s.arrays for s in silos):
            arrays[key] = np.sum(weight * np.array([s.arrays[key] for s in silos]), axis=0)
    return Structure(KIND, arrays, silos[0].info)


def class_shares(silos: Sequence[Structure]) -> FloatArray:
    """``a`` (silos, n_out): how much each silo counts for each output; columns add up to one."""
    n_out = len(layer_arrays(silos[0], n_layers(silos[0]) - 1)[0])
    equal = np.full((len(silos), n_out), 1.0 / len(silos))
    counts = [s.arrays["class_counts"] for s in silos if "class_counts" in s.arrays]
    if len(counts) < len(silos):
        return equal
    total = np.sum(counts, axis=0)
    return np.where(total > 0, np.asarray(counts) / np.where(total > 0, total, 1.0), equal)


def _check_alike(silos: Sequence[Structure]) -> None:
    depths = sorted({n_layers(s) - 1 for s in silos})
    if len(depths) > 1:
        raise IncompatibleSilosError(
            f"expected networks with the same number of hidden layers, got {depths}"
        )
    for key in _COMMON:
        found = {str(s.info.get(key)): None for s in silos}
        if len(found) > 1:
            raise IncompatibleSilosError(
                f"expected networks with the same {key}, got {', '.join(found)}"
            )


def _named(layer: int, mean: FloatArray, variance: FloatArray) -> dict[str, FloatArray]:
    return {f"mean.{layer}": mean, f"variance.{layer}": variance}


def _moved(silo: Structure, layer: int, labels: IntArray, size: int) -> _Weights:
    """Bring a layer's incoming weights into the order of the fused units."""
    mean, variance = layer_arrays(silo, layer)
    here = np.flatnonzero(labels >= 0)
    target = np.append(labels[here], size)
    source = np.append(here, mean.shape[1] - 1)
    out_mean, out_variance = np.zeros((len(mean), size + 1)), np.zeros((len(mean), size + 1))
    out_mean[:, target], out_variance[:, target] = mean[:, source], variance[:, source]
    present = np.zeros(size + 1, dtype=bool)
    present[target] = True
    return _Weights(out_mean, out_variance, present)


def _components(
    parts: Sequence[_Weights],
    rows: Sequence[IntArray],
    outputs: Sequence[tuple[FloatArray, FloatArray]] | None,
) -> tuple[Family, list[FloatArray]]:
    """A layer's units as components: incoming weights, bias and, in the last, outgoing weights.

    A weight from a unit that the silo lacks is zero, as certain as the unit's others are. Units of
    different silos get most of their inputs from different units, so it is by what goes out that
    they are told apart: outgoing weights are brought to the scale at which they count as much as
    incoming ones do.
    """
    means, variances = [], []
    scale = 1.0 if outputs is None else _balance(parts, rows, outputs)
    for j, (part, kept) in enumerate(zip(parts, rows, strict=True)):
        mean, variance = part.mean[kept], part.variance[kept]
        typical = np.exp(np.log(variance[:, part.present]).mean(axis=1, keepdims=True))
        variance = np.where(part.present, variance, typical)
        if outputs is not None:
            out_mean, out_variance = outputs[j]
            mean = np.hstack([mean, scale * out_mean[:, kept].T])
            variance = np.hstack([variance, scale**2 * out_variance[:, kept].T])
        means.append(mean)
        variances.append(variance)
    family = DiagonalNormal(means[0].shape[1])
    pairs = zip(means, variances, strict=True)
    return family, [family.natural(mean, variance) for mean, variance in pairs]


def _balance(
    parts: Sequence[_Weights],
    rows: Sequence[IntArray],
    outputs: Sequence[tuple[FloatArray, FloatArray]],
) -> float:
    """The factor that gives outgoing weights the sum of squares of the incoming."""
    coming = sum((part.mean[kept] ** 2).sum() for part, kept in zip(parts, rows, strict=True))
    going = sum((mean[:, kept] ** 2).sum() for (mean, _), kept in zip(outputs, rows, strict=True))
    return float(np.sqrt(coming / going)) if coming > 0 and going > 0 else 1.0


def _spread(found: IntArray, rows: IntArray, size: int) -> IntArray:
    """Labels of all units of a silo; -1 for those that were left out."""
    labels = np.full(size, -1, dtype=np.intp)
    labels[rows] = found
    return labels


def _averaged(
    parts: Sequence[_Weights], labels: Sequence[IntArray], size: int
) -> tuple[FloatArray, FloatArray]:
    """Average a hidden layer's weights over the members of each fused unit."""
    columns = parts[0].mean.shape[1]
    precision, shift = np.zeros((size, columns)), np.zeros((size, columns))
    there, members = np.zeros((size, columns)), np.zeros((size, 1))
    for part, own in zip(parts, labels, strict=True):
        rows = np.flatnonzero(own >= 0)
        certain = np.where(part.present, 1.0 / np.maximum(part.variance[rows], _ABSENT), 0.0)
        np.add.at(precision, own[rows], certain)
        np.add.at(shift, own[rows], certain * part.mean[rows])
        np.add.at(there, own[rows], part.present.astype(np.float64))
        np.add.at(members, own[rows], 1.0)
    share, known = there / members, np.where(there > 0, precision, 1.0)
    variance = np.where(there > 0, share**2 * there / known, _ABSENT)
    return share * shift / known, np.maximum(variance, _ABSENT)


def _added(parts: Sequence[_Weights], weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Add the silos' output layers up, each with its weight for each output."""
    mean = sum(a[:, None] * part.mean for a, part in zip(weights, parts, strict=True))
    deviation = sum(
        a[:, None] * np.sqrt(part.variance) for a, part in zip(weights, parts, strict=True)
    )
    return np.asarray(mean), np.maximum(np.asarray(deviation) ** 2, _ABSENT)
