"""What the adapters of Bayesian networks share: from named moments to posteriors and back."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from klfusion._utils.arrays import FloatArray
from klfusion.adapters._library import origin
from klfusion.errors import KLFusionError
from klfusion.families import DiagonalNormal
from klfusion.networks.densities import ClassDensities
from klfusion.networks.layer import Head, Layer, MeanFieldNetwork, check_activation
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure.convolution import (
    CONVOLUTIONS,
    Convolution,
    blocks,
    stacked,
)
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


def activation_of(module: Any, given: str | None) -> str:
    """The activation: the given one, else that of the activation modules, else ReLU."""
    if given is not None:
        return given
    found = [m for m in module.modules() if type(m).__module__ == "torch.nn.modules.activation"]
    kinds = {type(m).__name__ for m in found} - {"Softmax", "LogSoftmax"}
    if not kinds:
        return "relu"
    if len(kinds) > 1 or not kinds <= set(_ACTIVATION_MODULES):
        known, got = " or ".join(_ACTIVATION_MODULES), ", ".join(sorted(kinds))
        raise KLFusionError(f"expected one kind of activation, {known}, got {got}")
    return _ACTIVATION_MODULES[kinds.pop()]


class Network(NamedTuple):
    """What an adapter reads from a network."""

    moments: Mapping[str, Moments]  # of each ``layer.weight`` and ``layer.bias``, in order
    activation: str = "relu"
    class_counts: ArrayLike | None = None  # (n_out,), training observations per output
    head: Head = Head()
    densities: ClassDensities | None = None
    convolutions: Sequence[Convolution] = ()  # geometry of the first layers
    columns: list[str] | None = None  # names of the inputs


def posterior_of(network: Network, name: str, package: str, cls: str) -> Posterior:
    """The units of the first hidden layer as components, the later layers as structure."""
    moments, activation, class_counts, head, densities, convolutions, columns = network
    check_activation(activation)
    first, *later = _in_order(_layers(moments, kernels=bool(convolutions)), convolutions)
    mean, variance = _with_bias(first)
    if len(later) == 1:  # with more hidden layers, the last one has the outgoing weights
        mean = np.hstack([mean, later[0].weight_mean.T])
        variance = np.hstack([variance, later[0].weight_variance.T])
    arrays = {}
    for i, layer in enumerate(later, start=1):
        arrays[f"mean.{i}"], arrays[f"variance.{i}"] = _with_bias(layer)
    if class_counts is not None:
        arrays["class_counts"] = _checked_counts(class_counts, len(later[-1].bias_mean))
    if head.noise_variance is not None:
        arrays["noise_variance"] = np.asarray(head.noise_variance, dtype=np.float64)
    if densities is not None:
        arrays |= densities.arrays
    names = [first.name, *(layer.name for layer in later)]
    info: dict[str, Any] = {"n_in": first.shape[1], "activation": activation, "layers": names}
    if convolutions:
        info[CONVOLUTIONS] = [list(one[1:]) for one in convolutions]
    info["head"] = head.kind
    if columns is not None:
        info["features"] = list(columns)
    if head.classes is not None:
        info["classes"] = list(head.classes)
    family = DiagonalNormal(mean.shape[1])
    natural, source = family.natural(mean, variance), origin(package, cls, KIND, arrays, info)
    return Posterior(family, natural, name, None, None, *source)


def network(posterior: Posterior) -> Any:
    """The `BayesianNetwork` of a posterior; without PyTorch, a `MeanFieldNetwork` in numpy."""
    layers, activation, head = network_parts(posterior)
    assert posterior.structure is not None
    densities, columns = _densities(posterior), posterior.structure.info.get("features")
    if find_spec("torch") is None:
        return MeanFieldNetwork(layers, activation, head, densities, columns)
    from klfusion.networks.bayesian import BayesianNetwork  # noqa: PLC0415 (PyTorch is optional)

    found = BayesianNetwork(layers, activation, head)
    found.densities, found.columns = densities, columns
    return found


def _densities(posterior: Posterior) -> ClassDensities | None:
    """The class densities of the sites of a posterior, if they sent them."""
    assert posterior.structure is not None
    parts = ("site.", "inputs.")
    arrays = {k: v for k, v in posterior.structure.arrays.items() if k.startswith(parts)}
    return ClassDensities(arrays) if arrays else None


def network_parts(posterior: Posterior) -> tuple[tuple[Layer, ...], str, Head]:
    """Layers, activation and head of the network of a posterior."""
    structure = posterior.structure
    if structure is None or structure.kind != KIND:
        raise KLFusionError(f"{posterior.name!r}: expected the hidden units of a network")
    info, p = structure.info, posterior.params()
    own = int(info["n_in"]) + 1
    pairs = [(p["mean"][:, :own], p["variance"][:, :own])]
    pairs += [layer_arrays(structure, i) for i in range(1, n_layers(structure))]
    geometry = list(info.get(CONVOLUTIONS) or ())
    layers = []
    for name, (mean, variance) in zip(info["layers"], pairs, strict=True):
        known = geometry.pop(0) if geometry else None
        channels = 0 if known is None else (mean.shape[1] - 1) // known[2] ** 2
        convolution = None if known is None else Convolution(channels, *known)
        moments = mean[:, :-1], variance[:, :-1], mean[:, -1], variance[:, -1]
        layers.append(Layer(name, *moments, convolution))
    classes = tuple(info["classes"]) if info.get("classes") is not None else None
    head = Head(str(info["head"]), classes, structure.arrays.get("noise_variance"))
    return tuple(layers), str(info["activation"]), head


def _with_bias(layer: Layer) -> Moments:
    """Means and variances with the bias in the last column."""
    mean = np.column_stack([layer.weight_mean, layer.bias_mean])
    return mean, np.column_stack([layer.weight_variance, layer.bias_variance])


def _layers(moments: Mapping[str, Moments], *, kernels: bool) -> list[Layer]:
    """Layers in the order of the weights; every weight needs a bias and valid moments."""
    axes = (2, 4) if kernels else (2,)  # kernels are (filters, channels, side, side)
    for key, (mean, variance) in moments.items():
        n_axes = {"weight": axes, "bias": (1,)}.get(key.rpartition(".")[2], ())
        if mean.ndim not in n_axes or mean.shape != variance.shape:
            raise KLFusionError(
                f"{key}: expected fully connected layers with mean and variance of a weight "
                f"(n_out, n_in) and a bias (n_out,), got shapes {mean.shape} and {variance.shape}"
            )
        if not (np.isfinite(mean).all() and np.isfinite(variance).all() and (variance > 0).all()):
            raise KLFusionError(f"{key}: expected finite means and finite variances > 0")
    layers = []
    for key, (mean, variance) in moments.items():
        layer, _, kind = key.rpartition(".")
        if kind == "bias":
            continue
        bias = moments.get(f"{layer}.bias")
        if bias is None or bias[0].shape != mean.shape[:1]:
            got = "none" if bias is None else bias[0].shape
            expected = f"expected a bias of shape {mean.shape[:1]}"
            raise KLFusionError(f"layer {layer!r}: {expected}, got {got}")
        flat, spread = (values.reshape(len(values), -1) for values in (mean, variance))
        layers.append(Layer(layer, flat, spread, *bias))
    return layers


def _in_order(layers: list[Layer], convolutions: Sequence[Convolution]) -> list[Layer]:
    """Check that each layer takes the outputs of the one before."""
    if len(layers) < len(convolutions) + 2:
        expected = "expected at least two fully connected layers, one of them hidden"
        raise KLFusionError(f"{expected}, got {', '.join(one.name for one in layers) or 'none'}")
    sizes = blocks({CONVOLUTIONS: [one[1:] for one in convolutions]}, len(layers))
    for before, after, size in zip(layers, layers[1:], sizes[1:], strict=False):
        if after.shape[1] != before.shape[0] * size:
            raise KLFusionError(
                f"expected {after.name!r} to take the {before.shape[0] * size} outputs of "
                f"{before.name!r}, got {after.shape[1]}: are the layers in order?"
            )
    return layers


def convolutions_of(module: Any, image: Sequence[int] | None) -> list[Convolution]:
    """The geometry of the convolutional layers of a PyTorch module, for images of this shape."""
    filters, kernels, pools = [], [], []
    for one in module.modules():
        names = {cls.__name__ for cls in type(one).__mro__}
        if any(name.startswith("Conv") for name in names) and hasattr(one, "kernel_size"):
            sides = {*_pair(one.kernel_size)}
            plain = _pair(one.stride) == _pair(one.dilation) == (1, 1) and one.groups == 1
            if len(sides) > 1 or not plain or _pair(one.padding) != (0, 0):
                raise KLFusionError(
                    f"expected square kernels, stride 1, no padding and one group, got {one}"
                )
            filters.append(int(one.out_channels))
            kernels.append(int(sides.pop()))
            pools.append(1)
        elif "MaxPool2d" in names and pools:
            pools[-1] = int(_pair(one.kernel_size)[0])
        elif any(name.startswith(("AvgPool", "AdaptiveAvgPool")) for name in names):
            raise KLFusionError(f"expected maximum pooling, got {type(one).__name__}")
    if filters and (image is None or len(image) != 3):
        expected = "expected image=(channels, height, width) of a convolutional network's inputs"
        raise KLFusionError(f"{expected}, got {image!r}")
    return stacked(image, filters, kernels, pools) if image is not None else []


def _pair(value: Any) -> tuple[Any, Any]:
    return (value[0], value[1]) if isinstance(value, tuple | list) else (value, value)


def _checked_counts(class_counts: ArrayLike, n_out: int) -> FloatArray:
    try:
        counts = np.asarray(class_counts, dtype=np.float64)
    except (TypeError, ValueError):
        counts = np.empty(0)
    if counts.shape != (n_out,) or not (np.isfinite(counts).all() and (counts >= 0).all()):
        numbers = f"{n_out} finite numbers >= 0, one per output"
        raise KLFusionError(f"expected class_counts to be {numbers}, got {class_counts!r}")
    return counts
