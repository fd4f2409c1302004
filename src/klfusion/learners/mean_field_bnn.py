"""A Bayesian network with Normal priors and a mean-field Gaussian posterior."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from klfusion.learners._layers import NormalLinear
from klfusion.learners._variational_network import VariationalNetwork


class MeanFieldBNN(VariationalNetwork):
    """A plain mean-field Gaussian network, by variational inference with PyTorch.

    Parameters
    ----------
    hidden : sequence of int
        Units of each hidden layer.
    head : {"classification", "regression"}
    classes : sequence, optional
        Labels of all outputs, where a silo may not have seen every class; default: those in ``y``.
    activation : {"relu", "tanh", "sigmoid", "silu"}
    epochs, batch_size, learning_rate : optional
        Of Adam, at a rate that falls like half a cosine; deviations learn five times faster than
        means.
    tempering : float
        Weight of the prior: 1 is the evidence lower bound, less is a "cold" posterior, which fits
        better and is more certain than Bayes allows.
    balanced : bool
        Learn logits for equally frequent classes: the silo's class frequencies are added to the
        logits in training, so that they do not enter the network. What fusion wants.
    prior_sd : float
        Deviation of the Normal prior of weights and biases.
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
        Label of each output, and how many observations it had (regression: all).
    live_units_ : tuple of bool arrays
        Of each hidden layer, which units are switched on.
    bounds_ : list of float
        The (tempered) evidence lower bound an observation, after each epoch.

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

    def __init__(
        self,
        hidden: Sequence[int] = (150,),
        *,
        head: str = "classification",
        classes: Sequence[Any] | None = None,
        activation: str = "relu",
        epochs: int = 25,
        batch_size: int = 128,
        learning_rate: float = 6e-3,
        tempering: float = 1.0,
        balanced: bool = True,
        prior_sd: float = 1.0,
        device: str = "cpu",
        random_state: int = 0,
        progress: bool | None = None,
    ) -> None:
        self.hidden = hidden
        self.head = head
        self.classes = classes
        self.activation = activation
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.tempering = tempering
        self.balanced = balanced
        self.prior_sd = prior_sd
        self.device = device
        self.random_state = random_state
        self.progress = progress

    def _hidden_layer(self, name: str, n_in: int, n_out: int, generator: torch.Generator) -> Any:
        return NormalLinear(name, n_in, n_out, self.prior_sd, generator)
