"""Draws from every family and their sufficient statistics, for Monte Carlo checks.

A new family needs one entry in `STATISTICS` and one in `klfusion.families.draws`.
"""

from __future__ import annotations

import numpy as np

from klfusion.families.draws import draws
from klfusion.families.positive_definite import log_det
from klfusion.families.triangles import pack

TINY = np.finfo(np.float64).tiny
BELOW_ONE = np.nextafter(1.0, 0.0)


def sample(family, natural, size, rng):
    """Draws by name, each array ``(size, n, ...)``, inside what logarithms can bear."""
    found = draws(family, natural, size, rng)
    # Small parameters of a Beta distribution round to 0 or 1.
    limits = {"probability": (TINY, BELOW_ONE)}
    return {
        key: value.clip(*limits.get(key.rpartition(".")[2], (-np.inf, np.inf)))
        for key, value in found.items()
    }


def statistics(family, draws):
    """Sufficient statistics ``(size, n, p)`` of draws as made by `sample`."""
    if family.name != "product":
        return np.concatenate(STATISTICS[family.name](family, **draws), axis=-1)
    return np.concatenate(
        [statistics(factor, of_factor(name, draws)) for name, factor in family.factors], axis=-1
    )


def parts(family, natural):
    """Name, family and columns of each factor of a product."""
    edges = np.cumsum([factor.size for _, factor in family.factors])[:-1]
    columns = np.split(natural, edges, axis=1)
    return [(*named, own) for named, own in zip(family.factors, columns, strict=True)]


def of_factor(name, values):
    """The entries of one factor, without its name."""
    prefix = f"{name}."
    return {k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)}


# Sufficient statistics, as a list of blocks -------------------------------------------------------


def _of_isotropic(family, mean, precision):
    tau = precision[..., None]
    square = (tau * mean * mean).sum(axis=-1, keepdims=True)
    return [tau * mean, -0.5 * square, -0.5 * tau, 0.5 * np.log(tau)]


def _of_normal_gamma(family, mean, precision):
    products = [precision * mean, -0.5 * precision * mean * mean]
    return [*products, -0.5 * precision, 0.5 * np.log(precision)]


def _of_normal_wishart(family, mean, precision):
    first = np.einsum("snij,snj->sni", precision, mean)
    square = np.einsum("sni,sni->sn", first, mean)[..., None]
    return [first, -0.5 * square, *_of_wishart(family, precision)]


def _of_wishart(family, precision):
    return [-0.5 * pack(precision), 0.5 * log_det(precision)[..., None]]


STATISTICS = {
    "beta": lambda family, probability: [np.log(probability), np.log1p(-probability)],
    "categorical": lambda family, value: [np.eye(family.dim)[value.astype(np.intp)]],
    "diagonal-normal": lambda family, value: [value, -0.5 * value**2],
    "dirichlet": lambda family, probability: [np.log(probability)],
    "gamma": lambda family, rate: [np.log(rate), -rate],
    "inverse-gamma": lambda family, variance: [-np.log(variance), -1.0 / variance],
    "isotropic-normal-gamma": _of_isotropic,
    "normal": lambda family, value: [value, -0.5 * pack(value[..., :, None] * value[..., None, :])],
    "normal-gamma": _of_normal_gamma,
    "normal-wishart": _of_normal_wishart,
    "wishart": _of_wishart,
}


def jensen_gap(family, natural, weights=None):
    """``min_q sum_i w_i KL(q || q_i)``, the cost of one cluster, from log-partitions alone."""
    w = np.ones(len(natural)) if weights is None else weights
    centre = family.barycenter(natural, w)[None]
    gap = w @ family.log_partition(natural) - w.sum() * family.log_partition(centre)[0]
    return float(np.maximum(gap, 0.0))  # unlike max(), keeps a NaN
