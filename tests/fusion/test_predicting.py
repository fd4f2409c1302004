"""Draws of the fused parameters, and which local components shape predictions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.mixture import GaussianMixture

import klfusion as kf
from klfusion.errors import KLFusionError
from klfusion.families.draws import draws
from klfusion.fusion.by_silo import BySilo
from klfusion.pooling import reduction
from tests.families.cases import every_case_with


def rates_of(shapes):
    family = kf.families.Gamma()
    prior = family.natural([1.0], [1.0])[0]
    return {
        name: kf.Posterior(family, family.natural(own, [10.0] * len(own)), prior=prior)
        for name, own in shapes.items()
    }


SILOS = {"a": [30, 900], "b": [910, 32], "c": [31, 250]}


def test_draws_of_sure_matches_are_those_of_the_posterior():
    fusion = kf.fuse(rates_of(SILOS), n_components=3)  # probabilities are unknown
    assert fusion.probability is None
    found = fusion.posterior_draws(4000)["rate"][..., 0]
    p = fusion.posterior.params()
    mean, deviation = p["shape"] / p["rate"], np.sqrt(p["shape"]) / p["rate"]
    np.testing.assert_allclose(found.mean(axis=0), mean[:, 0], rtol=0.03)
    np.testing.assert_allclose(found.std(axis=0), deviation[:, 0], rtol=0.1)
    again = fusion.posterior_draws(4000)["rate"][..., 0]
    assert (found == again).all()
    other = fusion.posterior_draws(4000, random_state=1)["rate"][..., 0]
    assert (found != other).all()


def test_a_doubtful_match_is_left_out_as_often_as_it_is_wrong():
    fusion = kf.fuse(rates_of({"a": [300], "b": [300], "c": [900]}), n_components=1)
    sure = BySilo([np.array([1.0]), np.array([1.0]), np.array([0.25])], fusion.silo_names)
    doubtful = replace(fusion, probability=sure)
    rate = doubtful.posterior_draws(4000)["rate"].ravel()
    # Three pooled have a rate of about 1498 / 28; the two that are sure, 599 / 19.
    with_all, without = 1498.0 / 28.0, 599.0 / 19.0
    assert np.mean(rate > (with_all + without) / 2) == pytest.approx(0.25, abs=0.03)
    assert np.median(rate) == pytest.approx(without, rel=0.05)
    # Where none would be left, all stay.
    none = replace(fusion, probability=BySilo([np.zeros(1)] * 3, fusion.silo_names))
    assert none.posterior_draws(100)["rate"].mean() == pytest.approx(with_all, rel=0.05)
    with pytest.raises(KLFusionError, match="keep_silos=True"):
        doubtful.without_silos().posterior_draws(10)


@pytest.mark.parametrize("covariance_type", ["full", "diag", "tied"])
def test_draws_of_point_estimates_lack_the_prior_of_the_comparison(covariance_type):
    """It is as wide as all data: here it would make variances a third larger."""
    rng = np.random.default_rng(0)
    silos = []
    for name in "abc":
        x = rng.permutation([-20.0, 0.0, 20.0] * 60)[:, None] + rng.normal(size=(180, 1))
        model = GaussianMixture(3, covariance_type=covariance_type, n_init=5, random_state=0)
        silos.append(kf.extract(model.fit(x), name=name, n_observations=180))
    fusion = kf.fuse(silos)
    precision = fusion.posterior_draws(2000)["precision"].reshape(2000, 3).mean(axis=0)
    variances = fusion.model().covariances_.ravel()
    np.testing.assert_allclose(precision * variances, 1.0, rtol=0.03)


def test_draws_of_a_regression_have_the_names_of_its_coefficients():
    cov = np.diag([0.1, 0.2])
    silos = [kf.coefficients([1.0, 0.5], cov, ["age", "dose"], name=name) for name in "ab"]
    found = kf.fuse(silos).posterior_draws(2000)
    assert {name: own.shape for name, own in found.items()} == {"age": (2000,), "dose": (2000,)}
    assert found["dose"].mean() == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("n", [0, 2.5, "many", True])
def test_a_number_of_draws_that_is_none_is_refused(n):
    with pytest.raises(KLFusionError, match="expected n to be an integer >= 1"):
        kf.fuse(rates_of(SILOS)).posterior_draws(n)


@every_case_with(kf.families.Family)
def test_every_family_has_draws(case):
    natural = case.draw(np.random.default_rng(0), 3)
    found = draws(case.family, natural, 5, np.random.default_rng(1))
    assert found
    for values in found.values():
        assert values.shape[:2] == (5, 3)
        assert np.isfinite(values).all()


@pytest.mark.parametrize("reduce", [reduction.by_components, reduction.by_words])
def test_a_component_without_a_match_has_responsibilities_and_shapes_nothing(reduce):
    family = kf.families.Dirichlet(3)
    statistics = np.array([[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.85, 0.1, 0.05]])
    counts = np.array([50.0, 50.0, 40.0])
    start = np.array([0, 1, -1])
    atoms = reduction.Atoms(family, np.ones(3), statistics, counts, start, 2)
    natural, share = reduce(atoms)
    np.testing.assert_allclose(natural.sum(), counts[:2].sum() + 6.0)
    np.testing.assert_allclose(share.sum(axis=1), 1.0)
    assert share[2].argmax() == 0


def test_levels_and_silos_are_checked():
    x = np.random.default_rng(0).normal(size=(40, 2))
    data = (x, x[:, 0] + x[:, 1] ** 2)
    fusion = kf.fuse([kf.extract(LinearRegression(), name=n, data=data) for n in "ab"])
    for level in (95, -1, "x", np.nan):
        with pytest.raises(kf.KLFusionError, match="expected level to be a number > 0 and < 1"):
            fusion.model().predict_interval(x, level=level)
    for silo in (5, "c"):
        with pytest.raises(kf.KLFusionError, match="expected a silo of 'a', 'b', or a position"):
            fusion.labels[silo]
    assert [name for name, own in fusion.labels.items() if own.tolist() == [0]] == ["a", "b"]
