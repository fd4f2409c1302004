"""A Bayesian network with Normal priors and a mean-field Gaussian posterior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from klfusion.learners._layers import NormalLinear
from klfusion.learners._variational_network import VariationalNetwork


@dataclass(eq=False, repr=False)
class MeanFieldBNN(VariationalNetwork):
    """A mean-field Gaussian network, by variational inference with PyTorch.

    Parameters
    ----------
    hidden : sequence of int
        Units of each hidden layer.
    head : {"classification", "regression"}
    classes : sequence, optional
        Labels of all outputs, for silos without observations of some; default: those in ``y``.
    activation : {"relu", "tanh", "sigmoid", "silu"}
    epochs, batch_size, learning_rate : optional
        Settings of Adam. The learning rate falls to zero like half a cosine. It is five times
        larger for log standard deviations than for means.
    tempering : float
        Weight of the prior. 1 gives the evidence lower bound; less gives a cold posterior, which
        fits better and has smaller variances.
    balanced : bool
        Learn logits for equally frequent classes, which suits fusion: in training, the log
        frequencies of the silo's classes are added to the logits.
    prior_sd : float
        Standard deviation of the Normal prior of weights and biases.
    device : str
        ``"cpu"``, ``"cuda"``, ...
    random_state : int
        Equal states give equal networks.
    progress : bool, optional
        Show a progress bar; default: only on a terminal.

    Attributes
    ----------
    network_ : BayesianNetwork
        The posterior as a PyTorch module.
    classes_, class_counts_ : arrays
        Label of each output, and its number of observations (regression: all).
    live_units_ : tuple of bool arrays
        Per hidden layer, which units pass on a signal.
    bounds_ : list of float
        The tempered evidence lower bound, in nats per observation, after each epoch.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> from klfusion.learners import MeanFieldBNN
    >>> x = np.random.default_rng(0).normal(size=(300, 2))
    >>> y = (x[:, 0] > x[:, 1]).astype(int)
    >>> net = MeanFieldBNN(hidden=(10,), epochs=30, batch_size=30, random_state=0).fit(x, y)
    >>> net.score(x, y) > 0.9
    True
    >>> kf.fuse({"a": net}).model().predict_proba(x).shape
    (300, 2)
    """

    def _hidden_layer(self, name: str, n_in: int, n_out: int, generator: torch.Generator) -> Any:
        return NormalLinear(name, n_in, n_out, self.prior_sd, generator)
