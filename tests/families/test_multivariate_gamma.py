"""Multivariate gamma functions against sums of gamma functions."""

import numpy as np
import pytest
from scipy.special import digamma, gammaln

from klfusion.families.multivariate_gamma import digammas, log_gamma


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 9, 10, 41])
@pytest.mark.parametrize("repeats", [1, 40])  # few, and many at once
def test_values_are_those_of_sums(dim, repeats):
    a = 0.5 * (dim - 1) + np.tile([1e-6, 0.1, 0.5, 1.3, 40.0, 1e4, 1e8], repeats)
    each = a[:, None] - 0.5 * np.arange(dim)
    expected = gammaln(each).sum(axis=1) + 0.25 * dim * (dim - 1) * np.log(np.pi)
    np.testing.assert_allclose(log_gamma(a, dim), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(digammas(a, dim), digamma(each).sum(axis=1), rtol=1e-12)


def test_outside_of_the_domain_nothing_else_changes():
    a = np.concatenate([[1.2], np.full(300, 7.0)])
    inside = log_gamma(np.full(300, 7.0), 5)
    np.testing.assert_allclose(log_gamma(a, 5)[1:], inside)
    assert np.isfinite(digammas(a, 5)[1:]).all()
