"""Feature maps that need no data."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

import klfusion as kf
from klfusion.learners import ConvolutionalFeatures, FourierFeatures

IMAGES = np.random.default_rng(0).uniform(size=(7, 28, 28))


def test_fourier_features_have_the_kernel():
    x = np.random.default_rng(0).normal(size=(20, 3))
    features = FourierFeatures(20_000, length_scale=2.0).transform(x)
    np.testing.assert_allclose(features @ features.T, rbf_kernel(x, gamma=1 / 8), atol=0.05)


def test_features_do_not_depend_on_other_rows():
    features = ConvolutionalFeatures(3)
    together = features.fit(IMAGES).transform(IMAGES)
    np.testing.assert_allclose(features.transform(IMAGES[2:4]), together[2:4], rtol=1e-5)
    np.testing.assert_array_equal(features.transform(IMAGES.reshape(7, -1)), together)


def test_features_are_averages_of_rectified_responses():
    features = ConvolutionalFeatures(2, sides=(7,), cells=3)
    (bank,) = features._banks()
    np.testing.assert_allclose(bank.sum(axis=(1, 2)), 0.0, atol=1e-5)
    padded = np.pad(IMAGES[0], 1)
    places = range(0, 24, 2)
    windows = [[padded[i : i + 7, j : j + 7] for j in places] for i in places]
    response = np.maximum(np.einsum("ijab,fab->ijf", windows, bank), 0.0)
    expected = response.reshape(3, 4, 3, 4, 2).mean(axis=(1, 3)).ravel()
    np.testing.assert_allclose(features.transform(IMAGES[:1])[0], expected, rtol=1e-4)


def test_another_seed_gives_other_features():
    one, other = (ConvolutionalFeatures(2, random_state=s).transform(IMAGES) for s in (0, 1))
    assert np.abs(one - other).max() > 0.01


def test_bad_input_is_named():
    with pytest.raises(kf.KLFusionError, match="odd numbers"):
        ConvolutionalFeatures(sides=(4,)).transform(IMAGES)
    with pytest.raises(kf.KLFusionError, match="of 11 pixels at least"):
        ConvolutionalFeatures().transform(IMAGES[:, :8, :8])
    with pytest.raises(kf.KLFusionError, match="length_scale"):
        FourierFeatures(10, length_scale=0.0).transform(np.zeros((2, 3)))
    for sides in ((), 5, "abc", (5.0,)):
        with pytest.raises(kf.KLFusionError, match="odd numbers"):
            ConvolutionalFeatures(sides=sides).transform(IMAGES)
    for x in (np.zeros(3), [["a", "b"]], None):
        with pytest.raises(kf.KLFusionError, match="expected rows"):
            FourierFeatures(10).transform(x)
    with pytest.raises(kf.KLFusionError, match="expected rows of numbers"):
        ConvolutionalFeatures(2).transform([["a"] * 784])


@pytest.mark.parametrize("seed", [None, np.random.default_rng(0), -1, 0.5])
def test_a_seed_is_a_number_that_sites_can_agree_on(seed):
    for features in (ConvolutionalFeatures(2, random_state=seed), FourierFeatures(2)):
        features.random_state = seed
        with pytest.raises(kf.KLFusionError, match="random_state to be an integer >= 0"):
            features.transform(IMAGES.reshape(7, -1))
