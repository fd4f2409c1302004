"""bayesian-torch: networks of ``LinearReparameterization`` or ``LinearFlipout`` layers."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from klfusion._utils.arrays import FloatArray
from klfusion.adapters._networks import (
    Moments,
    activation_of,
    network,
    network_parts,
    network_posterior,
    numbers,
)
from klfusion.errors import KLFusionError
from klfusion.posteriors.posterior import Posterior

_LAYERS = ("LinearReparameterization", "LinearFlipout")
_ACTIVATIONS = {"relu": "ReLU", "tanh": "Tanh", "sigmoid": "Sigmoid", "silu": "SiLU"}


def extract(
    model: Any,
    name: str,
    activation: str | None = None,
    class_counts: ArrayLike | None = None,
) -> Posterior:
    """Walk the modules in the order they were defined; ``sigma = log(1 + exp(rho))``.

    The activation is read from activation modules; where ``forward`` calls a function instead,
    ReLU is assumed, and ``activation=`` says otherwise.
    """
    moments: dict[str, Moments] = {}
    for path, module in model.named_modules():
        kind = type(module).__name__
        if any(cls.__name__ in _LAYERS for cls in type(module).__mro__):
            layer = path or "layer"
            moments[f"{layer}.weight"] = _moments(module.mu_weight, module.rho_weight)
            if module.mu_bias is not None:
                moments[f"{layer}.bias"] = _moments(module.mu_bias, module.rho_bias)
        elif any(True for _ in module.parameters(recurse=False)):
            raise KLFusionError(
                f"silo {name!r}: expected layers of bayesian-torch, {' or '.join(_LAYERS)}, got "
                f"{kind} {path!r}, whose parameters have no variances; networks with variances "
                "from elsewhere are read from an IVON optimiser, a DiagLaplace, or a mapping "
                "{'layer.weight': (mean, variance), ...}"
            )
    if not moments:
        raise KLFusionError(
            f"silo {name!r}: expected a module with layers of bayesian-torch, "
            f"{' or '.join(_LAYERS)}, got {type(model).__name__} without any"
        )
    activation = activation_of(model, activation, name)
    return network_posterior(moments, name, ("torch", "Module"), activation, class_counts)


def rebuild(posterior: Posterior) -> Any:
    """The network, as the other adapters rebuild it; `as_layers` has bayesian-torch's own."""
    return network(posterior)


def as_layers(posterior: Posterior) -> Any:
    """An ``nn.Sequential`` of ``LinearReparameterization`` layers, which return the outputs alone.

    In float64, so that it takes ``x.double()``.
    """
    import torch  # noqa: PLC0415 (absent where only numpy is)
    from bayesian_torch.layers import LinearReparameterization  # noqa: PLC0415

    layers, activation, _ = network_parts(posterior)
    modules: list[tuple[str, Any]] = []
    for number, layer in enumerate(layers):
        n_out, n_in = layer.shape
        module = LinearReparameterization(n_in, n_out).double()
        module.dnn_to_bnn_flag = True  # so that forward gives no (output, kl) pair
        state = {
            "mu_weight": layer.weight_mean,
            "rho_weight": _rho(layer.weight_variance),
            "mu_bias": layer.bias_mean,
            "rho_bias": _rho(layer.bias_variance),
        }
        module.load_state_dict({key: torch.tensor(value) for key, value in state.items()})
        if modules:
            modules.append((f"activation{number}", getattr(torch.nn, _ACTIVATIONS[activation])()))
        modules.append((layer.name.replace(".", "_"), module))
    return torch.nn.Sequential(OrderedDict(modules))


def _moments(mu: Any, rho: Any) -> Moments:
    return numbers(mu), np.logaddexp(0.0, numbers(rho)) ** 2


def _rho(variance: FloatArray) -> FloatArray:
    """The inverse of the softplus, without overflow: ``log(exp(s) - 1)``."""
    sigma = np.sqrt(variance)
    return np.asarray(sigma + np.log(-np.expm1(-sigma)))
