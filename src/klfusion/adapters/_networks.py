"""What the adapters of Bayesian networks share: named means and variances to units and back."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from klfusion._utils.arrays import FloatArray
from klfusion._utils.provenance import provenance
from klfusion.errors import KLFusionError
from klfusion.families import DiagonalNormal
from klfusion.networks.layer import ACTIVATIONS, Head, Layer
from klfusion.networks.mean_field import MeanFieldNetwork
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import Structure
from klfusion.posteriors.structure.network import KIND, layer_arrays, n_layers

Moments = tuple[FloatArray, FloatArray]
# Modules of PyTorch that come between layers, by class name.
_ACTIVATION_MODULES = {"ReLU": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "SiLU": "silu"}


def numbers(values: Any) -> FloatArray:
    """A float64 array of an array or a tensor of whatever library; nothing is imported."""
    if hasattr(values, "detach"):  # a torch tensor, perhaps on a GPU, perhaps in half precision
        values = values.detach().cpu().double().numpy()
    return np.array(values, dtype=np.float64)


def library_facts(package: str) -> dict[str, Any]:
    """Provenance with the version of a library, which is loaded where its model is at hand."""
    version = getattr(sys.modules.get(package), "__version__", None)
    return provenance() if version is None else provenance(**{package: str(version)})


def activation_of(module: Any, given: str | None, name: str) -> str:
    """The activation: as given, or the one kind of activation module inside; else ReLU.

    An activation that is called in ``forward`` as a function cannot be seen.
    """
    if given is not None:
        return given
    inside = [m for m in module.modules() if type(m).__module__ == "torch.nn.modules.activation"]
    kinds = {type(m).__name__ for m in inside} - {"Softmax", "LogSoftmax"}
    if not kinds:
        return "relu"
    if len(kinds) > 1 or not kinds <= set(_ACTIVATION_MODULES):
        raise KLFusionError(
            f"silo {name!r}: expected one kind of activation, {' or '.join(_ACTIVATION_MODULES)}, "
            f"got {', '.join(sorted(kinds))}"
        )
    return _ACTIVATION_MODULES[kinds.pop()]


def network_posterior(
    moments: Mapping[str, Moments],
    name: str,
    source: tuple[str, str],
    activation: str = "relu",
    class_counts: ArrayLike | None = None,
    head: Head | None = None,
) -> Posterior:
    """The units of a network's first hidden layer as components, the later layers around them.

    Parameters
    ----------
    moments : mapping of ``layer.weight`` and ``layer.bias`` to (mean, variance)
        In the order of the layers.
    name : str
        The silo's name.
    source : (package, class)
        Whose adapter rebuilds the network.
    activation : str
    class_counts : array of shape (n_out,), optional
        Training observations of each class; of each output for regression.
    head : Head, optional
        What the outputs mean; default: logits of classes.
    """
    if activation not in ACTIVATIONS:
        raise KLFusionError(
            f"silo {name!r}: expected activation to be one of {', '.join(ACTIVATIONS)}, "
            f"got {activation!r}"
        )
    head = head or Head()
    first, *later = _in_order(_layers(moments, name), name)
    n_out = len(later[-1].bias_mean)
    mean, variance = _with_bias(first)
    if len(later) == 1:  # the outgoing weights of later units are matched with them
        mean = np.hstack([mean, later[0].weight_mean.T])
        variance = np.hstack([variance, later[0].weight_variance.T])
    arrays = {}
    for i, layer in enumerate(later, start=1):
        arrays[f"mean.{i}"], arrays[f"variance.{i}"] = _with_bias(layer)
    if class_counts is not None:
        arrays["class_counts"] = _checked_counts(class_counts, n_out, name)
    if head.noise_variance is not None:
        arrays["noise_variance"] = np.asarray(head.noise_variance, dtype=np.float64)
    info: dict[str, Any] = {
        "package": source[0],
        "class": source[1],
        "n_in": first.shape[1],
        "activation": activation,
        "layers": [first.name, *(layer.name for layer in later)],
        "head": head.kind,
    }
    if head.classes is not None:
        info["classes"] = list(head.classes)
    family = DiagonalNormal(mean.shape[1])
    return Posterior(
        family,
        family.natural(mean, variance),
        name=name,
        structure=Structure(KIND, arrays, info),
        provenance=library_facts(source[0]),
    )


def network(posterior: Posterior) -> Any:
    """The network around the units, fused or not.

    A `klfusion.networks.bayesian.BayesianNetwork`, which is a PyTorch module, or where PyTorch is
    absent a `MeanFieldNetwork`, which predicts with numpy.
    """
    layers, activation, head = network_parts(posterior)
    if find_spec("torch") is None:
        return MeanFieldNetwork(layers, activation, head)
    from klfusion.networks.bayesian import BayesianNetwork  # noqa: PLC0415 (PyTorch is optional)

    return BayesianNetwork(layers, activation, head)


def network_parts(posterior: Posterior) -> tuple[tuple[Layer, ...], str, Head]:
    """Layers, activation and head of the network around the units."""
    structure = posterior.structure
    if structure is None or structure.kind != KIND:
        raise KLFusionError(f"{posterior.name!r}: expected the hidden units of a network")
    info, p = structure.info, posterior.params()
    own = int(info["n_in"]) + 1
    pairs = [(p["mean"][:, :own], p["variance"][:, :own])]
    pairs += [layer_arrays(structure, i) for i in range(1, n_layers(structure))]
    layers = [
        Layer(name, mean[:, :-1], variance[:, :-1], mean[:, -1], variance[:, -1])
        for name, (mean, variance) in zip(info["layers"], pairs, strict=True)
    ]
    classes = info.get("classes")
    head = Head(
        str(info["head"]),
        None if classes is None else tuple(classes),
        structure.arrays.get("noise_variance"),
    )
    return tuple(layers), str(info["activation"]), head


def _with_bias(layer: Layer) -> Moments:
    """Means and variances with the bias in the last column."""
    return (
        np.column_stack([layer.weight_mean, layer.bias_mean]),
        np.column_stack([layer.weight_variance, layer.bias_variance]),
    )


def _layers(moments: Mapping[str, Moments], name: str) -> list[Layer]:
    """Pair weights with biases, in the order of the weights, and check every number."""
    for key, (mean, variance) in moments.items():
        kind = key.rpartition(".")[2]
        expected = {"weight": 2, "bias": 1}.get(kind)
        if mean.ndim != expected or mean.shape != variance.shape:
            raise KLFusionError(
                f"silo {name!r}, {key}: expected fully connected layers, each with a mean and a "
                f"variance of a weight (n_out, n_in) and a bias (n_out,), "
                f"got shapes {mean.shape} and {variance.shape}"
            )
        if not (np.isfinite(mean).all() and np.isfinite(variance).all() and (variance > 0).all()):
            raise KLFusionError(
                f"silo {name!r}, {key}: expected finite means and finite variances > 0"
            )
    layers = []
    for key, (mean, variance) in moments.items():
        layer, _, kind = key.rpartition(".")
        if kind == "bias":
            continue
        bias = moments.get(f"{layer}.bias")
        if bias is None or bias[0].shape != mean.shape[:1]:
            raise KLFusionError(
                f"silo {name!r}, layer {layer!r}: expected a bias of shape {mean.shape[:1]}, "
                f"got {'none' if bias is None else bias[0].shape}"
            )
        layers.append(Layer(layer, mean, variance, *bias))
    return layers


def _in_order(layers: list[Layer], name: str) -> list[Layer]:
    """The layers, each of which takes the outputs of the one before."""
    if len(layers) < 2:
        raise KLFusionError(
            f"silo {name!r}: expected at least two fully connected layers, one of them hidden, "
            f"got {', '.join(layer.name for layer in layers) or 'none'}"
        )
    for before, after in pairwise(layers):
        if after.shape[1] != before.shape[0]:
            raise KLFusionError(
                f"silo {name!r}: expected {after.name!r} to take the {before.shape[0]} outputs "
                f"of {before.name!r}, got {after.shape[1]}: are the layers in order?"
            )
    return layers


def _checked_counts(class_counts: ArrayLike, n_out: int, name: str) -> FloatArray:
    counts = np.asarray(class_counts, dtype=np.float64)
    if counts.shape != (n_out,) or not (np.isfinite(counts).all() and (counts >= 0).all()):
        raise KLFusionError(
            f"silo {name!r}: expected class_counts to be {n_out} finite numbers >= 0, "
            f"one for each output, got {counts}"
        )
    return counts
