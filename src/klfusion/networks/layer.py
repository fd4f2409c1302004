"""Layers, heads and input checks of networks, without PyTorch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion.errors import KLFusionError

Activation = Literal["relu", "tanh", "sigmoid", "silu"]
HeadKind = Literal["classification", "regression"]
ACTIVATIONS: tuple[str, ...] = get_args(Activation)


@dataclass(frozen=True, eq=False)
class Layer:
    """Means and variances of the weights of a fully connected layer.

    Weights are (n_out, n_in), the layout of PyTorch; biases are (n_out,).

    Examples
    --------
    >>> import numpy as np
    >>> from klfusion.networks.layer import Layer
    >>> Layer("fc1", np.ones((3, 2)), np.ones((3, 2)), np.zeros(3), np.ones(3)).shape
    (3, 2)
    """

    name: str
    weight_mean: FloatArray
    weight_variance: FloatArray
    bias_mean: FloatArray
    bias_variance: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        """``(n_out, n_in)``."""
        n_out, n_in = self.weight_mean.shape
        return n_out, n_in

    def sample(self, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """One sample of the weight and the bias."""
        weight = rng.standard_normal(self.weight_mean.shape) * np.sqrt(self.weight_variance)
        bias = rng.standard_normal(self.bias_mean.shape) * np.sqrt(self.bias_variance)
        return self.weight_mean + weight, self.bias_mean + bias

    def scaled(self, scale: FloatArray) -> Layer:
        """The layer with outputs multiplied by ``scale`` (n_out,)."""
        return Layer(
            self.name,
            scale[:, None] * self.weight_mean,
            scale[:, None] ** 2 * self.weight_variance,
            scale * self.bias_mean,
            scale**2 * self.bias_variance,
        )


@dataclass(frozen=True, eq=False)
class Head:
    """The meaning of the outputs.

    Parameters
    ----------
    kind : {"classification", "regression"}
        Outputs are logits of classes, or means of Normal targets.
    classes : tuple, optional
        Label of each output; default: its number.
    noise_variance : array of shape (n_out,), optional
        Variance of the targets around the regression outputs; default: zero.

    Examples
    --------
    >>> import numpy as np
    >>> from klfusion.networks.layer import Head
    >>> Head(classes=("cat", "dog")).labels(np.array([1, 0]))
    array(['dog', 'cat'], dtype='<U3')
    """

    kind: str = "classification"
    classes: tuple[Any, ...] | None = None
    noise_variance: FloatArray | None = field(default=None)

    def __post_init__(self) -> None:
        if self.kind not in get_args(HeadKind):
            raise KLFusionError(
                f"expected head to be one of {', '.join(get_args(HeadKind))}, got {self.kind!r}"
            )

    def require(self, kind: HeadKind, what: str) -> None:
        """Refuse ``what``, which is a method for one kind of head."""
        if self.kind != kind:
            raise KLFusionError(f"{what} is for {kind}; this network's head is for {self.kind}")

    def labels(self, number: FloatArray | Any) -> Any:
        """The labels of output numbers."""
        return number if self.classes is None else np.asarray(self.classes)[number]


def check_inputs(x: Any, n_in: int | None = None, name: str = "x") -> Any:
    """Finite numbers (n, n_in) as an array; for a fit ``n_in`` is None and ``n`` at least one."""
    if hasattr(x, "detach"):
        x = x.detach().cpu().numpy()
    x = np.asarray(x)
    if x.ndim != 2 or (len(x) == 0 if n_in is None else x.shape[1] != n_in):
        raise KLFusionError(f"expected {name} of shape (n, {n_in or 'd'}), got {x.shape}")
    if x.dtype.kind not in "fiub" or not np.isfinite(x).all():
        raise KLFusionError(f"expected {name} to hold finite numbers")
    return x


def check_activation(activation: str, where: str = "") -> None:
    """Refuse an unknown activation."""
    if activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise KLFusionError(f"{where}expected activation to be one of {known}, got {activation!r}")


def check_samples(n_samples: int) -> None:
    """Refuse fewer than one sample."""
    if n_samples < 1:
        raise KLFusionError(f"expected n_samples >= 1, got {n_samples}")


class LayeredNetwork:
    """What a network in PyTorch and one in numpy share."""

    layers: tuple[Layer, ...]
    activation: str

    def mapping(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        """Means and variances by the names of a state dict; ``kf.extract`` reads it."""
        out = {}
        for layer in self.layers:
            out[f"{layer.name}.weight"] = (layer.weight_mean, layer.weight_variance)
            out[f"{layer.name}.bias"] = (layer.bias_mean, layer.bias_variance)
        return out

    def __repr__(self) -> str:
        sizes = [self.layers[0].shape[1], *(layer.shape[0] for layer in self.layers)]
        return f"{type(self).__name__}({' -> '.join(map(str, sizes))}, {self.activation})"
