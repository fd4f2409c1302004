"""Exact draws of a linear regression."""

from __future__ import annotations

import numpy as np


def conjugate(x, y, rng, n=20_000):
    """Four chains of independent draws, with flat priors of coefficients and of the noise."""
    precision = x.T @ x
    beta = np.linalg.solve(precision, x.T @ y)
    rss, dof = np.square(y - x @ beta).sum(), len(y) - x.shape[1] - 1
    sigma = np.sqrt(rss / rng.chisquare(dof, (4, n // 4)))
    factor = np.linalg.cholesky(np.linalg.inv(precision))
    noise = rng.normal(size=(4, n // 4, x.shape[1])) @ factor.T
    return {"beta": beta + sigma[..., None] * noise, "sigma": sigma}
