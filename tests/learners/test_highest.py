"""Probabilities of scores to be the highest, once noise is added."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t

from klfusion.learners._highest import _DEGREES, _DIRECTIONS, highest


def covariance(c, seed=0):
    root = np.random.default_rng(seed).normal(size=(c, c)) * np.linspace(0.5, 1.5, c)
    return root @ root.T / c


def test_two_classes_have_the_distribution_of_student():
    noise = covariance(2)
    scores = np.column_stack([np.linspace(-3.0, 3.0, 50), np.zeros(50)])
    deviation = np.sqrt(noise[0, 0] + noise[1, 1] - 2.0 * noise[0, 1])
    scale = deviation * np.sqrt((_DEGREES - 2) / _DEGREES)
    expected = t.cdf(scores[:, 0] / scale, _DEGREES)
    np.testing.assert_allclose(highest(scores, noise)[:, 0], expected, atol=1e-12)


def test_more_classes_have_the_shares_of_draws():
    rng, c, n_draws = np.random.default_rng(1), 5, 100_000
    scores, noise = rng.normal(size=(20, c)), covariance(c)
    draws = rng.multivariate_normal(np.zeros(c), noise, size=n_draws)
    draws *= np.sqrt((_DEGREES - 2) / rng.chisquare(_DEGREES, size=(n_draws, 1)))
    for row, found in zip(scores, highest(scores, noise), strict=True):
        shares = np.bincount((row + draws).argmax(axis=1), minlength=c) / n_draws
        np.testing.assert_allclose(found, shares, atol=0.015)


@pytest.mark.parametrize("c", [2, 3, 10, 20])
def test_they_sum_to_one_and_are_even_without_a_difference(c):
    found = highest(np.zeros((3, c)), np.eye(c))
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    of_chance = np.sqrt((1.0 / c) * (1.0 - 1.0 / c) / _DIRECTIONS)
    np.testing.assert_allclose(found, 1.0 / c, atol=3.0 * of_chance)


def test_noise_that_all_share_is_without_effect():
    scores, noise = np.random.default_rng(2).normal(size=(10, 4)), covariance(4)
    expected = highest(scores, noise)
    np.testing.assert_allclose(highest(scores + 3.0, noise + 7.0), expected, atol=1e-10)


def test_without_noise_the_highest_is_sure():
    found = highest(np.array([[0.0, 1.0, 0.5]]), np.zeros((3, 3)))
    np.testing.assert_array_equal(found, [[0.0, 1.0, 0.0]])
    np.testing.assert_array_equal(highest(np.ones((2, 1)), np.ones((1, 1))), 1.0)
