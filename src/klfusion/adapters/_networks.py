"""What the adapters of Bayesian networks share: from named moments to posteriors and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from klfusion._utils.arrays import FloatArray
from klfusion.adapters._library import library_posterior
from klfusion.errors import KLFusionError
from klfusion.families import DiagonalNormal
from klfusion.networks.layer import Head, Layer, check_activation
from klfusion.networks.mean_field import MeanFieldNetwork
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import Structure
from klfusion.posteriors.structure.network import KIND, layer_arrays, n_layers

Moments = tuple[FloatArray, FloatArray]
# Activation modules of PyTorch, by class name.
_ACTIVATION_MODULES = {"ReLU": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "SiLU": "silu"}


def numbers(values: Any) -> FloatArray:
    """A float64 array from an array or a tensor of any library, without an import."""
    if hasattr(values, "detach"):  # a torch tensor, possibly on a GPU or in half precision
        values = values.detach().cpu().double().numpy()
    return np.array(values, dtype=np.float64)


def parts_like(flat: Any, parameters: Sequence[Any]) -> list[FloatArray]:
    """Split a flat vector into arrays with the shapes of tensors."""
    ends = np.cumsum([p.numel() for p in parameters])[:-1]
    pairs = zip(np.split(numbers(flat), ends), parameters, strict=True)
    return [part.reshape(tuple(p.shape)) for part, p in pairs]


def activation_of(module: Any, given: str | None, name: str) -> str:
    """The activation: the given one, else that of the activation modules, else ReLU.

    An activation that ``forward`` calls as a function is not detected.
    """
    if given is not None:
        return given
    found = [m for m in module.modules() if type(m).__module__ == "torch.nn.modules.activation"]
    kinds = {type(m).__name__ for m in found} - {"Softmax", "LogSoftmax"}
    if not kinds:
        return "relu"
    if len(kinds) > 1 or not kinds <= set(_ACTIVATION_MODULES):
        raise KLFusionError(
            f"silo {name!r}: expected one kind of activation, {' or '.join(_ACTIVATION_MODULES)}, "
            f"got {', '.join(sorted(kinds))}"
        )
    return _ACTIVATION_MODULES[kinds.pop()]


def posterior_of(
    moments: Mapping[str, Moments],
    name: str,
    source: tuple[str, str],
    activation: str = "relu",
    class_counts: ArrayLike | None = None,
    head: Head | None = None,
) -> Posterior:
    """The units of the first hidden layer as components, the later layers as structure.

    ``moments`` maps ``layer.weight`` and ``layer.bias`` to (mean, variance), in the order of the
    layers. ``class_counts`` (n_out,) are the training observations per output.
    """
    check_activation(activation, f"silo {name!r}: ")
    head = head or Head()
    first, *later = _in_order(_layers(moments, name), name)
    n_out = len(later[-1].bias_mean)
    mean, variance = _with_bias(first)
    if len(later) == 1:  # with more hidden layers, the last one has the outgoing weights
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
        "n_in": first.shape[1],
        "activation": activation,
        "layers": [first.name, *(layer.name for layer in later)],
        "head": head.kind,
    }
    if head.classes is not None:
        info["classes"] = list(head.classes)
    family = DiagonalNormal(mean.shape[1])
    structure = Structure(KIND, arrays, info)
    return library_posterior(source, name, family, family.natural(mean, variance), structure)


def network(posterior: Posterior) -> Any:
    """The network of a posterior, of a silo or fused.

    It is a `klfusion.networks.bayesian.BayesianNetwork`, a PyTorch module. Without PyTorch it is
    a `MeanFieldNetwork`, which predicts with numpy.
    """
    layers, activation, head = network_parts(posterior)
    if find_spec("torch") is None:
        return MeanFieldNetwork(layers, activation, head)
    from klfusion.networks.bayesian import BayesianNetwork  # noqa: PLC0415 (PyTorch is optional)

    return BayesianNetwork(layers, activation, head)


def network_parts(posterior: Posterior) -> tuple[tuple[Layer, ...], str, Head]:
    """Layers, activation and head of the network of a posterior."""
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
    """Layers in the order of the weights; every weight needs a bias and valid moments."""
    for key, (mean, variance) in moments.items():
        n_axes = {"weight": 2, "bias": 1}.get(key.rpartition(".")[2])
        if mean.ndim != n_axes or mean.shape != variance.shape:
            raise KLFusionError(
                f"silo {name!r}, {key}: expected fully connected layers with mean and variance of "
                "a weight (n_out, n_in) and a bias (n_out,), "
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
    """Check that each layer takes the outputs of the one before."""
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
            f"one per output, got {counts}"
        )
    return counts
