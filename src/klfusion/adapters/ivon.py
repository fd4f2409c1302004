"""IVON: the variational posterior of a network's weights in an ``ivon.IVON`` optimiser."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike

from klfusion._utils.arrays import FloatArray
from klfusion.adapters import _networks
from klfusion.errors import KLFusionError
from klfusion.posteriors.posterior import Posterior

rebuild = _networks.network


def extract(
    optimizer: Any,
    name: str,
    model: Any = None,
    activation: str | None = None,
    class_counts: ArrayLike | None = None,
    image: Sequence[int] | None = None,
) -> Posterior:
    """Means are the network's parameters, variances ``1 / (ess (hess + weight_decay))``.

    The optimiser has no names and shapes of layers, so ``model=net`` gives the trained
    ``nn.Module``. Call it outside ``optimizer.sampled_params()``, which replaces the means by a
    sample.
    """
    if model is None:
        raise KLFusionError("expected model=, the network that IVON trained")
    if optimizer.current_step == 0:
        raise KLFusionError("expected a trained network; IVON has made no step yet")
    variances: dict[int, FloatArray] = {}  # by the ``id`` of the parameter
    for group in optimizer.param_groups:
        flat = 1.0 / (group["ess"] * (_networks.numbers(group["hess"]) + group["weight_decay"]))
        parameters = [p for p in group["params"] if p is not None]
        parts = _networks.parts_like(flat, parameters)
        variances |= {id(p): part for p, part in zip(parameters, parts, strict=True)}
    moments: dict[str, _networks.Moments] = {}
    for key, parameter in model.named_parameters():
        if id(parameter) not in variances:
            raise KLFusionError(
                f"{key}: expected every parameter of the model to be one of the optimiser's, "
                "got one that is not"
            )
        moments[key] = _networks.numbers(parameter), variances[id(parameter)]
    activation = _networks.activation_of(model, activation)
    geometry = _networks.convolutions_of(model, image)
    network = _networks.Network(moments, activation, class_counts, convolutions=geometry)
    return _networks.posterior_of(network, name, "ivon", "IVON")
