"""What an observation tells of which of two Normals it is of."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from klfusion.model_size.two_normals import entropy, information, information_at_distance

FIRST, SECOND = np.array([0]), np.array([1])


def drawn(mean, covariance, share, n=200_000):
    """The same by simulation."""
    rng = np.random.default_rng(1)
    normals = [multivariate_normal(m, c) for m, c in zip(mean, covariance, strict=True)]
    first = rng.random(n) < share
    both = [normal.rvs(n, random_state=rng).reshape(n, -1) for normal in normals]
    x = np.where(first[:, None], both[0], both[1])
    odds = np.log(share / (1.0 - share)) + normals[0].logpdf(x) - normals[1].logpdf(x)
    missed = np.logaddexp(0.0, np.where(first, -odds, odds)).mean()
    return float(entropy(np.array([share]))[0] - missed)


def test_of_one_covariance():
    distance, share = np.array([0.0, 1.0, 3.0, 30.0]), np.array([0.5, 0.3, 0.3, 0.3])
    found = information_at_distance(distance, share)
    for d, s, told in zip(distance, share, found, strict=True):
        assert told == pytest.approx(drawn([[d], [0.0]], [[[1.0]], [[1.0]]], s), abs=4e-3)


@pytest.mark.parametrize("dim", [1, 2, 5, 20])
def test_points_and_quadrature_agree(dim):
    for distance in (0.5, 2.0, 4.0):
        direction = np.full(dim, dim**-0.5)
        mean = np.stack([distance * direction, np.zeros(dim)])
        expected = information_at_distance(np.array([distance]), np.array([0.3]))
        for covariance in (np.ones((2, dim)), np.stack([np.eye(dim)] * 2)):
            found = information((mean, covariance), FIRST, SECOND, np.array([0.3]))
            np.testing.assert_allclose(found, expected, atol=0.01)


@pytest.mark.parametrize("dim", [1, 3, 8])
def test_of_different_covariances(dim):
    rng = np.random.default_rng(dim)
    root = rng.normal(size=(2, dim, dim)) / np.sqrt(dim) + np.eye(dim)
    covariance = root @ root.swapaxes(1, 2)
    mean = rng.normal(size=(2, dim))
    found = information((mean, covariance), FIRST, SECOND, np.array([0.6]))
    assert found[0] == pytest.approx(drawn(mean, covariance, 0.6), abs=0.01)


def test_many_pairs_at_once_and_the_same_twice():
    rng = np.random.default_rng(0)
    mean, covariance = rng.normal(size=(13, 30)), rng.uniform(0.5, 2.0, size=(13, 30))
    a, b = np.triu_indices(13, k=1)  # more pairs than a block has
    share = np.full(len(a), 0.5)
    found = information((mean, covariance), a, b, share)
    one = information((mean, covariance), a[-1:], b[-1:], share[-1:])
    assert found[-1] == one[0]
    same = information((mean, covariance), FIRST, FIRST, np.array([0.5]))
    assert same[0] == pytest.approx(0.0, abs=1e-12)


def test_fewer_points_give_nearly_the_same():
    rng = np.random.default_rng(3)
    mean = rng.normal(size=(20, 3))
    covariance = np.stack([np.cov(rng.normal(size=(3, 12))) for _ in range(20)])
    a, b = np.triu_indices(20, k=1)
    share = rng.uniform(0.2, 0.8, size=len(a))
    few, many = (information((mean, covariance), a, b, share, n) for n in (262, 1024))
    np.testing.assert_allclose(few, many, atol=0.03)
