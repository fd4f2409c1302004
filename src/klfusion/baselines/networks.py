"""Baselines for networks with one hidden layer: PFNM, averages, ensembles."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from klfusion._fuse import fuse, read_silos
from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.adapters import rebuild
from klfusion.baselines.baseline import Models
from klfusion.baselines.beta_process import Pfnm
from klfusion.errors import IncompatibleSilosError
from klfusion.fusion.result import Fusion
from klfusion.posteriors.compatibility import aligned_silos
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure.network import KIND, class_shares, layer_arrays, n_layers

_Silos = Sequence[Posterior]
_MIN_SHARE = 1e-3  # relative precision of the weights to a class without observations in a silo
_COPY_VARIANCE = 0.1  # default variance of a silo's weights, relative to the global variance


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
    variance : float, optional
        Variance of a silo's weights around the global ones; default: ``prior_variance / 10``.
    prior_variance : float, optional
        Variance of the global weights; default: the variance of all weights.
    gamma : float
        Mass of the Beta process: a larger value favours more units.
    random_state : int

    Notes
    -----
    Outgoing weights of a silo are weighted by its share of each class. Variances are averages.

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
    copies = _COPY_VARIANCE * spread if variance is None else variance
    shares = np.maximum(len(posteriors) * class_shares(_structures(posteriors)), _MIN_SHARE)
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
    """Average the units of each cluster of a fusion, as in the paper.

    A unit of one silo has the same weight as a unit that all silos share.

    Parameters
    ----------
    models, fusion
        The networks that were fused, and the result.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> sizes = {"fc1.weight": (2, 4), "fc1.bias": (2,), "fc2.weight": (3, 2), "fc2.bias": (3,)}
    >>> net = {key: (np.ones(s), np.full(s, 0.01)) for key, s in sizes.items()}
    >>> fusion = kf.fuse({"a": net, "b": net}, n_components=2)
    >>> kf.baselines.plain_average({"a": net, "b": net}, fusion).n_components
    2
    """
    posteriors = _networks(models)
    return _with_units(posteriors, *_averaged(posteriors, fusion.labels, fusion.n_components))


def coordinate_average(models: Models) -> Posterior:
    """Average networks weight by weight: federated averaging in one round.

    Silos are weighted by their number of observations, or equally if one of them is unknown.

    Parameters
    ----------
    models : sequence or mapping
        Networks of one width, as for `pfnm`.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> shapes = {"fc1.weight": (8, 4), "fc1.bias": (8,), "fc2.weight": (3, 8), "fc2.bias": (3,)}
    >>> zeros = {key: (np.zeros(s), np.full(s, 0.01)) for key, s in shapes.items()}
    >>> ones = {key: (np.ones(s), np.full(s, 0.01)) for key, s in shapes.items()}
    >>> kf.baselines.coordinate_average([zeros, ones]).params()["mean"][0, :3]
    array([0.5, 0.5, 0.5])
    """
    posteriors = _of_one_width(models)
    counts = [p.structure.arrays.get("class_counts") for p in posteriors if p.structure is not None]
    known = [c.sum() for c in counts if c is not None]
    weights = np.array(known if len(known) == len(posteriors) else np.ones(len(posteriors)))
    weights = weights / weights.sum()
    params = [p.params() for p in posteriors]
    stacks = [np.stack([p[key] for p in params]) for key in ("mean", "variance")]
    mean, variance = (np.einsum("j,jlp->lp", weights, stack) for stack in stacks)
    return _with_units(posteriors, mean, variance)


def fisher_average(models: Models) -> Posterior:
    """Average networks weight by weight, each by its precision (Matena and Raffel, NeurIPS 2022).

    The precision of a mean-field posterior stands for the diagonal Fisher information.

    Parameters
    ----------
    models : sequence or mapping
        Networks of one width, as for `pfnm`.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> shapes = {"fc1.weight": (8, 4), "fc1.bias": (8,), "fc2.weight": (3, 8), "fc2.bias": (3,)}
    >>> zeros = {key: (np.zeros(s), np.full(s, 0.03)) for key, s in shapes.items()}
    >>> ones = {key: (np.ones(s), np.full(s, 0.01)) for key, s in shapes.items()}
    >>> kf.baselines.fisher_average([zeros, ones]).params()["mean"][0, :3].round(3)
    array([0.75, 0.75, 0.75])
    """
    posteriors = _of_one_width(models)
    p = posteriors[0].family.params(np.mean([p.natural for p in posteriors], axis=0))
    return _with_units(posteriors, p["mean"], p["variance"])


def ot_average(models: Models) -> Posterior:
    """Match units to those of the first silo by optimal transport, then average all silos equally.

    Costs are squared distances of the means of units' weights, incoming and outgoing (Singh and
    Jaggi, NeurIPS 2020). Between networks of one width, a transport plan is an assignment.

    Parameters
    ----------
    models : sequence or mapping
        Networks of one width, as for `pfnm`.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> rng = np.random.default_rng(0)
    >>> shapes = {"fc1.weight": (8, 4), "fc1.bias": (8,), "fc2.weight": (3, 8), "fc2.bias": (3,)}
    >>> net = {key: (rng.normal(size=s), np.full(s, 0.01)) for key, s in shapes.items()}
    >>> average = kf.baselines.ot_average([net, net])
    >>> bool(np.allclose(average.params()["mean"][:, :4], net["fc1.weight"][0]))
    True
    """
    posteriors = _of_one_width(models)
    first, *others = (p.params() for p in posteriors)
    found = [(first["mean"], first["variance"])]
    for own in others:
        cost = cdist(first["mean"], own["mean"], "sqeuclidean")
        order = linear_sum_assignment(cost)[1]
        found.append((own["mean"][order], own["variance"][order]))
    mean, variance = (np.mean(values, axis=0) for values in zip(*found, strict=True))
    return _with_units(posteriors, mean, variance)


class Ensemble:
    """The silos' networks with averaged predictive probabilities.

    Parameters
    ----------
    models : sequence or mapping
        As for `klfusion.fuse`.
    class_weighted : bool
        Weight each silo's probability of a class by its share of the observations of that class.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> shapes = {"fc1.weight": (8, 4), "fc1.bias": (8,), "fc2.weight": (3, 8), "fc2.bias": (3,)}
    >>> zeros = {key: (np.zeros(s), np.full(s, 0.01)) for key, s in shapes.items()}
    >>> kf.baselines.Ensemble([zeros, zeros]).predict_proba(np.zeros((1, 4))).round(2)
    array([[0.33, 0.33, 0.33]])
    """

    def __init__(self, models: Models, *, class_weighted: bool = False) -> None:
        posteriors = aligned_silos(read_silos(models))
        self.networks = [rebuild(p) for p in posteriors]
        shares = class_shares(_structures(posteriors))
        self.weights = shares if class_weighted else np.full_like(shares, 1.0 / len(shares))

    def predict_proba(self, x: Any, **how: Any) -> FloatArray:
        """Class probabilities (n, n_out); ``how`` as for a single network."""
        found = [network.predict_proba(x, **how) for network in self.networks]
        p = sum(weight * own for weight, own in zip(self.weights, found, strict=True))
        return np.asarray(p / np.asarray(p).sum(axis=1, keepdims=True))


def _networks(models: Models) -> list[Posterior]:
    posteriors = aligned_silos(read_silos(models))
    for posterior in posteriors:
        structure = posterior.structure
        if structure is None or structure.kind != KIND or n_layers(structure) != 2:
            text = f"silo {posterior.name!r}: expected a network with one hidden layer"
            raise IncompatibleSilosError(text)
    return posteriors


def _of_one_width(models: Models) -> list[Posterior]:
    posteriors = _networks(models)
    sizes = {p.n_components for p in posteriors}
    if len(sizes) > 1:
        raise IncompatibleSilosError(f"expected networks of one width, got {sorted(sizes)}")
    return posteriors


def _structures(posteriors: _Silos) -> list[Any]:
    return [p.structure for p in posteriors]


def _averaged(
    posteriors: _Silos, labels: Sequence[IntArray], size: int
) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of each cluster's average in natural parameters."""
    family = posteriors[0].family
    total, count = np.zeros((size, family.size)), np.zeros((size, 1))
    for posterior, own in zip(posteriors, labels, strict=True):
        kept = own >= 0
        np.add.at(total, own[kept], posterior.natural[kept])
        np.add.at(count, own[kept], 1.0)
    p = family.params(total / count)
    return p["mean"], p["variance"]


def _with_units(posteriors: _Silos, mean: FloatArray, variance: FloatArray) -> Posterior:
    """A network of these units, with their outgoing weights unchanged."""
    structure = posteriors[0].structure
    assert structure is not None  # checked by `_networks`
    shares = class_shares(_structures(posteriors))
    layers = [layer_arrays(s, 1) for s in _structures(posteriors)]
    n_out = shares.shape[1]
    arrays = {}
    for i, (key, units) in enumerate({"mean.1": mean, "variance.1": variance}.items()):
        biases = [a * layer[i][:, -1] for a, layer in zip(shares, layers, strict=True)]
        arrays[key] = np.column_stack([units[:, -n_out:].T, np.sum(biases, axis=0)])
    family = posteriors[0].family
    structure = replace(structure, arrays={**structure.arrays, **arrays})
    return Posterior(family, family.natural(mean, variance), "global", structure=structure)
