"""bayesian-torch: networks of ``LinearReparameterization`` or ``LinearFlipout`` layers."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from klfusion._utils.arrays import FloatArray
from klfusion.adapters import _networks
from klfusion.adapters._networks import Moments, numbers
from klfusion.errors import KLFusionError
from klfusion.posteriors.posterior import Posterior

_LAYERS = (
    "LinearReparameterization", "LinearFlipout", "Conv2dReparameterization", "Conv2dFlipout",
)  # fmt: skip
_EXPECTED = f"layers of bayesian-torch, {' or '.join(_LAYERS)}"
_ACTIVATIONS = {"relu": "ReLU", "tanh": "Tanh", "sigmoid": "Sigmoid", "silu": "SiLU"}


def extract(
    model: Any,
    name: str,
    activation: str | None = None,
    class_counts: ArrayLike | None = None,
    image: Sequence[int] | None = None,
) -> Posterior:
    """Read the layers in the order of their definition; ``sigma = log(1 + exp(rho))``.

    The activation is that of the activation modules. If ``forward`` calls a function instead, the
    default is ReLU, and ``activation=`` sets another.
    """
    moments: dict[str, Moments] = {}
    for path, module in model.named_modules():
        if any(cls.__name__ in _LAYERS for cls in type(module).__mro__):
            layer = path or "layer"
            kernel = hasattr(module, "mu_kernel")
            mu, rho = (f"{p}_{'kernel' if kernel else 'weight'}" for p in ("mu", "rho"))
            moments[f"{layer}.weight"] = _moments(getattr(module, mu), getattr(module, rho))
            if module.mu_bias is not None:
                moments[f"{layer}.bias"] = _moments(module.mu_bias, module.rho_bias)
        elif any(True for _ in module.parameters(recurse=False)):
            raise KLFusionError(
                f"expected {_EXPECTED}, got {type(module).__name__} {path!r}, whose parameters "
                "have no variances; for other networks pass an IVON optimiser, a DiagLaplace, or "
                "a mapping {'layer.weight': (mean, variance), ...}"
            )
    if not moments:
        got = f"{type(model).__name__} without any"
        raise KLFusionError(f"expected a module with {_EXPECTED}, got {got}")
    activation = _networks.activation_of(model, activation)
    geometry = _networks.convolutions_of(model, image)
    network = _networks.Network(moments, activation, class_counts, convolutions=geometry)
    return _networks.posterior_of(network, name, "torch", "Module")


rebuild = _networks.network


def as_layers(posterior: Posterior) -> Any:
    """The float64 ``LinearReparameterization`` layers of a posterior, as an ``nn.Sequential``."""
    import torch  # noqa: PLC0415 (absent where only numpy is)
    from bayesian_torch.layers import LinearReparameterization  # noqa: PLC0415

    layers, activation, _ = _networks.network_parts(posterior)
    modules: list[tuple[str, Any]] = []
    for number, layer in enumerate(layers):
        if layer.convolution is not None:
            raise KLFusionError(f"{layer.name!r}: expected a fully connected layer, got filters")
        n_out, n_in = layer.shape
        module = LinearReparameterization(n_in, n_out).double()
        module.dnn_to_bnn_flag = True  # forward returns the output without its KL
        state = {"mu_weight": layer.weight_mean, "rho_weight": _rho(layer.weight_variance)}
        state |= {"mu_bias": layer.bias_mean, "rho_bias": _rho(layer.bias_variance)}
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
