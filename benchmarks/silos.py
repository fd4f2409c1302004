"""Simulated silos for the benchmarks: posteriors like those of local fits, without the fits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import klfusion as kf


def mixture_silos(
    n_silos: int,
    rng: np.random.Generator,
    *,
    n_true: int = 200,
    size: int = 20,
    dim: int = 10,
    separation: float = 2.0,
    noise: float = 0.5,
) -> tuple[list[kf.Posterior], NDArray[np.intp]]:
    """Normal-Wishart posteriors of ``size`` of ``n_true`` components per silo; true components."""
    means = rng.normal(scale=np.sqrt(5.0 * separation), size=(n_true, dim))
    factors = rng.normal(size=(n_true, dim, dim))
    covariances = factors @ factors.transpose(0, 2, 1) / dim + 0.3 * np.eye(dim)
    family = kf.families.NormalWishart(dim)
    silos, truth = [], []
    for j in range(n_silos):
        chosen = rng.permutation(n_true)[:size]
        counts = np.exp(rng.uniform(np.log(30.0), np.log(300.0), size=size))
        own = means[chosen] + noise * rng.normal(size=(size, dim))
        # Sampling error of an estimated covariance.
        root = np.linalg.cholesky(covariances[chosen])
        z = rng.normal(size=(size, dim, 30))
        local = root @ (0.8 * np.eye(dim) + 0.2 * z @ z.transpose(0, 2, 1) / 30) @ root.mT
        natural = family.natural(own, counts, counts[:, None, None] * local, counts + dim)
        silos.append(kf.Posterior(family, natural, name=f"silo-{j}", counts=counts))
        truth.append(chosen)
    return silos, np.concatenate(truth)


def uneven_silos(
    n_silos: int,
    rng: np.random.Generator,
    *,
    n_true: int = 200,
    size: int = 20,
    dim: int = 10,
    shift: float = 0.5,
) -> tuple[list[kf.Posterior], NDArray[np.intp]]:
    """The same with 40 to 400 observations each, means moved by deviations, and no prior."""
    means = rng.normal(scale=np.sqrt(10.0), size=(n_true, dim))
    factors = rng.normal(size=(n_true, dim, dim))
    roots = np.linalg.cholesky(factors @ factors.transpose(0, 2, 1) / dim + 0.3 * np.eye(dim))
    family = kf.families.NormalWishart(dim)
    silos, truth = [], []
    for j in range(n_silos):
        chosen = rng.permutation(n_true)[:size]
        counts = rng.integers(40, 401, size=size)
        natural = []
        for component, count in zip(chosen, counts.tolist(), strict=True):
            root = roots[component]
            moved = means[component] + shift * root @ rng.normal(size=dim)
            x = moved + rng.normal(size=(count, dim)) @ root.T
            centred = x - x.mean(axis=0)
            scatter = (centred.T @ centred)[None]
            mean = x.mean(axis=0, keepdims=True)
            natural.append(family.natural(mean, [count], scatter, [count + dim]))
        counted = counts.astype(np.float64)
        silos.append(
            kf.Posterior(family, np.concatenate(natural), name=f"silo-{j}", counts=counted)
        )
        truth.append(chosen)
    return silos, np.concatenate(truth)
