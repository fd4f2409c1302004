"""Networks: the later layers around the units of the first hidden layer.

A component is a unit of the first hidden layer: ``[incoming weights (n_in), bias]``, with
``outgoing weights (n_out)`` if it is the only one. Later layers are ``mean.i`` and ``variance.i``,
one row per unit, one column per unit of the layer before, the bias last. They are fused one by one.
When a layer is matched, the columns of the next are reordered; absent units get zero columns.
A filter of a convolutional layer is a unit. It has several weights to each unit of the next layer,
in adjacent columns: see `convolution`. Networks may have class statistics: see `class_densities`.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion.errors import IncompatibleSilosError, KLFusionError
from klfusion.families import DiagonalNormal, Family
from klfusion.posteriors.structure import class_densities
from klfusion.posteriors.structure.convolution import CONVOLUTIONS, blocks
from klfusion.posteriors.structure.structure import Structure, agreed_info

KIND = "layers"
# Settings that must be equal in all silos.
_COMMON = ("n_in", "activation", "head", "classes", CONVOLUTIONS)
_ABSENT_VARIANCE = 1e-12  # of a weight that no silo has; a Normal needs more than zero
_SIGNAL = 2.0  # standard deviations from zero from which a weight counts as a signal
# Many uncertain weights can add up to a signal. A weight counts as well if it exceeds this share
# of the largest weight and of its own standard deviation.
_LARGE = 0.2
_Arrays = Sequence[FloatArray]
_Moments = tuple[FloatArray, FloatArray]  # means and variances
_Matching = tuple[Sequence[IntArray], int]  # labels per silo, and the number of fused units
# From the family, the natural parameters per silo and the number of the layer.
Match = Callable[[Family, _Arrays, int], _Matching]


def match_anew(family: Family, naturals: _Arrays, layer: int) -> _Matching:
    """Refuse to match a later layer: the matching of the first layer alone is kept."""
    del family, naturals
    raise KLFusionError(
        f"hidden layer {layer + 1} of a network: only the matching of the first is kept, so "
        "expected rematch=True for other silos, or fuse(..., n_components=) for another size"
    )


class _Weights(NamedTuple):
    """A layer of one silo, one column per fused unit of the layer before, and the bias last."""

    mean: FloatArray
    variance: FloatArray
    present: BoolArray  # columns that the silo has


def layer_arrays(structure: Structure, layer: int) -> _Moments:
    """Means and variances of a layer after the first, biases in the last column."""
    return structure.arrays[f"mean.{layer}"], structure.arrays[f"variance.{layer}"]


def n_layers(structure: Structure) -> int:
    """Number of hidden layers plus one for the output."""
    return len(structure.info["layers"])


def live_units(mean: FloatArray, variance: FloatArray) -> BoolArray:
    """Which units have an outgoing weight (n_out, units) that is large or far from zero."""
    size, sd = np.abs(mean), np.sqrt(variance)
    large = (size > _LARGE * size.max(initial=0.0)) & (size > _LARGE * sd)
    return np.asarray((large | (size > _SIGNAL * sd)).any(axis=0))


def kept_units(structure: Structure, layer: int) -> IntArray:
    """The live units before a layer; if there are none, the one with the strongest signal."""
    size = blocks(structure.info, n_layers(structure))[layer]
    mean, variance = (weights_by_unit(a[:, :-1], size) for a in layer_arrays(structure, layer))
    live = np.flatnonzero(live_units(mean, variance))
    strongest = (mean**2 / variance).max(axis=0).argmax(keepdims=True)
    return live if len(live) else np.asarray(strongest)


def weights_by_unit(weights: FloatArray, size: int) -> FloatArray:
    """Weights with one column per unit, which has ``size`` weights to each unit of the layer."""
    apart = weights.reshape(len(weights), -1, size)
    return np.concatenate([apart[:, :, i] for i in range(size)])


def fuse(
    silos: Sequence[Structure], labels: Sequence[IntArray], n_components: int, match: Match
) -> Structure:
    """Match and average the later hidden layers one after another, then combine the outputs.

    Contributions of units *add up*. Silo ``j`` has weight ``a_jk = n_jk / n_k`` for output ``k``,
    its share of the observations of that class. Means are ``sum_j a_jk m_jk``. Standard deviations
    add up in the same way, so that the fused network is as certain as a typical silo.
    """
    depths, info = [n_layers(s) for s in silos], agreed_info(silos, *_COMMON)
    last = depths[0] - 1
    if len(set(depths)) > 1:
        raise IncompatibleSilosError(f"expected silos with the same number of layers, got {depths}")
    arrays: dict[str, FloatArray] = {}
    for layer in range(1, last):
        parts = _reordered(silos, layer, labels, n_components)
        rows = [kept_units(silo, layer + 1) for silo in silos]
        outputs = [layer_arrays(s, last) for s in silos] if layer == last - 1 else None
        family, naturals = _components(parts, rows, outputs)
        found, n_components = match(family, naturals, layer)
        labels = [np.full(len(part.mean), -1, dtype=np.intp) for part in parts]
        for all_units, kept, own in zip(labels, rows, found, strict=True):
            all_units[kept] = own
        averaged = _averaged(parts, labels, n_components)
        arrays[f"mean.{layer}"], arrays[f"variance.{layer}"] = averaged
    weights, parts = class_shares(silos), _reordered(silos, last, labels, n_components)
    pairs = list(zip(weights, parts, strict=True))
    sd = sum(a[:, None] * np.sqrt(part.variance) for a, part in pairs)
    arrays[f"mean.{last}"] = np.asarray(sum(a[:, None] * part.mean for a, part in pairs))
    arrays[f"variance.{last}"] = np.maximum(np.asarray(sd) ** 2, _ABSENT_VARIANCE)
    for key, weight in (("class_counts", 1.0), ("noise_variance", weights)):
        if all(key in s.arrays for s in silos):
            arrays[key] = np.sum(weight * np.array([s.arrays[key] for s in silos]), axis=0)
    arrays |= class_densities.fuse([s.arrays for s in silos])
    return Structure(KIND, arrays, info)


def class_shares(silos: Sequence[Structure]) -> FloatArray:
    """``a`` (silos, n_out): weights per output that sum to one, equal without class counts."""
    n_out = len(layer_arrays(silos[0], n_layers(silos[0]) - 1)[0])
    equal = np.full((len(silos), n_out), 1.0 / len(silos))
    counts = [s.arrays["class_counts"] for s in silos if "class_counts" in s.arrays]
    if len(counts) < len(silos):
        return equal
    total = np.sum(counts, axis=0)
    return np.where(total > 0, np.asarray(counts) / np.where(total > 0, total, 1.0), equal)


def _reordered(
    silos: Sequence[Structure], layer: int, labels: Sequence[IntArray], size: int
) -> list[_Weights]:
    """A layer of each silo, its columns in the order of the fused units before it."""
    out = []
    for silo, own in zip(silos, labels, strict=True):
        mean, variance = layer_arrays(silo, layer)
        kept, block = np.flatnonzero(own >= 0), blocks(silo.info, n_layers(silo))[layer]
        each, last = np.arange(block), block * size
        target, source = ((u[:, None] * block + each).ravel() for u in (own[kept], kept))
        target, source = np.append(target, last), np.append(source, mean.shape[1] - 1)
        new_mean, new_variance = (np.zeros((len(mean), last + 1)) for _ in range(2))
        new_mean[:, target], new_variance[:, target] = mean[:, source], variance[:, source]
        present = np.zeros(last + 1, dtype=bool)
        present[target] = True
        out.append(_Weights(new_mean, new_variance, present))
    return out


def _components(
    parts: Sequence[_Weights], rows: Sequence[IntArray], outputs: Sequence[_Moments] | None
) -> tuple[Family, list[FloatArray]]:
    """A layer's units as components: incoming weights, bias and, in the last, outgoing weights.

    A weight from a unit that the silo lacks is zero, with the geometric mean of the unit's other
    variances. Units of different silos have few inputs in common, so outgoing weights must
    distinguish them. They are scaled to the sum of squares of the incoming weights.
    """
    found, scale = [], 1.0
    if outputs is not None:
        incoming = sum((part.mean[kept] ** 2).sum() for part, kept in zip(parts, rows, strict=True))
        pairs = zip(outputs, rows, strict=True)
        outgoing = sum((mean[:, kept] ** 2).sum() for (mean, _), kept in pairs)
        if incoming > 0 and outgoing > 0:
            scale = float(np.sqrt(incoming / outgoing))
    for j, (part, kept) in enumerate(zip(parts, rows, strict=True)):
        mean, variance = part.mean[kept], part.variance[kept]
        typical = np.exp(np.log(variance[:, part.present]).mean(axis=1, keepdims=True))
        variance = np.where(part.present, variance, typical)
        if outputs is not None:
            out_mean, out_variance = outputs[j]
            mean = np.hstack([mean, scale * out_mean[:, kept].T])
            variance = np.hstack([variance, scale**2 * out_variance[:, kept].T])
        found.append((mean, variance))
    family = DiagonalNormal(found[0][0].shape[1])
    return family, [family.natural(mean, variance) for mean, variance in found]


def _averaged(parts: Sequence[_Weights], labels: Sequence[IntArray], size: int) -> _Moments:
    """Average each weight over the members of a fused unit that have its input.

    Averages are in natural parameters, scaled by the share of members that have the input.
    """
    columns = parts[0].mean.shape[1]
    precision, shift = np.zeros((size, columns)), np.zeros((size, columns))
    with_input, members = np.zeros((size, columns)), np.zeros((size, 1))
    for part, own in zip(parts, labels, strict=True):
        rows = np.flatnonzero(own >= 0)
        variance = np.maximum(part.variance[rows], _ABSENT_VARIANCE)
        own_precision = np.where(part.present, 1.0 / variance, 0.0)
        np.add.at(precision, own[rows], own_precision)
        np.add.at(shift, own[rows], own_precision * part.mean[rows])
        np.add.at(with_input, own[rows], part.present.astype(np.float64))
        np.add.at(members, own[rows], 1.0)
    share, divisor = with_input / members, np.where(with_input > 0, precision, 1.0)
    variance = np.where(with_input > 0, share**2 * with_input / divisor, _ABSENT_VARIANCE)
    return share * shift / divisor, np.maximum(variance, _ABSENT_VARIANCE)
