"""Rows of a few hospitals, and every way to divide them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

pd = pytest.importorskip("pandas", reason="rows of hospitals are data frames")

COLUMNS = ["age", "dose", "score"]
TRUE = np.array([-0.4, 0.9, -0.6, 0.3])  # intercept first


def rows(n, rng, intercept=-0.4):
    """Columns as a data frame, and the linear predictor of each row."""
    x = pd.DataFrame(rng.normal(size=(n, 3)), columns=COLUMNS)
    return x, intercept + x.to_numpy() @ TRUE[1:]


def patients(n, rng, intercept=-0.4):
    """Columns and an outcome of 0 or 1."""
    x, predictor = rows(n, rng, intercept)
    return x, (rng.random(n) < expit(predictor)).astype(int)


def divided(x, y, n_silos, rng):
    """The rows at random silos, each with one row at least."""
    silo = rng.integers(n_silos, size=len(y))
    silo[:n_silos] = np.arange(n_silos)
    return {f"h{j}": (x[silo == j], y[silo == j]) for j in range(n_silos)}
