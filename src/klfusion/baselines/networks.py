"""Baselines for networks with one hidden layer: PFNM, plain averages, ensembles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from klfusion._fuse import fuse
from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.adapters import rebuild
from klfusion.baselines.pfnm import Pfnm
from klfusion.errors import IncompatibleSilosError
from klfusion.fusion.result import Fusion
from klfusion.posteriors.compatibility import aligned_silos
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure.network import KIND, class_shares, layer_arrays, n_layers
from klfusion.read import read_silos

Models = Sequence[Any] | Mapping[str, Any]
_LEAST = 1e-3  # of the precision of a class that a silo has not seen
_COPIES = 0.1  # default variance of copies relative to that of atoms


def pfnm(
    models: Models,
    *,
    variance: float | None = None,
    prior_variance: float | None = None,
    gamma: float = 1.0,
    random_state: int = 0,
) -> Fusion:
    """Match the units' point estimates by PFNM (Yurochkin et al., ICML 2019).

    Parameters
    ----------
    models : sequence or mapping
        Networks with one hidden layer, as for `klfusion.fuse`.
    variance, prior_variance : float, optional
        Of a silo's weights around the global ones, and of these; default: the variance of all
        weights, and a tenth of it.
    gamma : float
        Mass of the Beta process: larger expects more units.
    random_state : int

    Returns
    -------
    Fusion
        Outgoing weights count by the share of each class a silo has seen; variances are averages.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> rng = np.random.default_rng(0)
    >>> shapes = {"fc1.weight": (8, 4), "fc1.bias": (8,), "fc2.weight": (3, 8), "fc2.bias": (3,)}
    >>> net = {key: (rng.normal(size=s), np.full(s, 0.01)) for key, s in shapes.items()}
    >>> kf.baselines.pfnm({"a": net, "b": net}).n_components
    8
    """
    posteriors = _networks(models)
    means = [p.params()["mean"] for p in posteriors]
    spread = float(np.concatenate(means).var()) if prior_variance is None else prior_variance
    copies = _COPIES * spread if variance is None else variance
    shares = np.maximum(len(posteriors) * class_shares(_structures(posteriors)), _LEAST)
    points = []
    for posterior, mean, share in zip(posteriors, means, shares, strict=True):
        precision = np.full(mean.shape[1], 1.0 / copies)
        precision[-len(share) :] *= share
        natural = posterior.family.natural(mean, np.broadcast_to(1.0 / precision, mean.shape))
        points.append(replace(posterior, natural=natural))
    method = Pfnm(gamma=gamma, prior_variance=spread)
    matched = fuse(points, method=method, random_state=random_state)
    mean = matched.posterior.params()["mean"]
    average = _averaged(posteriors, matched.labels, matched.n_components)
    return replace(matched, posterior=_with_units(posteriors, mean, average[1]))


def plain_average(models: Models, fusion: Fusion) -> Posterior:
    """The paper's plain average on the clusters of a fusion: units are averaged, and that is all.

    A unit of one silo then counts as much as one that all silos share.
    """
    posteriors = _networks(models)
    return _with_units(posteriors, *_averaged(posteriors, fusion.labels, fusion.n_components))


def coordinate_average(models: Models) -> Posterior:
    """Federated averaging in one shot: weight by weight, silos by how much they have seen."""
    posteriors = _networks(models)
    sizes = {p.n_components for p in posteriors}
    if len(sizes) > 1:
        raise IncompatibleSilosError(f"expected networks of one width, got {sorted(sizes)}")
    counts = [p.structure.arrays.get("class_counts") for p in posteriors if p.structure is not None]
    known = [c.sum() for c in counts if c is not None]
    weights = np.array(known if len(known) == len(posteriors) else np.ones(len(posteriors)))
    weights = weights / weights.sum()
    params = [p.params() for p in posteriors]
    mean, variance = (
        np.einsum("j,jlp->lp", weights, np.stack([p[key] for p in params]))
        for key in ("mean", "variance")
    )
    return _with_units(posteriors, mean, variance)


class Ensemble:
    """The silos' networks side by side: their predictive probabilities, averaged.

    Parameters
    ----------
    models : sequence or mapping
        As for `klfusion.fuse`.
    class_weighted : bool
        Weigh each silo's probability of a class by its share of the observations of that class.
    """

    def __init__(self, models: Models, *, class_weighted: bool = False) -> None:
        posteriors = aligned_silos(read_silos(models))
        self.networks = [rebuild(p) for p in posteriors]
        shares = class_shares(_structures(posteriors))
        self.weights = shares if class_weighted else np.full_like(shares, 1.0 / len(shares))

    def predict_proba(self, x: Any, **how: Any) -> FloatArray:
        """Class probabilities (n, n_out)."""
        p = sum(
            weight * network.predict_proba(x, **how)
            for weight, network in zip(self.weights, self.networks, strict=True)
        )
        return np.asarray(p / np.asarray(p).sum(axis=1, keepdims=True))


def _networks(models: Models) -> list[Posterior]:
    posteriors = aligned_silos(read_silos(models))
    for posterior in posteriors:
        structure = posterior.structure
        if structure is None or structure.kind != KIND or n_layers(structure) != 2:
            raise IncompatibleSilosError(
                f"silo {posterior.name!r}: expected a network with one hidden layer"
            )
    return posteriors


def _structures(posteriors: Sequence[Posterior]) -> list[Any]:
    return [p.structure for p in posteriors]


def _averaged(
    posteriors: Sequence[Posterior], labels: Sequence[IntArray], size: int
) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of the members' averages in natural parameters."""
    family = posteriors[0].family
    total, count = np.zeros((size, family.size)), np.zeros((size, 1))
    for posterior, own in zip(posteriors, labels, strict=True):
        kept = own >= 0
        np.add.at(total, own[kept], posterior.natural[kept])
        np.add.at(count, own[kept], 1.0)
    p = family.params(total / count)
    return p["mean"], p["variance"]


def _with_units(
    posteriors: Sequence[Posterior], mean: FloatArray, variance: FloatArray
) -> Posterior:
    """A network of these units, whose outgoing weights are taken as they are."""
    structure = posteriors[0].structure
    assert structure is not None  # `_networks` has seen to it
    shares = class_shares(_structures(posteriors))
    biases = [layer_arrays(s, 1) for s in _structures(posteriors)]
    n_out = shares.shape[1]
    bias = np.sum([a * m[:, -1] for a, (m, _) in zip(shares, biases, strict=True)], axis=0)
    spread = np.sum([a * v[:, -1] for a, (_, v) in zip(shares, biases, strict=True)], axis=0)
    arrays = {
        "mean.1": np.column_stack([mean[:, -n_out:].T, bias]),
        "variance.1": np.column_stack([variance[:, -n_out:].T, spread]),
    }
    family = posteriors[0].family
    return Posterior(
        family,
        family.natural(mean, variance),
        name="global",
        structure=replace(structure, arrays={**structure.arrays, **arrays}),
    )
