"""The variance between silos solves its equation, whatever its scale."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from klfusion.pooling.random_effects import Locations, within_silos


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


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_covariances_of_one_shape_per_label_are_inverted_once(spread):
    rng, n, dim = np.random.default_rng(1), 30, 3
    family = kf.families.NormalWishart(dim)
    labels = np.concatenate([np.arange(4), rng.integers(4, size=n - 4)])
    kappa, factor = rng.uniform(5.0, 200.0, size=n), rng.normal(size=(n, dim, 2 * dim))
    mean = 3.0 * rng.normal(size=(4, dim))[labels] + spread * rng.normal(size=(n, dim))
    scatter = kappa[:, None, None] * factor @ factor.transpose(0, 2, 1)
    natural = family.natural(mean, kappa, scatter, kappa + dim)
    weights, like = rng.uniform(0.5, 2.0, size=n), within_silos(family, natural, labels, 4)
    found = Locations.of(family, natural, weights, labels, like)
    own = family.location_covariance(natural, like[labels])[:, None]
    each = Locations(mean, own, weights, labels)
    np.testing.assert_allclose(found.between_silos, each.between_silos, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.widened(), each.widened(), rtol=1e-9)
    prior = family.location_covariance(like)
    np.testing.assert_allclose(found.widened(prior), each.widened(prior), rtol=1e-9)
    for ours, theirs in zip(found.least_squares(), each.least_squares(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
