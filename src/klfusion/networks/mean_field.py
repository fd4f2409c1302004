"""A network whose weights are independent Normals: predicts with numpy alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from klfusion._utils.arrays import FloatArray
from klfusion.networks.layer import (
    Head,
    Layer,
    as_mapping,
    check_inputs,
    check_samples,
    described,
)

_ACTIVATIONS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "relu": lambda h: np.maximum(h, 0.0),
    "tanh": np.tanh,
    "sigmoid": lambda h: np.asarray(expit(h)),
    "silu": lambda h: np.asarray(h * expit(h)),
}


@dataclass(frozen=True, eq=False)
class MeanFieldNetwork:
    """Fully connected layers with independent Normal weights, one activation in between.

    What `klfusion.networks.bayesian.BayesianNetwork` is where PyTorch is absent.

    Parameters
    ----------
    layers : tuple of Layer
        From input to output.
    activation : {"relu", "tanh", "sigmoid", "silu"}
        After every layer but the last.
    head : Head
        What the outputs mean.
    """

    layers: tuple[Layer, ...]
    activation: str
    head: Head = field(default_factory=Head)

    def outputs(self, x: Any, n_samples: int = 100, random_state: int = 0) -> FloatArray:
        """Outputs (logits, or regression means) of networks drawn from the posterior.

        Returns an array (n_samples, n, n_out).
        """
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
        """Class probabilities (n, n_out): the softmax averaged over draws of the weights."""
        self.head.require("classification", "predict_proba")
        draws = softmax(self.outputs(x, n_samples, random_state), axis=-1)
        return np.asarray(draws.mean(axis=0))

    def predict(self, x: Any, n_samples: int = 100, random_state: int = 0) -> Any:
        """The most probable class of each row, (n,); the mean (n, n_out) for regression."""
        if self.head.kind == "regression":
            return self.outputs(x, n_samples, random_state).mean(axis=0)
        return self.head.labels(self.predict_proba(x, n_samples, random_state).argmax(axis=1))

    def mapping(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        """Means and variances by name, as a state dict has them: ``kf.extract`` reads it again."""
        return as_mapping(self.layers)

    def __repr__(self) -> str:
        return described("MeanFieldNetwork", self.layers, self.activation)
