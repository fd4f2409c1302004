"""Draws from distributions of every family."""

from collections.abc import Callable
from typing import Any

import numpy as np

from klfusion._utils.arrays import TINY, FloatArray
from klfusion.errors import KLFusionError
from klfusion.families.family import Family
from klfusion.families.product import Product

_Draws = dict[str, FloatArray]
_Rng = np.random.Generator


def draws(family: Family, natural: FloatArray, size: int, rng: _Rng) -> _Draws:
    """Arrays ``(size, n, ...)`` by name, from each of the distributions ``(n, p)``.

    A product's names are ``factor.name``.
    """
    if isinstance(family, Product):
        return {
            f"{name}.{key}": value
            for name, factor, own in family.parts(natural)
            for key, value in draws(factor, own, size, rng).items()
        }
    draw = _DRAWS.get(family.name)
    if draw is None:
        raise KLFusionError(f"expected one of the families {', '.join(_DRAWS)}, got {family}")
    return draw(rng, size, **family.params(natural))


def _gammas(rng: _Rng, size: int, shape: FloatArray, rate: FloatArray) -> FloatArray:
    return np.maximum(rng.gamma(shape, 1.0 / rate, size=(size, *shape.shape)), TINY)


def _beta(rng: _Rng, size: int, a: FloatArray, b: FloatArray) -> _Draws:
    return {"probability": rng.beta(a, b, size=(size, *a.shape))}


def _categorical(rng: _Rng, size: int, probability: FloatArray) -> _Draws:
    # The largest of log-probabilities plus Gumbel noise is a categorical draw.
    noisy = np.log(probability) + rng.gumbel(size=(size, *probability.shape))
    return {"value": noisy.argmax(axis=-1).astype(np.float64)}


def _diagonal_normal(rng: _Rng, size: int, mean: FloatArray, variance: FloatArray) -> _Draws:
    return {"value": mean + np.sqrt(variance) * rng.standard_normal((size, *mean.shape))}


def _dirichlet(rng: _Rng, size: int, concentration: FloatArray) -> _Draws:
    gammas = _gammas(rng, size, concentration, np.ones_like(concentration))
    return {"probability": gammas / gammas.sum(axis=-1, keepdims=True)}


def _gamma(rng: _Rng, size: int, shape: FloatArray, rate: FloatArray) -> _Draws:
    return {"rate": _gammas(rng, size, shape, rate)}


def _inverse_gamma(rng: _Rng, size: int, shape: FloatArray, scale: FloatArray) -> _Draws:
    return {"variance": 1.0 / _gammas(rng, size, shape, scale)}


def _normal(rng: _Rng, size: int, mean: FloatArray, covariance: FloatArray) -> _Draws:
    noise = rng.standard_normal((size, *mean.shape))
    return {"value": mean + np.einsum("nij,snj->sni", np.linalg.cholesky(covariance), noise)}


def _normal_gamma(
    rng: _Rng, size: int, mean: FloatArray, kappa: FloatArray, shape: FloatArray, rate: FloatArray
) -> _Draws:
    tau = _gammas(rng, size, shape, rate)
    noise = rng.standard_normal((size, *mean.shape))
    own = np.sqrt(kappa * tau)
    return {
        "mean": mean + noise / (own if own.ndim == noise.ndim else own[..., None]),
        "precision": tau,
    }


def _normal_wishart(
    rng: _Rng,
    size: int,
    mean: FloatArray,
    kappa: FloatArray,
    scale_inv: FloatArray,
    dof: FloatArray,
) -> _Draws:
    precision = _wishart(rng, size, scale_inv, dof)["precision"]
    noise = rng.standard_normal((size, *mean.shape, 1))
    upper = np.linalg.cholesky(kappa[:, None, None] * precision).swapaxes(-1, -2)
    return {"mean": mean + np.linalg.solve(upper, noise)[..., 0], "precision": precision}


def _wishart(rng: _Rng, size: int, scale_inv: FloatArray, dof: FloatArray) -> _Draws:
    """Precision matrices by Bartlett's decomposition."""
    n, dim = scale_inv.shape[:2]
    # W = U^-1 U^-T for scale_inv = U' U, so U^-1 takes the place of the Cholesky factor of W.
    factor = np.linalg.inv(np.linalg.cholesky(scale_inv).swapaxes(1, 2))
    draw = np.tril(rng.standard_normal((size, n, dim, dim)), -1)
    diagonal = np.sqrt(rng.chisquare(dof[:, None] - np.arange(dim), size=(size, n, dim)))
    draw[..., np.arange(dim), np.arange(dim)] = diagonal
    half = factor @ draw
    return {"precision": half @ half.swapaxes(-1, -2)}


_DRAWS: dict[str, Callable[..., dict[str, Any]]] = {
    "beta": _beta,
    "categorical": _categorical,
    "diagonal-normal": _diagonal_normal,
    "dirichlet": _dirichlet,
    "gamma": _gamma,
    "inverse-gamma": _inverse_gamma,
    "isotropic-normal-gamma": _normal_gamma,
    "normal": _normal,
    "normal-gamma": _normal_gamma,
    "normal-wishart": _normal_wishart,
    "wishart": _wishart,
}
