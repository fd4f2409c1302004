"""A network whose weights are independent Normals: predicts with numpy alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from klfusion._typing import FloatArray, IntArray
from klfusion.errors import KLFusionError

ACTIVATIONS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "relu": lambda h: np.maximum(h, 0.0),
    "tanh": np.tanh,
    "sigmoid": lambda h: np.asarray(expit(h)),
    "silu": lambda h: np.asarray(h * expit(h)),
}


@dataclass(frozen=True, eq=False)
class Layer:
    """A fully connected layer, ``weight`` (n_out, n_in) as PyTorch has it and ``bias`` (n_out,)."""

    name: str
    weight_mean: FloatArray
    weight_variance: FloatArray
    bias_mean: FloatArray
    bias_variance: FloatArray

    def sample(self, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """One draw of the weight and the bias."""
        weight = rng.standard_normal(self.weight_mean.shape) * np.sqrt(self.weight_variance)
        bias = rng.standard_normal(self.bias_mean.shape) * np.sqrt(self.bias_variance)
        return self.weight_mean + weight, self.bias_mean + bias


@dataclass(frozen=True, eq=False)
class MeanFieldNetwork:
    """Fully connected layers with independent Normal weights, one activation in between.

    Parameters
    ----------
    layers : tuple of Layer
        From input to output.
    activation : {"relu", "tanh", "sigmoid", "silu"}
        After every layer but the last.
    """

    layers: tuple[Layer, ...]
    activation: str

    def outputs(self, x: Any, n_samples: int = 100, random_state: int = 0) -> FloatArray:
        """Outputs (logits) of networks drawn from the posterior, (n_samples, n, n_out)."""
        x = np.asarray(x, dtype=np.float64)
        n_in = self.layers[0].weight_mean.shape[1]
        if x.ndim != 2 or x.shape[1] != n_in:
            raise KLFusionError(f"expected x of shape (n, {n_in}), got {x.shape}")
        if n_samples < 1:
            raise KLFusionError(f"expected n_samples >= 1, got {n_samples}")
        rng = np.random.default_rng(random_state)
        return np.stack([self._forward(x, rng) for _ in range(n_samples)])

    def _forward(self, x: FloatArray, rng: np.random.Generator) -> FloatArray:
        for i, layer in enumerate(self.layers):
            weight, bias = layer.sample(rng)
            x = x @ weight.T + bias
            if i < len(self.layers) - 1:
                x = ACTIVATIONS[self.activation](x)
        return x

    def predict_proba(self, x: Any, n_samples: int = 100, random_state: int = 0) -> FloatArray:
        """Class probabilities (n, n_out): the softmax averaged over draws of the weights."""
        draws = softmax(self.outputs(x, n_samples, random_state), axis=-1)
        return np.asarray(draws.mean(axis=0))

    def predict(self, x: Any, n_samples: int = 100, random_state: int = 0) -> IntArray:
        """The most probable class of each row, (n,)."""
        return np.asarray(self.predict_proba(x, n_samples, random_state).argmax(axis=1))

    def mapping(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        """Means and variances by name, as a state dict has them: ``kf.extract`` reads it again."""
        out = {}
        for layer in self.layers:
            out[f"{layer.name}.weight"] = (layer.weight_mean, layer.weight_variance)
            out[f"{layer.name}.bias"] = (layer.bias_mean, layer.bias_variance)
        return out

    def __repr__(self) -> str:
        sizes = [self.layers[0].weight_mean.shape[1], *(len(y.bias_mean) for y in self.layers)]
        return f"MeanFieldNetwork({' -> '.join(map(str, sizes))}, {self.activation})"
