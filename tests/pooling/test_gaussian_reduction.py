"""Gaussian mixtures reduced to the few components that predict best."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.mixture import BayesianGaussianMixture

import klfusion as kf
from experiments.density import density
from klfusion.families import NormalWishart
from klfusion.pooling.gaussian_reduction import by_draws
from klfusion.pooling.reduction import Atoms


def fits(x, n_components):
    return BayesianGaussianMixture(n_components=n_components, random_state=0, max_iter=500).fit(x)


def test_what_others_have_apart_lies_inside_a_component():
    """One silo has one Gaussian for what the others know to be two components."""
    family = NormalWishart(2)
    apart = np.array([[-3.0, 0.0], [3.0, 0.0]])
    mean = np.concatenate([[[0.0, 0.0]], *[apart] * 4])
    covariance = np.array([np.diag([10.0, 1.0]), *[np.eye(2)] * 8])
    counts, silo = np.array([600.0] + [300.0] * 8), np.array([0, 1, 1, 2, 2, 3, 3, 4, 4])
    statistics = family.observed(mean, covariance, np.ones(9))
    prior = family.natural(np.zeros((1, 2)), [1e-3], np.eye(2)[None], [2.0])[0]
    start = np.array([0] + [0, 1] * 4)
    atoms = Atoms(family, prior, statistics, counts, start, 2)
    sent = prior + statistics * counts[:, None]
    natural, share = by_draws(atoms, silo, sent, np.random.default_rng(0))
    np.testing.assert_allclose(share[0], 0.5, atol=0.1)
    found, spread = family.observation_moments(natural)
    np.testing.assert_allclose(found, apart, atol=0.1)
    # With halves of that Gaussian the variances are 1.8 and 1.4.
    np.testing.assert_allclose(spread[:, 0, 0], 1.0, atol=0.25)


def test_a_component_of_one_silo_keeps_its_moments():
    family = NormalWishart(2)
    mean = np.array([[0.0, 0.0], [0.2, 0.1], [40.0, 0.0]])
    covariance = np.array([np.eye(2), np.eye(2), [[2.0, 0.9], [0.9, 1.0]]])
    statistics = family.observed(mean, covariance, np.ones(3))
    counts = np.array([300.0, 300.0, 200.0])
    prior = family.natural(np.zeros((1, 2)), [1e-3], np.eye(2)[None], [2.0])[0]
    atoms = Atoms(family, prior, statistics, counts, np.array([0, 0, 1]), 2)
    sent = prior + statistics * counts[:, None]
    natural, share = by_draws(atoms, np.array([0, 1, 1]), sent, np.random.default_rng(0))
    np.testing.assert_allclose(share, [[1, 0], [1, 0], [0, 1]], atol=1e-9)
    np.testing.assert_allclose(natural[1], sent[2], rtol=1e-6, atol=1e-9)
    pooled = prior + (statistics * counts[:, None])[:2].sum(axis=0)
    np.testing.assert_allclose(natural[0], pooled, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("entries", [1, 5_000])
def test_silos_in_blocks_give_a_mixture_that_predicts_as_well(monkeypatch, entries):
    rng = np.random.default_rng(1)
    means = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])

    def draw(n):
        return means[rng.integers(3, size=n)] + rng.normal(size=(n, 2))

    models, test = {f"silo-{j}": fits(draw(90), 4) for j in range(6)}, draw(3000)
    fusion = kf.fuse(models, n_components=3)
    whole = density(fusion.model(predictive=True), test)
    monkeypatch.setattr("klfusion.pooling.gaussian_reduction.BLOCK_ENTRIES", entries)
    assert density(fusion.model(predictive=True), test) == pytest.approx(whole, abs=0.02)


def test_a_component_that_was_left_out_has_shares_and_shapes_nothing():
    family = NormalWishart(1)
    mean = np.array([[-4.0], [4.0], [-4.0], [4.0], [0.0]])
    variance = np.array([1.0, 1.0, 1.0, 1.0, 17.0])[:, None, None]
    statistics, counts = family.observed(mean, variance, np.ones(5)), np.full(5, 200.0)
    prior = family.natural([[0.0]], [1e-3], [[[1.0]]], [1.0])[0]
    start, silo = np.array([0, 1, 0, 1, -1]), np.array([0, 0, 1, 1, 2])
    atoms = Atoms(family, prior, statistics, counts, start, 2)
    sent = prior + statistics * counts[:, None]
    natural, share = by_draws(atoms, silo, sent, np.random.default_rng(0))
    np.testing.assert_allclose(share[4], 0.5, atol=0.05)
    np.testing.assert_allclose(family.effective_size(natural), 400.0, atol=3.0)
    _, spread = family.observation_moments(natural)
    np.testing.assert_allclose(spread.ravel(), 1.0, atol=0.1)


def test_a_component_that_was_left_out_is_fitted_where_no_other_describes_it():
    family = NormalWishart(1)
    mean, counts = np.array([[-4.0], [4.0], [-4.0], [4.0], [60.0]]), np.full(5, 200.0)
    statistics = family.observed(mean, np.ones((5, 1, 1)), np.ones(5))
    prior = family.natural([[0.0]], [1e-3], [[[1.0]]], [1.0])[0]
    start, silo = np.array([0, 1, 0, 1, -1]), np.array([0, 0, 1, 1, 1])
    atoms = Atoms(family, prior, statistics, counts, start, 2)
    sent = prior + statistics * counts[:, None]
    natural, share = by_draws(atoms, silo, sent, np.random.default_rng(0))
    np.testing.assert_allclose(family.effective_size(natural).sum(), 1000.0, atol=3.0)
    found, spread = family.observation_moments(natural)
    far = share[4].argmax()
    assert abs(found[far, 0] - 60.0) < 3.0 * np.sqrt(spread[far, 0, 0])


@pytest.mark.parametrize("covariance_type", ["diag", "spherical"])
def test_variances_alone_do_not_share_out_components_far_apart(covariance_type):
    """In many dimensions each variance of two clusters together is little more than of one."""
    rng = np.random.default_rng(5)
    means = 1.3 * rng.normal(size=(4, 20))  # any two are six deviations apart or more
    sees = {"a": [0, 1, 2], "b": [1, 2, 3], "c": [0, 2, 3], "d": [0, 1, 3]}
    draw = {s: means[rng.choice(k, 300)] + rng.normal(size=(300, 20)) for s, k in sees.items()}
    fusion = kf.fuse(
        {
            name: BayesianGaussianMixture(
                n_components=3, covariance_type=covariance_type, random_state=0
            ).fit(x)
            for name, x in draw.items()
        }
    )
    assert fusion.n_components == 4
    for share in fusion.predictive().responsibilities:
        assert share.max(axis=1).min() > 0.95
    x = means[rng.choice(4, 1000)] + rng.normal(size=(1000, 20))
    both = [fusion.model(predictive=p).score(x) for p in (True, False)]
    assert both[0] > both[1] - 0.01
