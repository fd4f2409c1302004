"""laplace-torch: a diagonal Laplace approximation over all weights of a network."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike

from klfusion.adapters import _networks
from klfusion.errors import KLFusionError
from klfusion.posteriors.posterior import Posterior

rebuild = _networks.network


def extract(
    model: Any,
    name: str,
    activation: str | None = None,
    class_counts: ArrayLike | None = None,
    image: Sequence[int] | None = None,
) -> Posterior:
    """Means and variances of a fitted ``DiagLaplace``, in the order of ``parameters()``."""
    named = list(model.model.named_parameters())
    size = sum(p.numel() for _, p in named)
    if type(model).__name__ != "DiagLaplace" or model.n_params != size:
        raise KLFusionError(
            "expected a DiagLaplace over all weights, with subset_of_weights='all' and no frozen "
            f"parameters, got {type(model).__name__}"
        )
    if model.n_data == 0:
        raise KLFusionError("expected a fitted DiagLaplace; call fit first")
    keys, parameters = zip(*named, strict=True)
    flat = model.mean, model.posterior_variance
    means, variances = (_networks.parts_like(values, parameters) for values in flat)
    moments = dict(zip(keys, zip(means, variances, strict=True), strict=True))
    activation = _networks.activation_of(model.model, activation)
    geometry = _networks.convolutions_of(model.model, image)
    network = _networks.Network(moments, activation, class_counts, convolutions=geometry)
    return _networks.posterior_of(network, name, "laplace", "DiagLaplace")
