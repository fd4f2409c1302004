"""Small silos the tests share: clearly separated components, each seen by some silos."""

from __future__ import annotations

import numpy as np

import klfusion as kf


def rate_silos(
    n_silos: int = 6, n_true: int = 5, seed: int = 0, noise: float = 0.02
) -> tuple[list[kf.Posterior], list[np.ndarray]]:
    """Gamma posteriors around well-separated rates, and the true component of each."""
    rng = np.random.default_rng(seed)
    family = kf.families.Gamma(dim=3)
    rates = np.exp(rng.normal(scale=2.0, size=(n_true, 3)))
    silos, truth = [], []
    for j in range(n_silos):
        chosen = rng.permutation(n_true)[: rng.integers(2, n_true + 1)]
        exposure = rng.uniform(50, 500, size=(len(chosen), 1))
        local = rates[chosen] * np.exp(rng.normal(scale=noise, size=(len(chosen), 3)))
        natural = family.natural(shape=1.0 + local * exposure, rate=np.repeat(exposure, 3, axis=1))
        silos.append(
            kf.Posterior(family, natural, name=f"silo-{j}", counts=np.full(len(chosen), 100.0))
        )
        truth.append(chosen)
    return silos, truth


def normal_wishart_silos(
    n_silos: int = 8, n_true: int = 4, dim: int = 3, seed: int = 0, noise: float = 0.1
) -> tuple[list[kf.Posterior], list[np.ndarray]]:
    """Normal-Wishart posteriors of mixtures, and the true component of each."""
    rng = np.random.default_rng(seed)
    family = kf.families.NormalWishart(dim)
    means = rng.normal(scale=3.0, size=(n_true, dim))
    scales = [_spd(rng, dim) for _ in range(n_true)]
    silos, truth = [], []
    for j in range(n_silos):
        chosen = rng.permutation(n_true)[: rng.integers(2, n_true + 1)]
        count = rng.uniform(40, 200, size=len(chosen))
        natural = family.natural(
            mean=means[chosen] + rng.normal(scale=noise, size=(len(chosen), dim)),
            kappa=1.0 + count,
            scale_inv=np.stack([scales[c] * n for c, n in zip(chosen, count, strict=True)]),
            dof=dim + count,
        )
        silos.append(kf.Posterior(family, natural, name=f"silo-{j}", counts=count))
        truth.append(chosen)
    return silos, truth


def _spd(rng: np.random.Generator, dim: int) -> np.ndarray:
    a = rng.normal(size=(dim, dim + 2))
    return a @ a.T / dim + 0.1 * np.eye(dim)
