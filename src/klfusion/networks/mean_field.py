"""A network with independent Normal weights that predicts with numpy alone."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from klfusion._utils.arrays import FloatArray
from klfusion.networks.layer import Head, Layer, LayeredNetwork, check_inputs, check_samples

_ACTIVATIONS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "relu": lambda h: np.maximum(h, 0.0),
    "tanh": np.tanh,
    "sigmoid": lambda h: np.asarray(expit(h)),
    "silu": lambda h: np.asarray(h * expit(h)),
}


@dataclass(frozen=True, eq=False, repr=False)
class MeanFieldNetwork(LayeredNetwork):
    """The replacement of `klfusion.networks.bayesian.BayesianNetwork` without PyTorch."""

    layers: tuple[Layer, ...]
    activation: str
    head: Head = field(default_factory=Head)

    def outputs(self, x: Any, n_samples: int = 100, random_state: int = 0) -> FloatArray:
        """Samples of the outputs (logits, or regression means), (n_samples, n, n_out)."""
        x = check_inputs(x, self.layers[0].shape[1]).astype(np.float64)
        check_samples(n_samples)
        rng = np.random.default_rng(random_state)
        return np.stack([self._forward(x, rng) for _ in range(n_samples)])

    def _forward(self, x: FloatArray, rng: np.random.Generator) -> FloatArray:
        for i, layer in enumerate(self.layers):
            weight, bias = layer.sample(rng)
            x = x @ weight.T + bias
            if i < len(self.layers) - 1:
                x = _ACTIVATIONS[self.activation](x)
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
