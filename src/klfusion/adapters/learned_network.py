"""Networks of `klfusion.learners`: their posterior, and what it needs to be fused well."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from klfusion.adapters._networks import network, network_posterior
from klfusion.errors import KLFusionError
from klfusion.posteriors.posterior import Posterior


def extract(model: Any, name: str, *, class_counts: ArrayLike | bool = True) -> Posterior:
    """The posterior of a learner's weights, or of a `BayesianNetwork`'s, which knows no counts.

    ``class_counts=False`` keeps the silo's class frequencies at home.
    """
    trained = getattr(model, "network_", model)
    if not hasattr(trained, "mapping"):
        raise KLFusionError(f"silo {name!r}: expected a fitted {type(model).__name__}; call fit")
    counts: ArrayLike | None = None if class_counts is False else class_counts
    if class_counts is True:
        counts = getattr(model, "class_counts_", None)
    return network_posterior(
        trained.mapping(), name, ("klfusion", "VariationalNetwork"), trained.activation, counts,
        trained.head,
    )  # fmt: skip


def rebuild(posterior: Posterior) -> Any:
    """The network as a PyTorch module."""
    return network(posterior)
