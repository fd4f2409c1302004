"""How many deviations lie between components."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import mahalanobis

import klfusion as kf

FIRST, SECOND = np.array([0]), np.array([1])


@pytest.mark.parametrize("dim", [1, 4])
def test_normal_wisharts_have_mahalanobis_distances(dim):
    rng = np.random.default_rng(0)
    family, scatter = kf.families.NormalWishart(dim), []
    for _ in range(2):
        x = rng.normal(size=(50, dim))
        scatter.append(x.T @ x)
    mean = rng.normal(size=(2, dim))
    natural = family.natural(mean, [50.0, 80.0], scatter, [50.0, 80.0])
    pooled = (scatter[0] + scatter[1]) / 130.0
    expected = mahalanobis(mean[0], mean[1], np.linalg.inv(pooled))
    np.testing.assert_allclose(family.separation(natural, FIRST, SECOND), [expected], rtol=1e-6)


@pytest.mark.parametrize("name", ["NormalGamma", "IsotropicNormalGamma"])
def test_diagonal_and_isotropic_ones_agree_with_them(name):
    dim, variance = 3, 4.0
    mean = np.array([[0.0, 0.0, 0.0], [2.0, 0.0, 6.0]])
    family = getattr(kf.families, name)(dim)
    shape = np.array([5.0, 15.0])
    of_all = [1.0, 1.0, 1.0] if name == "NormalGamma" else 1.0  # one for each dimension, or one
    rate = np.multiply.outer(variance * shape, of_all)
    natural = family.natural(mean, [10.0, 30.0], shape, rate)
    full = kf.families.NormalWishart(dim)
    counts = np.array([10.0, 30.0])
    scatter = variance * counts[:, None, None] * np.eye(3)
    expected = full.separation(full.natural(mean, counts, scatter, counts), FIRST, SECOND)
    np.testing.assert_allclose(family.separation(natural, FIRST, SECOND), expected, rtol=1e-6)
