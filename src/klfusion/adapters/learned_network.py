"""Networks of `klfusion.learners`."""

from typing import Any

from numpy.typing import ArrayLike

from klfusion.adapters import _networks
from klfusion.errors import KLFusionError
from klfusion.posteriors.posterior import Posterior

rebuild = _networks.network


def extract(model: Any, name: str, *, class_counts: ArrayLike | bool = True) -> Posterior:
    """The posterior of the weights of a learner, or of a `BayesianNetwork`, which has no counts.

    ``class_counts=False`` does not send the silo's class frequencies.
    """
    trained = getattr(model, "network_", model)
    if not hasattr(trained, "mapping"):
        raise KLFusionError(f"expected a fitted {type(model).__name__}; call fit")
    counts: ArrayLike | None = None if class_counts is False else class_counts
    if class_counts is True:
        counts = getattr(model, "class_counts_", None)
    densities = getattr(trained, "densities", None)
    network = _networks.Network(
        trained.mapping(),
        trained.activation,
        counts,
        trained.head,
        densities,
        [layer.convolution for layer in trained.layers if layer.convolution is not None],
        trained.columns,
    )
    return _networks.posterior_of(network, name, "klfusion", "VariationalNetwork")
