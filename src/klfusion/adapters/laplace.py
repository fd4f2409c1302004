"""laplace-torch: a diagonal Laplace approximation over all weights of a network."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

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
    model: Any,
    name: str,
    activation: str | None = None,
    class_counts: ArrayLike | None = None,
) -> Posterior:
    """Means and variances of a fitted ``DiagLaplace``, whose vectors follow ``parameters()``."""
    named = list(model.model.named_parameters())
    size = sum(p.numel() for _, p in named)
    if type(model).__name__ != "DiagLaplace" or model.n_params != size:
        raise KLFusionError(
            f"silo {name!r}: expected a DiagLaplace over all weights "
            f"(subset_of_weights='all', no frozen parameters), got {type(model).__name__}"
        )
    if model.n_data == 0:
        raise KLFusionError(f"silo {name!r}: expected a fitted DiagLaplace; call fit first")
    means, variances = numbers(model.mean), numbers(model.posterior_variance)
    ends = np.cumsum([p.numel() for _, p in named])[:-1]
    moments: dict[str, Moments] = {
        key: (mean.reshape(tuple(p.shape)), variance.reshape(tuple(p.shape)))
        for (key, p), mean, variance in zip(
            named, np.split(means, ends), np.split(variances, ends), strict=True
        )
    }
    activation = activation_of(model.model, activation, name)
    return network_posterior(moments, name, ("laplace", "DiagLaplace"), activation, class_counts)


def rebuild(posterior: Posterior) -> Any:
    """The network; drawing its weights is what ``pred_type="nn"`` does in laplace-torch."""
    return network(posterior)
