"""Sums of logarithms by products of four, over the whole range."""

from __future__ import annotations

import numpy as np
import pytest

from klfusion.families.normal import sum_log


@pytest.mark.parametrize("width", [1, 3, 4, 7, 795])
@pytest.mark.parametrize("spread", [1.0, 60.0, 150.0, 300.0])
def test_sums_agree_with_those_of_logarithms(width, spread):
    x = 10.0 ** np.random.default_rng(width).uniform(-spread, spread, size=(20, width))
    expected = np.log(x).sum(axis=1)
    np.testing.assert_allclose(sum_log(x), expected, rtol=1e-13, atol=1e-11)


def test_products_that_are_subnormal_are_not_used():
    x = np.full((1, 4), 1e-80)
    np.testing.assert_allclose(sum_log(x), [4.0 * np.log(1e-80)], rtol=1e-15)
    with np.errstate(divide="ignore"):
        assert sum_log(np.array([[1.0, 0.0, 1.0, 1.0]]))[0] == -np.inf
    assert np.isnan(sum_log(np.array([[1.0, np.nan, 1.0, 1.0]]))[0])
