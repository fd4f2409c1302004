"""How far what silos sent leads: mixtures that are helped by the pooled data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.mixture import GaussianMixture

from experiments.simulation import FloatArray

_DRAWS = 100_000  # of all silos: twelve per parameter of 90 components in twelve dimensions
_STEPS = 100  # of weights
_LEAST = 1e-9  # of a share or a mass, against division by zero


@dataclass(frozen=True, eq=False)
class Sent:
    """What a silo sent: a rule that deals observations, and moments of each component."""

    local: Any
    counts: FloatArray
    means: FloatArray
    roots: FloatArray  # of covariances


def sent(models: Sequence[Any], all_: Any, silos: Sequence[FloatArray]) -> list[Sent]:
    """Of each silo, given all local components without their priors."""
    ends = np.cumsum([len(model.weights_) for model in models])[:-1]
    roots = np.linalg.cholesky(all_.covariances_)
    parts = zip(*(np.split(x, ends) for x in (all_.weights_, all_.means_, roots)), strict=True)
    return [
        Sent(model, len(x) * w / w.sum(), mean, root)
        for model, x, (w, mean, root) in zip(models, silos, parts, strict=True)
    ]


def mixture(weights: FloatArray, means: FloatArray, covariances: FloatArray, seed: int = 0) -> Any:
    """A mixture with these parameters."""
    model = GaussianMixture(len(weights), random_state=seed)
    model.weights_, model.means_, model.covariances_ = weights, means, covariances
    model.precisions_cholesky_ = np.linalg.inv(np.linalg.cholesky(covariances)).transpose(0, 2, 1)
    return model


def with_weights(model: Any, x: FloatArray, seed: int = 0) -> Any:
    """The same components with the weights that are likeliest for observations."""
    weights = np.maximum(model.weights_, _LEAST)
    ratio = mixture(weights, model.means_, model.covariances_).predict_proba(x) / weights
    for _ in range(_STEPS):
        weights = weights * (ratio / (ratio @ weights)[:, None]).mean(axis=0)
    weights = np.maximum(weights, _LEAST)
    return mixture(weights / weights.sum(), model.means_, model.covariances_, seed)


def refitted(model: Any, x: FloatArray, steps: int) -> Any:
    """A mixture after steps of expectation maximisation on observations."""
    for _ in range(steps):
        model = _fitted(x, model.predict_proba(x))
    return model


def projections(
    model: Any, silos: Sequence[FloatArray], every: Sequence[Sent]
) -> Iterator[tuple[Any, float]]:
    """A mixture that is moved to what was sent, again and again; before each time, its misfit.

    It begins with the weights of each silo's own data. A silo deals draws to its components, and
    those of a component are moved to the moments that were sent. The mixture is fitted to them.
    The misfit is the divergence of what was sent from what the draws would send, per observation.
    """
    rng, n = np.random.default_rng(0), sum(len(x) for x in silos)
    weights = [with_weights(model, x).weights_ for x in silos]
    while True:
        moved, shares, misfit = [], [], 0.0
        for own, w in zip(every, weights, strict=True):
            of_silo = mixture(w, model.means_, model.covariances_, int(rng.integers(2**31)))
            points, mass, far = _moved(of_silo.sample(_DRAWS // len(every))[0], own, rng)
            moved.append(points)
            shares.append(of_silo.predict_proba(points) * mass[:, None])
            misfit += far / n
        yield model, misfit
        model = _fitted(np.concatenate(moved), np.concatenate(shares))
        weights = [_shares(s.sum(axis=0)) for s in shares]


def _fitted(x: FloatArray, share: FloatArray) -> Any:
    """The mixture of which observations have these shares (n, G)."""
    total = share.sum(axis=0) + _LEAST
    means, spread = share.T @ x / total[:, None], np.cov(x.T)
    away = [(x - m) * np.sqrt(s)[:, None] for m, s in zip(means, share.T, strict=True)]
    scatter = np.stack([a.T @ a for a in away]) + spread  # one observation, as a prior
    return mixture(total / total.sum(), means, scatter / (total + 1.0)[:, None, None])


def _moved(
    x: FloatArray, own: Sent, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray, float]:
    """Draws moved to what a silo sent, what each counts, and the divergence in nats."""
    dealt, share = own.local.predict_proba(x), _shares(own.counts)
    far = float(own.counts @ np.log(share / _shares(dealt.mean(axis=0))))
    cell = (dealt.cumsum(axis=1) < rng.random((len(x), 1))).sum(axis=1)
    points, mass, dim = [], [], x.shape[1]
    for k, (n, mean, root) in enumerate(zip(own.counts, own.means, own.roots, strict=True)):
        z = np.linalg.solve(root, (x[cell == k] - mean).T)  # standard Normal, if nothing is missed
        if z.shape[1] <= 2 * dim:  # too few for a covariance
            z = rng.normal(size=(dim, 4 * dim))
        centre, square = z.mean(axis=1), np.cov(z, bias=True)
        inverse = np.linalg.inv(square)
        far += 0.5 * n * (np.trace(inverse) - dim + np.linalg.slogdet(square)[1])
        far += 0.5 * n * float(centre @ inverse @ centre)
        z = np.linalg.solve(np.linalg.cholesky(square), z - centre[:, None])
        points.append(mean + (root @ z).T)
        mass.append(np.full(z.shape[1], n / z.shape[1]))
    return np.concatenate(points), np.concatenate(mass), far


def _shares(values: FloatArray) -> FloatArray:
    values = np.maximum(values, _LEAST)
    return np.asarray(values / values.sum())
