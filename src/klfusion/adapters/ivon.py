"""IVON: the variational posterior an ``ivon.IVON`` optimiser holds of a network's weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from klfusion._utils.arrays import FloatArray
from klfusion.adapters._networks import (
    Moments,
    activation_of,
    network,
    network_posterior,
    numbers,
)
from klfusion.errors import KLFusionError
from klfusion.posteriors.posterior import Posterior


def extract(
    optimizer: Any,
    name: str,
    model: Any = None,
    activation: str | None = None,
    class_counts: ArrayLike | None = None,
) -> Posterior:
    """Means are the network's parameters, variances ``1 / (ess (hess + weight_decay))``.

    The optimiser does not know the names and shapes of layers: ``model=net`` is the trained
    ``nn.Module``. Call it outside ``optimizer.sampled_params()``, inside of which the network
    holds a draw.
    """
    if model is None:
        raise KLFusionError(f"silo {name!r}: expected model=, the network that IVON trained")
    if optimizer.current_step == 0:
        raise KLFusionError(f"silo {name!r}: expected a trained network; IVON has made no step yet")
    variances = _variances(optimizer)
    moments: dict[str, Moments] = {}
    for key, parameter in model.named_parameters():
        if id(parameter) not in variances:
            raise KLFusionError(
                f"silo {name!r}, {key}: expected every parameter of the model to be one of the "
                "optimiser's, got one that is not"
            )
        variance = variances[id(parameter)].reshape(tuple(parameter.shape))
        moments[key] = numbers(parameter), variance
    activation = activation_of(model, activation, name)
    return network_posterior(moments, name, ("ivon", "IVON"), activation, class_counts)


def rebuild(posterior: Posterior) -> Any:
    """The network: an optimiser without its training makes no sense."""
    return network(posterior)


def _variances(optimizer: Any) -> dict[int, FloatArray]:
    """Variance of each parameter, flat, by its identity."""
    out: dict[int, FloatArray] = {}
    for group in optimizer.param_groups:
        flat = 1.0 / (group["ess"] * (numbers(group["hess"]) + group["weight_decay"]))
        parameters = [p for p in group["params"] if p is not None]
        parts = np.split(flat, np.cumsum([p.numel() for p in parameters])[:-1])
        out |= {id(p): part for p, part in zip(parameters, parts, strict=True)}
    return out
