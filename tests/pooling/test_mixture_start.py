"""The mixture with which the reduction of Gaussian mixtures begins."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.mixture import BayesianGaussianMixture

import klfusion as kf
from experiments.density import density
from klfusion.families import NormalGamma, NormalWishart
from klfusion.pooling.mixture_start import started
from klfusion.pooling.reduction import Atoms

CLUSTERS = 12.0 * np.eye(6)[:4]  # means, of unit covariance
HELD = [[0], [1], [2], [0], [1], [2], [0, 1], [3], [2, 3]]  # clusters of each local component


def moments(held):
    """Of observations from as many of each cluster."""
    own = CLUSTERS[held]
    mean = own.mean(axis=0)
    return mean, np.eye(6) + (own - mean).T @ (own - mean) / len(held)


def atoms(start, size, held=HELD, n=300.0, centre=0.0, scale=1.0, family=None):
    family = NormalWishart(6) if family is None else family
    mean, covariance = (np.stack(part) for part in zip(*map(moments, held), strict=True))
    mean, covariance = centre + scale * mean, scale**2 * covariance
    statistics = family.observed(mean, covariance, np.ones(len(held)))
    prior = family.observed(
        np.full((1, 6), centre), scale**2 * np.eye(6)[None] * 10.0, np.full(1, 8.0)
    )[0]
    return Atoms(family, prior, statistics, np.full(len(held), n), np.array(start), size)


def means(family, total):
    return family.observation_moments(total)[0]


def test_a_matching_that_is_right_stays():
    own = atoms([0, 1, 2, 0, 1, 2, -1, 3, -1], 4)
    total, left_out = started(own)
    np.testing.assert_allclose(means(own.family, total), CLUSTERS, atol=0.15)
    assert left_out.tolist() == [False] * 6 + [True, False, True]


def test_a_cluster_that_only_left_out_components_hold_becomes_a_component():
    """The fourth global component is a mixture of two others, and the fourth cluster is in none."""
    own = atoms([0, 1, 2, 0, 1, 2, 3, -1, -1], 4)
    total, left_out = started(own)
    np.testing.assert_allclose(means(own.family, total), CLUSTERS, atol=0.15)
    assert left_out.tolist() == [False] * 6 + [True, False, True]
    # Without the two that others describe, 900 observations are of four clusters.
    np.testing.assert_allclose(total[:, 6], [600.0, 600.0, 600.0, 300.0], rtol=0.05)


def test_a_component_of_three_clusters_that_nothing_describes_is_kept():
    own = atoms([0, 1, 2, -1], 3, [[0], [1], [2], [0, 3]])
    _, left_out = started(own)
    assert not left_out.any()


def test_units_do_not_matter():
    start = [0, 1, 2, 0, 1, 2, 3, -1, -1]
    total, left_out = started(atoms(start, 4))
    own = atoms(start, 4, centre=1e4, scale=1e-2)
    other, left_out_too = started(own)
    assert left_out.tolist() == left_out_too.tolist()
    found = (means(own.family, other) - 1e4) / 1e-2
    np.testing.assert_allclose(found, means(own.family, total), atol=1e-3)


def test_variances_without_correlations():
    """Two clusters in one component are correlated, which a diagonal covariance is not."""
    own = atoms([0, 1, 2, 0, 1, 2, -1], 3, [*HELD[:6], [3]], family=NormalGamma(6))
    total, left_out = started(own)
    assert not left_out.any()
    assert means(own.family, total).shape == (3, 6)


def test_components_of_few_observations_do_not_break_up_a_cluster():
    rng = np.random.default_rng(0)
    family = NormalWishart(2)
    points = rng.normal(size=(40, 12, 2)) + np.repeat([[0.0, 0.0], [9.0, 0.0]], 20, axis=0)[:, None]
    mean = points.mean(axis=1)
    away = points - mean[:, None]
    covariance = np.einsum("nki,nkj->nij", away, away) / 12
    statistics = family.observed(mean, covariance, np.ones(40))
    prior = family.observed(np.array([[4.5, 0.0]]), 20.0 * np.eye(2)[None], np.full(1, 4.0))[0]
    start = np.repeat([0, 1], 20)
    own = Atoms(family, prior, statistics, np.full(40, 12.0), start, 2)
    total, left_out = started(own)
    assert not left_out.any()
    np.testing.assert_allclose(means(family, total), [[0, 0], [9, 0]], atol=0.3)
    np.testing.assert_allclose(total[:, 2], 240.0, rtol=1e-2)


@pytest.mark.parametrize("dim", [5, 15])
def test_tied_mixtures_of_small_silos(dim):
    """A component's own share of the scatter need not be a covariance; those of all add up."""
    rng = np.random.default_rng(dim)
    centres = rng.normal(scale=4.0, size=(4, dim))

    def draw(n, own):
        return centres[rng.choice(own, n)] + rng.normal(size=(n, dim))

    def fit(x, size):
        kind = BayesianGaussianMixture(
            n_components=size, covariance_type="tied", random_state=0, n_init=5
        )
        return kind.fit(x)

    silos = {f"silo-{j}": draw(60, rng.choice(4, 3, replace=False)) for j in range(8)}
    models = {name: fit(x, 3) for name, x in silos.items()}
    test, pooled = draw(2000, np.arange(4)), fit(np.concatenate([*silos.values()]), 4)
    fusion = kf.fuse(models, n_components=4)
    product = kf.fuse(models, n_components=4, pooling="product")
    for model in (fusion.model(predictive=True), fusion.model(), product.model()):
        assert density(model, test) > density(pooled, test) - 0.01


@pytest.mark.parametrize("covariance_type", ["full", "diag", "spherical"])
def test_a_site_that_mixes_two_clusters_costs_a_prediction_nothing(covariance_type):
    """In eight dimensions, where one variance grows little by the distance of two clusters."""
    rng = np.random.default_rng(0)
    kinds = 4.0 * rng.normal(size=(3, 8))

    def draw(n):
        return kinds[rng.choice(3, n, p=[0.2, 0.3, 0.5])] + rng.normal(size=(n, 8))

    fits = {
        name: BayesianGaussianMixture(
            n_components=size, covariance_type=covariance_type, n_init=3, random_state=0
        ).fit(draw(300))
        for name, size in (("a", 3), ("b", 3), ("c", 2))
    }
    fusion, x = kf.fuse(fits), draw(2000)
    assert fusion.n_components == 3
    assert fusion.model(predictive=True).score(x) > fusion.model().score(x) - 0.05
    order = np.argsort([np.linalg.norm(kinds - m, axis=1).argmin() for m in fusion.model().means_])
    np.testing.assert_allclose(fusion.model().weights_[order], [0.2, 0.3, 0.5], atol=0.04)
