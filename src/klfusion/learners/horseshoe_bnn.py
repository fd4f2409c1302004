"""The paper's local networks: units under a regularised horseshoe prior."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from klfusion.learners._layers import HorseshoeLinear
from klfusion.learners._variational_network import VariationalNetwork


class HorseshoeBNN(VariationalNetwork):
    """A Bayesian network whose hidden units have regularised horseshoe priors (appendix D).

    A unit that the data do not need is switched off: its incoming weights and bias shrink to zero
    together. Variational inference in the non-centred parametrisation; afterwards the scales are
    set to their expected values, which leaves independent Normal weights.

    Parameters
    ----------
    hidden, head, classes, activation, epochs, batch_size, learning_rate, tempering, balanced
        As for `MeanFieldBNN`.
    unit_scale, layer_scale : float
        Scale of the half-Cauchy priors of the scales of units and of layers.
    slab : (float, float)
        Shape and rate of the inverse Gamma prior of the slab's variance, which bounds the weights
        of units that are on.
    prior_sd : float
        Deviation of the Normal prior of the output layer.
    device, random_state, progress
        As for `MeanFieldBNN`, and so are the attributes.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> from klfusion.learners import HorseshoeBNN
    >>> x = np.random.default_rng(0).normal(size=(300, 2))
    >>> y = (x[:, 0] > x[:, 1]).astype(int)
    >>> net = HorseshoeBNN(hidden=(10,), epochs=30, batch_size=30, random_state=0).fit(x, y)
    >>> net.score(x, y) > 0.9
    True
    >>> int(net.live_units_[0].sum()) < 10
    True
    >>> kf.fuse({"a": net}).model().predict_proba(x).shape
    (300, 2)
    """

    _annealed = 0.9  # a unit that is switched off before it has learned something stays off

    def __init__(
        self,
        hidden: Sequence[int] = (150,),
        *,
        head: str = "classification",
        classes: Sequence[Any] | None = None,
        activation: str = "relu",
        epochs: int = 25,
        batch_size: int = 128,
        learning_rate: float = 2e-2,
        tempering: float = 1.0,
        balanced: bool = True,
        unit_scale: float = 1.0,
        layer_scale: float = 0.1,
        slab: tuple[float, float] = (2.0, 6.0),
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
        self.unit_scale = unit_scale
        self.layer_scale = layer_scale
        self.slab = slab
        self.prior_sd = prior_sd
        self.device = device
        self.random_state = random_state
        self.progress = progress

    def _hidden_layer(self, name: str, n_in: int, n_out: int, generator: torch.Generator) -> Any:
        scales = (self.unit_scale, self.layer_scale)
        return HorseshoeLinear(name, n_in, n_out, scales, self.slab, generator)
