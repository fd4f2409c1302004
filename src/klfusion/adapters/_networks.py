"""What the adapters of Bayesian networks share: named means and variances to units and back."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from klfusion._typing import FloatArray
from klfusion.adapters.mean_field_network import ACTIVATIONS, Layer, MeanFieldNetwork
from klfusion.errors import KLFusionError
from klfusion.families import DiagonalNormal
from klfusion.posterior import Posterior
from klfusion.provenance import provenance
from klfusion.structure import Structure
from klfusion.structure.layers import KIND, outgoing

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
) -> Posterior:
    """The hidden units of a network as components.

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
        Training observations of each class.
    """
    if activation not in ACTIVATIONS:
        raise KLFusionError(
            f"silo {name!r}: expected activation to be one of {', '.join(ACTIVATIONS)}, "
            f"got {activation!r}"
        )
    hidden, output = _two_layers(_layers(moments, name), name)
    n_in, n_out = hidden.weight_mean.shape[1], len(output.bias_mean)
    family = DiagonalNormal(n_in + 1 + n_out)
    natural = family.natural(
        np.column_stack([hidden.weight_mean, hidden.bias_mean, output.weight_mean.T]),
        np.column_stack([hidden.weight_variance, hidden.bias_variance, output.weight_variance.T]),
    )
    arrays = {
        "bias_mean": output.bias_mean,
        "bias_variance": output.bias_variance,
        "share": np.ones((len(natural), n_out)),
    }
    if class_counts is not None:
        arrays["class_counts"] = _checked_counts(class_counts, n_out, name)
    info = {
        "package": source[0],
        "class": source[1],
        "n_in": n_in,
        "n_out": n_out,
        "activation": activation,
        "layers": [hidden.name, output.name],
    }
    structure = Structure(KIND, arrays, info)
    return Posterior(
        family, natural, name=name, structure=structure, provenance=library_facts(source[0])
    )


def network(posterior: Posterior) -> MeanFieldNetwork:
    """The network around the units, fused or not."""
    structure = posterior.structure
    if structure is None or structure.kind != KIND:
        raise KLFusionError(f"{posterior.name!r}: expected the hidden units of a network")
    n_in, p = int(structure.info["n_in"]), posterior.params()
    mean, variance = p["mean"], p["variance"]
    out_mean, out_variance = outgoing(
        mean[:, n_in + 1 :], variance[:, n_in + 1 :], structure.arrays["share"]
    )
    first, last = structure.info["layers"]
    hidden = Layer(first, mean[:, :n_in], variance[:, :n_in], mean[:, n_in], variance[:, n_in])
    output = Layer(
        last, out_mean.T, out_variance.T,
        structure.arrays["bias_mean"], structure.arrays["bias_variance"],
    )  # fmt: skip
    return MeanFieldNetwork((hidden, output), structure.info["activation"])


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


def _two_layers(layers: list[Layer], name: str) -> tuple[Layer, Layer]:
    names = ", ".join(layer.name for layer in layers) or "none"
    if len(layers) != 2:
        raise KLFusionError(
            f"silo {name!r}: one hidden layer is supported so far, so expected two fully "
            f"connected layers, got {len(layers)} ({names})"
        )
    hidden, output = layers
    if output.weight_mean.shape[1] != len(hidden.bias_mean):
        raise KLFusionError(
            f"silo {name!r}: expected {output.name!r} to take the {len(hidden.bias_mean)} outputs "
            f"of {hidden.name!r}, got {output.weight_mean.shape[1]}: are the layers in order?"
        )
    return hidden, output


def _checked_counts(class_counts: ArrayLike, n_out: int, name: str) -> FloatArray:
    counts = np.asarray(class_counts, dtype=np.float64)
    if counts.shape != (n_out,) or not (np.isfinite(counts).all() and (counts >= 0).all()):
        raise KLFusionError(
            f"silo {name!r}: expected class_counts to be {n_out} finite numbers >= 0, "
            f"one for each output, got {counts}"
        )
    return counts
