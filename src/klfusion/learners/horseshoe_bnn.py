"""The paper's local networks: hidden units with a regularised horseshoe prior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from klfusion.learners._layers import HorseshoeLinear
from klfusion.learners._variational_network import VariationalNetwork


@dataclass(eq=False, repr=False)
class HorseshoeBNN(VariationalNetwork):
    """A Bayesian network whose hidden units have regularised horseshoe priors (appendix D).

    The prior switches off units that the data do not need: all their incoming weights and the
    bias shrink to zero. Inference is variational in the non-centred parametrisation. The scales
    are then set to their expected values, which leaves independent Normal weights.

    Parameters
    ----------
    hidden, head, classes, activation, epochs, batch_size, learning_rate, tempering, balanced
        As for `MeanFieldBNN`.
    unit_scale, layer_scale : float
        Scales of the half-Cauchy priors of the scales of units and layers.
    slab : (float, float)
        Shape and rate of the inverse Gamma prior of the slab's variance, which bounds the weights
        of live units.
    prior_sd : float
        Standard deviation of the Normal prior of the output layer.
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

    learning_rate: float = 2e-2
    unit_scale: float = 1.0
    layer_scale: float = 0.1
    slab: tuple[float, float] = (2.0, 6.0)

    _annealed = 0.9  # slow, because a unit that is switched off early stays off

    def _hidden_layer(self, name: str, n_in: int, n_out: int, generator: torch.Generator) -> Any:
        scales = (self.unit_scale, self.layer_scale)
        return HorseshoeLinear(name, n_in, n_out, scales, self.slab, generator)
