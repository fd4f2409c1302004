"""Networks without PyTorch: layers, heads, checks of inputs, and predictions with numpy alone."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

import numpy as np
from scipy.special import expit, ndtr, softmax

from klfusion._utils.arrays import FloatArray
from klfusion._utils.checks import check_columns
from klfusion.errors import KLFusionError
from klfusion.networks.densities import ClassDensities
from klfusion.posteriors.structure.convolution import Convolution

Activation = Literal["relu", "tanh", "sigmoid", "silu"]
HeadKind = Literal["classification", "regression"]
ACTIVATIONS: tuple[str, ...] = get_args(Activation)
NODES = 24  # of Gauss-Hermite quadrature, for activations without a closed form
_BATCH = 500  # rows per batch of features; patches of images take much memory


@dataclass(frozen=True, eq=False)
class Layer:
    """Means and variances of weights (n_out, n_in), as in PyTorch, and of biases (n_out,)."""

    name: str
    weight_mean: FloatArray
    weight_variance: FloatArray
    bias_mean: FloatArray
    bias_variance: FloatArray
    convolution: Convolution | None = None  # weights are then (filters, channels * kernel ** 2)

    @property
    def n_inputs(self) -> int:
        """Numbers that enter the layer."""
        return self.shape[1] if self.convolution is None else self.convolution.n_inputs

    @property
    def shape(self) -> tuple[int, int]:
        """``(n_out, n_in)``."""
        return self.weight_mean.shape[0], self.weight_mean.shape[1]

    def moments(self, mean: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means and variances of the outputs for independent inputs with these, (n, n_in)."""
        spread = self.apply(mean**2 + variance, self.weight_variance, self.bias_variance)
        spread += self.apply(variance, self.weight_mean**2, np.zeros_like(self.bias_mean))
        return self.apply(mean, self.weight_mean, self.bias_mean), spread

    def sample(self, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """One sample of the weight and the bias."""
        weight = rng.standard_normal(self.weight_mean.shape) * np.sqrt(self.weight_variance)
        bias = rng.standard_normal(self.bias_mean.shape) * np.sqrt(self.bias_variance)
        return self.weight_mean + weight, self.bias_mean + bias

    def scaled(self, scale: FloatArray) -> Self:
        """The layer with outputs multiplied by ``scale`` (n_out,)."""
        column = scale[:, None]
        weights = column * self.weight_mean, column**2 * self.weight_variance
        biases = scale * self.bias_mean, scale**2 * self.bias_variance
        return type(self)(self.name, *weights, *biases, self.convolution)

    def apply(self, x: FloatArray, weight: FloatArray, bias: FloatArray) -> FloatArray:
        """Outputs (n, n_out), or (n, filters, height, width), for rows or images."""
        if self.convolution is None:
            return np.asarray(x.reshape(len(x), -1) @ weight.T + bias)
        channels, height, width, kernel, _ = self.convolution
        images = x.reshape(len(x), channels, height, width)
        windows = np.lib.stride_tricks.sliding_window_view(images, (kernel, kernel), axis=(2, 3))
        rows, columns = windows.shape[2:4]
        patches = windows.transpose(0, 2, 3, 1, 4, 5).reshape(len(x), rows, columns, -1)
        return np.moveaxis(patches @ weight.T + bias, -1, 1)

    def pooled(self, mean: FloatArray, *variance: FloatArray) -> tuple[FloatArray, ...]:
        """The largest of each square of activations, and the variances at these places."""
        if self.convolution is None or self.convolution.pool == 1:
            return mean, *variance
        pool, (height, width) = self.convolution.pool, self.convolution.size

        def squares(x: FloatArray) -> FloatArray:
            cut = x[:, :, : height * pool, : width * pool]
            parts = cut.reshape(*x.shape[:2], height, pool, width, pool)
            return parts.swapaxes(3, 4).reshape(*x.shape[:2], height, width, pool * pool)

        place = squares(mean).argmax(axis=-1)[..., None]
        every = (np.take_along_axis(squares(x), place, axis=-1) for x in (mean, *variance))
        return tuple(x[..., 0] for x in every)


@dataclass(frozen=True, eq=False)
class Head:
    """The meaning of the outputs: logits of classes, or means of Normal targets."""

    kind: str = "classification"  # or "regression"
    classes: tuple[Any, ...] | None = None  # label of each output; None: its number
    noise_variance: FloatArray | None = None  # (n_out,), of regression targets; None: zero

    def __post_init__(self) -> None:
        kinds = get_args(HeadKind)
        if self.kind not in kinds:
            raise KLFusionError(f"expected head to be one of {', '.join(kinds)}, got {self.kind!r}")

    def require(self, kind: HeadKind, what: str) -> None:
        """Refuse ``what``, which is a method for one kind of head."""
        if self.kind != kind:
            raise KLFusionError(f"{what} is for {kind}; this network's head is for {self.kind}")

    def labels(self, number: FloatArray | Any) -> Any:
        """The labels of output numbers."""
        return number if self.classes is None else np.asarray(self.classes)[number]


def check_inputs(
    x: Any, n_in: int | None = None, name: str = "x", columns: list[str] | None = None
) -> Any:
    """Finite numbers (n, n_in) as an array; for a fit ``n_in`` is None and ``n`` at least one."""
    check_columns(columns, x)
    if hasattr(x, "detach"):
        x = x.detach().cpu().numpy()
    x = np.asarray(x)
    if x.ndim != 2 or (len(x) == 0 if n_in is None else x.shape[1] != n_in):
        raise KLFusionError(f"expected {name} of shape (n, {n_in or 'd'}), got {x.shape}")
    if x.dtype.kind not in "fiub" or not np.isfinite(x).all():
        raise KLFusionError(f"expected {name} to hold finite numbers")
    return x


def check_activation(activation: str) -> None:
    """Refuse an unknown activation."""
    if activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise KLFusionError(f"expected activation to be one of {known}, got {activation!r}")


def check_samples(n_samples: int) -> None:
    """Refuse fewer than one sample."""
    if n_samples < 1:
        raise KLFusionError(f"expected n_samples >= 1, got {n_samples}")


class LayeredNetwork:
    """What a network in PyTorch and one in numpy share."""

    layers: tuple[Layer, ...]
    activation: str
    columns: list[str] | None = None  # names of the inputs, if they came from a data frame

    def mapping(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        """Means and variances by the names of a state dict; ``kf.extract`` reads it."""
        out = {}
        for layer in self.layers:
            out[f"{layer.name}.weight"] = (layer.weight_mean, layer.weight_variance)
            out[f"{layer.name}.bias"] = (layer.bias_mean, layer.bias_variance)
        return out

    def features(self, x: Any) -> FloatArray:
        """Means and standard deviations (n, 2 h) of the units of the last hidden layer.

        Weights vary as in the posterior. Sites that have the same fused network agree on them: see
        `klfusion.head_statistics`.
        """
        given = check_inputs(x, self.layers[0].n_inputs, columns=self.columns)
        found = []
        for low in range(0, max(len(given), 1), _BATCH):
            mean = given[low : low + _BATCH].astype(np.float64)
            variance = np.zeros_like(mean)
            for layer in self.layers[:-1]:
                moments = _activated(*layer.moments(mean, variance), self.activation)
                mean, variance = layer.pooled(*moments)
            found.append(np.hstack([mean, np.sqrt(variance)]))
        return np.concatenate(found)

    def __repr__(self) -> str:
        sizes = [self.layers[0].n_inputs, *(layer.shape[0] for layer in self.layers)]
        return f"{type(self).__name__}({' -> '.join(map(str, sizes))}, {self.activation})"


_ACTIVATIONS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "relu": lambda h: np.maximum(h, 0.0),
    "tanh": np.tanh,
    "sigmoid": lambda h: np.asarray(expit(h)),
    "silu": lambda h: np.asarray(h * expit(h)),
}


def _activated(
    mean: FloatArray, variance: FloatArray, activation: str
) -> tuple[FloatArray, FloatArray]:
    """Means and variances of the activation of Normals."""
    sd = np.sqrt(np.maximum(variance, np.finfo(np.float64).tiny))
    if activation == "relu":
        above, density = ndtr(mean / sd), np.exp(-0.5 * (mean / sd) ** 2) / np.sqrt(2.0 * np.pi)
        first = mean * above + sd * density
        second = (mean**2 + variance) * above + mean * sd * density
    else:
        nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
        first, second = np.zeros_like(mean), np.zeros_like(mean)
        for node, weight in zip(nodes, weights / weights.sum(), strict=True):
            value = _ACTIVATIONS[activation](mean + node * sd)
            first += weight * value
            second += weight * value**2
    return first, np.maximum(second - first**2, 0.0)


@dataclass(frozen=True, eq=False, repr=False)
class MeanFieldNetwork(LayeredNetwork):
    """The replacement of `klfusion.networks.bayesian.BayesianNetwork` without PyTorch."""

    layers: tuple[Layer, ...]
    activation: str
    head: Head = field(default_factory=Head)
    densities: ClassDensities | None = None
    columns: list[str] | None = None

    def outputs(self, x: Any, n_samples: int = 100, random_state: int = 0) -> FloatArray:
        """Samples of the outputs (logits, or regression means), (n_samples, n, n_out)."""
        x = check_inputs(x, self.layers[0].n_inputs, columns=self.columns).astype(np.float64)
        check_samples(n_samples)
        rng = np.random.default_rng(random_state)
        samples = np.stack([self._forward(x, rng) for _ in range(n_samples)])
        return samples if self.densities is None else self.densities.combined(x, samples)

    def _forward(self, x: FloatArray, rng: np.random.Generator) -> FloatArray:
        for i, layer in enumerate(self.layers):
            weight, bias = layer.sample(rng)
            x = layer.apply(x, weight, bias)
            if i < len(self.layers) - 1:
                (x,) = layer.pooled(_ACTIVATIONS[self.activation](x))
        return x

    def predict_proba(self, x: Any, n_samples: int = 100, random_state: int = 0) -> FloatArray:
        """Class probabilities (n, n_out): the softmax averaged over samples of the weights."""
        self.head.require("classification", "predict_proba")
        outputs = self.outputs(x, n_samples, random_state)
        return np.asarray(softmax(outputs, axis=-1).mean(axis=0))

    def predict(self, x: Any, n_samples: int = 100, random_state: int = 0) -> Any:
        """The most probable class of each row, (n,); the mean (n, n_out) for regression."""
        if self.head.kind == "regression":
            return self.outputs(x, n_samples, random_state).mean(axis=0)
        return self.head.labels(self.predict_proba(x, n_samples, random_state).argmax(axis=1))
