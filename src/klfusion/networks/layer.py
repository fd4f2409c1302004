"""What is known of a fully connected layer, and of what the outputs mean: plain arrays."""

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
    """A fully connected layer, ``weight`` (n_out, n_in) as PyTorch has it and ``bias`` (n_out,)."""

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
        """One draw of the weight and the bias."""
        weight = rng.standard_normal(self.weight_mean.shape) * np.sqrt(self.weight_variance)
        bias = rng.standard_normal(self.bias_mean.shape) * np.sqrt(self.bias_variance)
        return self.weight_mean + weight, self.bias_mean + bias


@dataclass(frozen=True, eq=False)
class Head:
    """What the outputs mean.

    Parameters
    ----------
    kind : {"classification", "regression"}
        Outputs are logits of classes, or means of Normal targets.
    classes : tuple, optional
        Label of each output; its number where None.
    noise_variance : array of shape (n_out,), optional
        Of the targets around the regression outputs; nothing where None.
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
        """Refuse what makes sense for the other kind of outputs only."""
        if self.kind != kind:
            raise KLFusionError(f"{what} is for {kind}; this network's head is for {self.kind}")

    def labels(self, number: FloatArray | Any) -> Any:
        """The labels of output numbers."""
        return number if self.classes is None else np.asarray(self.classes)[number]


def check_inputs(x: Any, n_in: int) -> Any:
    """Inputs as a finite float array (n, n_in)."""
    if hasattr(x, "detach"):
        x = x.detach().cpu().numpy()
    x = np.asarray(x)
    if x.ndim != 2 or x.shape[1] != n_in:
        raise KLFusionError(f"expected x of shape (n, {n_in}), got {x.shape}")
    if x.dtype.kind not in "fiub" or not np.isfinite(x).all():
        raise KLFusionError("expected x to hold finite numbers")
    return x


def check_samples(n_samples: int) -> None:
    """At least one draw."""
    if n_samples < 1:
        raise KLFusionError(f"expected n_samples >= 1, got {n_samples}")


def described(name: str, layers: tuple[Layer, ...], activation: str) -> str:
    """``name(4 -> 8 -> 3, relu)``."""
    sizes = [layers[0].shape[1], *(layer.shape[0] for layer in layers)]
    return f"{name}({' -> '.join(map(str, sizes))}, {activation})"


def as_mapping(layers: tuple[Layer, ...]) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Means and variances by name, as a state dict has them: ``kf.extract`` reads it again."""
    out = {}
    for layer in layers:
        out[f"{layer.name}.weight"] = (layer.weight_mean, layer.weight_variance)
        out[f"{layer.name}.bias"] = (layer.bias_mean, layer.bias_variance)
    return out
