"""The gamma functions agree with SciPy's, over the whole range, however blocks fall."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from klfusion.families.log_gamma import digamma, sum_log_gamma

RANGE = np.concatenate([10.0 ** np.linspace(-300, 29, 4000), np.linspace(0.01, 30.0, 4000)])


def test_log_gamma_agrees():
    expected = special.gammaln(RANGE)
    found = sum_log_gamma(RANGE[:, None])
    np.testing.assert_allclose(found, expected, rtol=1e-14, atol=2e-14)


def test_log_gamma_of_large_numbers_agrees():
    large = 10.0 ** np.linspace(2, 29, 4000)
    found = sum_log_gamma(large[:, None])
    np.testing.assert_allclose(found, special.gammaln(large), rtol=1e-14)


def test_digamma_agrees():
    expected = special.digamma(RANGE)
    found = digamma(RANGE[:, None])[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("shape", [(3, 1), (700, 60), (2, 16384), (3, 40_001), (0, 5)])
def test_blocks(shape):
    x = np.random.default_rng(0).gamma(0.3, 10.0, size=shape) + 0.01
    expected = special.gammaln(x).sum(axis=1)
    np.testing.assert_allclose(sum_log_gamma(x), expected, rtol=1e-12)
    found = digamma(x)
    np.testing.assert_allclose(found, special.digamma(x), rtol=1e-13, atol=1e-13)


def test_columns_in_another_order_of_memory():
    x = np.random.default_rng(0).gamma(2.0, size=(50, 30)).T
    np.testing.assert_allclose(sum_log_gamma(x), special.gammaln(x).sum(axis=1))


def test_too_large_for_the_product_and_zero():
    large = np.array([[1e31, 2.0], [1e200, 3.0]])
    np.testing.assert_allclose(sum_log_gamma(large), special.gammaln(large).sum(axis=1))
    np.testing.assert_allclose(digamma(large), special.digamma(large))
    assert sum_log_gamma(np.zeros((1, 1)))[0] == np.inf


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.49, 0.51])
@pytest.mark.parametrize("words", [9_000, 40_001])
def test_rows_with_most_numbers_at_the_least_one(share, words):
    rng = np.random.default_rng(1)
    x = np.broadcast_to(rng.gamma(2.0, size=(6, 1)), (6, words)).copy()
    off = rng.random(x.shape) < share
    x[off] += rng.gamma(0.5, 20.0, size=off.sum())
    np.testing.assert_allclose(sum_log_gamma(x), special.gammaln(x).sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(digamma(x), special.digamma(x), rtol=1e-13, atol=1e-13)
    x[2, 7] = np.nan
    assert np.isnan(digamma(x)[2, 7])
    np.testing.assert_array_equal(np.isnan(digamma(x)), np.isnan(x))
    np.testing.assert_array_equal(np.isnan(sum_log_gamma(x)), np.isnan(x).any(axis=1))
