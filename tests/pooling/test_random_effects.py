"""The variance between silos solves its equation, whatever its scale."""

from __future__ import annotations

import numpy as np
import pytest

from klfusion.pooling.random_effects import Locations


@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1.0, 1e8])
@pytest.mark.parametrize("spread", [0.0, 2.0, 6.0])
def test_weighted_squares_add_up_to_their_degrees_of_freedom(scale, spread):
    rng, n, dim = np.random.default_rng(0), 40, 5
    labels = np.concatenate([np.arange(3), rng.integers(3, size=n - 3)])
    own = np.exp(rng.normal(0.0, spread, size=(n, dim)))
    x = 10.0 * rng.normal(size=(3, dim))[labels] + rng.normal(size=(n, dim)) * np.sqrt(own + scale)
    found = Locations(x, own[:, :, None, None], np.ones(n), labels).between_silos

    def squares(column, variance):
        weights = 1.0 / (own[:, column] + variance)
        mean = np.bincount(labels, weights * x[:, column]) / np.bincount(labels, weights)
        return (weights * (x[:, column] - mean[labels]) ** 2).sum()

    for column, variance in enumerate(found):
        if variance == 0.0:
            assert squares(column, 0.0) <= n - 3
        else:
            assert squares(column, variance) == pytest.approx(n - 3, rel=1e-9)
