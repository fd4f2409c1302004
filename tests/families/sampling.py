"""Draws from every family and their sufficient statistics, for Monte Carlo checks.

A new family needs one entry in `STATISTICS` and one in `DRAWS`.
"""

from __future__ import annotations

import numpy as np

from klfusion.families.wishart import log_det, pack

TINY = np.finfo(np.float64).tiny
BELOW_ONE = np.nextafter(1.0, 0.0)


def sample(family, natural, size, rng):
    """Draws by name, each array ``(size, n, ...)``, from each of the ``n`` distributions."""
    if family.name == "product":
        return {
            f"{name}.{key}": value
            for name, factor, part in parts(family, natural)
            for key, value in sample(factor, part, size, rng).items()
        }
    return DRAWS[family.name](rng, size, **family.params(natural))


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


# Draws --------------------------------------------------------------------------------------------


def _beta(rng, size, a, b):
    draws = rng.beta(a, b, size=(size, *a.shape))
    return {"probability": draws.clip(TINY, BELOW_ONE)}  # small a or b round to 0 or 1


def _categorical(rng, size, probability):
    # The largest of log-probabilities plus Gumbel noise is a categorical draw.
    noisy = np.log(probability) + rng.gumbel(size=(size, *probability.shape))
    return {"value": noisy.argmax(axis=-1).astype(np.float64)}


def _diagonal_normal(rng, size, mean, variance):
    return {"value": mean + np.sqrt(variance) * rng.standard_normal((size, *mean.shape))}


def _dirichlet(rng, size, concentration):
    gammas = _gammas(rng, size, concentration, np.ones_like(concentration))
    return {"probability": gammas / gammas.sum(axis=-1, keepdims=True)}


def _gammas(rng, size, shape, rate):
    return np.maximum(rng.gamma(shape, 1.0 / rate, size=(size, *shape.shape)), TINY)


def _gamma(rng, size, shape, rate):
    return {"rate": _gammas(rng, size, shape, rate)}


def _inverse_gamma(rng, size, shape, scale):
    return {"variance": 1.0 / _gammas(rng, size, shape, scale)}


def _isotropic_normal_gamma(rng, size, mean, kappa, shape, rate):
    tau = _gammas(rng, size, shape, rate)
    noise = rng.standard_normal((size, *mean.shape))
    return {"mean": mean + noise / np.sqrt(kappa * tau)[..., None], "precision": tau}


def _normal(rng, size, mean, covariance):
    noise = rng.standard_normal((size, *mean.shape))
    return {"value": mean + np.einsum("nij,snj->sni", np.linalg.cholesky(covariance), noise)}


def _normal_gamma(rng, size, mean, kappa, shape, rate):
    tau = _gammas(rng, size, shape, rate)
    return {"mean": mean + rng.standard_normal(tau.shape) / np.sqrt(kappa * tau), "precision": tau}


def _normal_wishart(rng, size, mean, kappa, scale_inv, dof):
    precision = _wisharts(rng, size, scale_inv, dof)
    noise = rng.standard_normal((size, *mean.shape, 1))
    upper = np.linalg.cholesky(kappa[:, None, None] * precision).swapaxes(-1, -2)
    return {"mean": mean + np.linalg.solve(upper, noise)[..., 0], "precision": precision}


def _wisharts(rng, size, scale_inv, dof):
    """Precision matrices ``(size, n, d, d)`` by Bartlett's decomposition."""
    n, dim = scale_inv.shape[:2]
    # W = U^-1 U^-T for scale_inv = U' U, so U^-1 takes the place of the Cholesky factor of W.
    factor = np.linalg.inv(np.linalg.cholesky(scale_inv).swapaxes(1, 2))
    draw = np.tril(rng.standard_normal((size, n, dim, dim)), -1)
    diagonal = np.sqrt(rng.chisquare(dof[:, None] - np.arange(dim), size=(size, n, dim)))
    draw[..., np.arange(dim), np.arange(dim)] = diagonal
    half = factor @ draw
    return half @ half.swapaxes(-1, -2)


def _wishart(rng, size, scale_inv, dof):
    return {"precision": _wisharts(rng, size, scale_inv, dof)}


DRAWS = {
    "beta": _beta,
    "categorical": _categorical,
    "diagonal-normal": _diagonal_normal,
    "dirichlet": _dirichlet,
    "gamma": _gamma,
    "inverse-gamma": _inverse_gamma,
    "isotropic-normal-gamma": _isotropic_normal_gamma,
    "normal": _normal,
    "normal-gamma": _normal_gamma,
    "normal-wishart": _normal_wishart,
    "wishart": _wishart,
}


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
