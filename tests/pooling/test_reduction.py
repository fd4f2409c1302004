"""Local components reduced to the few that predict best."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

import klfusion as kf
from experiments.density import density
from klfusion.families.gaussian import GaussianPosterior
from klfusion.posteriors.structure.structure import scatter
from tests.families.cases import every_case_with

TYPES = ["full", "tied", "diag", "spherical"]


def silos_of(seed=0, covariance_type="full", n_silos=8, n_points=60, guess=4):
    """Three overlapping components; silos guess one more, so that fits cut them differently."""
    rng = np.random.default_rng(seed)
    means = np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]])

    def draw(n):
        return means[rng.integers(3, size=n)] + rng.normal(size=(n, 2))

    models = {
        f"silo-{j}": BayesianGaussianMixture(
            n_components=guess, covariance_type=covariance_type, random_state=j, max_iter=500
        ).fit(draw(n_points))
        for j in range(n_silos)
    }
    return models, draw(5000)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_it_predicts_better_than_averages_and_who_contributed_what_adds_up(covariance_type):
    models, test = silos_of(covariance_type=covariance_type)
    fusion = kf.fuse(models, n_components=4)
    found = fusion.predictive()
    assert found.posterior.n_components == 4
    averaged = kf.fuse(models, n_components=4, pooling="average").model()
    assert density(found.model(), test) > density(averaged, test)
    total = np.zeros(4)
    for name, model in models.items():
        share = found.responsibilities[name]
        assert share.shape == (4, 4)
        np.testing.assert_allclose(share.sum(axis=1), 1.0)
        total += share.T @ kf.extract(model, name=name).counts
    np.testing.assert_allclose(found.posterior.counts, total)
    assert found.posterior.counts.sum() == pytest.approx(8 * 60)


def test_equal_input_gives_equal_models_in_any_order():
    models, _ = silos_of(seed=1)
    one = kf.fuse(models, n_components=3).predictive()
    again = kf.fuse(dict(reversed(models.items())), n_components=3).predictive()
    naturals = one.posterior.natural, again.posterior.natural
    orders = [np.argsort(eta[:, 0]) for eta in naturals]  # global components have other numbers
    sorted_ = [eta[order] for eta, order in zip(naturals, orders, strict=True)]
    np.testing.assert_allclose(*sorted_, rtol=1e-7)
    shares = (found.responsibilities["silo-2"] for found in (one, again))
    sorted_ = [share[:, order] for share, order in zip(shares, orders, strict=True)]
    np.testing.assert_allclose(*sorted_, atol=1e-7)


def test_well_separated_components_are_the_pooled_posterior_but_for_the_prior():
    rng = np.random.default_rng(0)
    means = np.array([[-20.0, 0.0], [20.0, 0.0]])
    models = {
        name: BayesianGaussianMixture(n_components=2, random_state=0).fit(
            np.repeat(means, 100, axis=0) + rng.normal(size=(200, 2))
        )
        for name in "abc"
    }
    fusion = kf.fuse(models)
    product, found = kf.fuse(models, pooling="product").posterior, fusion.predictive().posterior
    added, wanted = (p.natural - p.prior for p in (found, product))
    np.testing.assert_allclose(added, wanted, rtol=0.01, atol=0.1)


@pytest.mark.parametrize("covariance_type", ["full", "diag", "spherical"])
def test_the_prior_of_a_prediction_looks_like_components(covariance_type):
    """The silos' own is as wide as all observations, and its mean in the middle of them."""
    rng = np.random.default_rng(0)
    means = np.array([[-20.0, 0.0], [20.0, 0.0], [0.0, 20.0], [0.0, -20.0]])

    def draw(n):
        return np.repeat(means, n, axis=0) + rng.normal(size=(4 * n, 2))

    models = {
        name: BayesianGaussianMixture(
            n_components=4, covariance_type=covariance_type, random_state=0, n_init=3
        ).fit(draw(10))
        for name in "ab"
    }
    fusion = kf.fuse(models)
    found = fusion.predictive().posterior
    spread = found.family.observation_moments(np.stack([found.prior, fusion.silos[0].prior]))[1]
    assert spread[0].max() < 0.25 * spread[1].max()
    x = draw(1000)
    assert fusion.model(predictive=True).score(x) > fusion.model().score(x) + 0.02


def test_topics_are_reconstructed_better_than_by_averages():
    sklearn = pytest.importorskip("sklearn.decomposition")
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(60, 0.1), size=4)

    def documents(n):
        return np.stack([rng.multinomial(50, t @ topics) for t in rng.dirichlet([0.2] * 4, size=n)])

    fits = {
        name: sklearn.LatentDirichletAllocation(n_components=3, random_state=0).fit(documents(60))
        for name in "abc"
    }
    fusion, test = kf.fuse(fits, n_components=4), documents(100)
    found = fusion.predictive()
    assert found.model().perplexity(test) < fusion.model().perplexity(test)
    for share in found.responsibilities:
        np.testing.assert_allclose(share.sum(axis=1), 1.0)
    masses = [p.structure.arrays["topic_mass"] for p in fusion.silos]
    np.testing.assert_allclose(
        found.posterior.structure.arrays["topic_mass"].sum(), np.concatenate(masses).sum()
    )


@pytest.mark.parametrize("covariance_type", TYPES)
def test_states_keep_their_transitions(covariance_type):
    vhmm = pytest.importorskip("hmmlearn.vhmm")
    rng = np.random.default_rng(0)
    models, means = {}, np.array([[-6.0], [0.0], [6.0]])
    for name in "abc":
        states = np.repeat(rng.integers(3, size=30), 10)
        x = means[states] + rng.normal(size=(300, 1))
        starts = [
            vhmm.VariationalGaussianHMM(
                n_components=3, covariance_type=covariance_type, random_state=seed
            ).fit(x)
            for seed in range(5)
        ]
        models[name] = max(starts, key=lambda model: model.monitor_.history[-1])
    fusion = kf.fuse(models, n_components=3)
    found = fusion.predictive()
    arrays = found.posterior.structure.arrays
    assert arrays["transition"].sum() == pytest.approx(3 * 299)
    assert np.diag(arrays["transition"]).sum() > 0.8 * arrays["transition"].sum()
    assert np.isfinite(found.model().score(x))


def test_rare_states_that_overlap_frequent_ones_stay():
    vhmm = pytest.importorskip("hmmlearn.vhmm")
    rng = np.random.default_rng(0)
    step = np.array([[0.9, 0.1], [0.01, 0.99]])
    symbols = np.array([[0.95, 0.05, 0.0], [0.3, 0.3, 0.4]])

    def sequence(n):
        states = [1]
        while len(states) < n:
            states.append(rng.choice(2, p=step[states[-1]]))
        return np.array([[rng.choice(3, p=symbols[state])] for state in states])

    x, test = sequence(1500), sequence(5000)
    starts = [
        vhmm.VariationalCategoricalHMM(n_components=2, n_features=3, random_state=seed).fit(x)
        for seed in range(5)
    ]
    model = max(starts, key=lambda one: one.monitor_.history[-1])
    fusion = kf.fuse({"a": model})
    assert fusion.model(predictive=True).score(test) == pytest.approx(model.score(test), rel=1e-3)
    np.testing.assert_allclose(fusion.predictive().responsibilities["a"], np.eye(2), atol=1e-6)


def test_components_of_tied_mixtures_that_are_empty_widen_nothing():
    rng = np.random.default_rng(0)
    means = np.array([[-6.0, 0.0], [0.0, 6.0], [6.0, 0.0]])

    def draw(n):
        return means[rng.integers(3, size=n)] + rng.normal(size=(n, 2))

    models = {
        f"silo-{j}": BayesianGaussianMixture(
            n_components=8, covariance_type="tied", n_init=3, max_iter=300, random_state=0
        ).fit(draw(400))
        for j in range(3)
    }
    fusion, test = kf.fuse(models), draw(3000)
    np.testing.assert_allclose(fusion.model(predictive=True).covariances_, np.eye(2), atol=0.2)
    assert density(fusion.model(predictive=True), test) > density(fusion.model(), test) - 0.01


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_narrow_components_of_point_estimates_stay_narrow(covariance_type):
    rng = np.random.default_rng(0)
    means = np.array([[0.0, 0.0], [3.0, 2.0], [0.0, 6.0]])

    def draw(n):
        which = rng.integers(3, size=n)
        x = means[which] + rng.normal(size=(n, 2))
        x[which == 0, 1] *= 0.01
        return x

    silos = [
        kf.extract(
            GaussianMixture(3, covariance_type=covariance_type, n_init=3, random_state=0).fit(x),
            name=f"silo-{j}",
            n_observations=len(x),
        )
        for j, x in enumerate(draw(400) for _ in range(5))
    ]
    fusion, test = kf.fuse(silos), draw(5000)
    assert density(fusion.model(predictive=True), test) > density(fusion.model(), test) - 0.01


def test_what_cannot_be_reduced_is_named():
    rates = kf.families.Gamma()
    silos = [kf.Posterior(rates, rates.natural([3.0], [1.0]), name=n) for n in "ab"]
    with pytest.raises(kf.KLFusionError, match="silo 'a': predictive: expected a mixture"):
        kf.fuse(silos).predictive()
    models, _ = silos_of()
    with pytest.raises(kf.KLFusionError, match="expected predictive=True without a silo"):
        kf.fuse(models).model("silo-0", predictive=True)
    with pytest.raises(kf.KLFusionError, match="predictive needs what the silos sent"):
        kf.fuse(models, keep_silos=False).model(predictive=True)


def test_responsibilities_of_zero_and_one_are_labels():
    rng = np.random.default_rng(0)
    labels = [np.array([0, 2, 1]), np.array([2, 2])]
    shares = [np.eye(3)[own] for own in labels]
    for shape in (lambda n: (n,), lambda n: (n, n)):
        arrays = [rng.random(shape(len(own))) for own in labels]
        if arrays[0].ndim == 2:  # steps between states that became one are within it
            labels_, shares_, arrays = labels[:1], shares[:1], arrays[:1]
        else:
            labels_, shares_ = labels, shares
        np.testing.assert_allclose(scatter(arrays, labels_, 3), scatter(arrays, shares_, 3))


@every_case_with(GaussianPosterior)
def test_moments_of_observations_are_what_they_add(case):
    rng = np.random.default_rng(0)
    natural = case.draw(rng, 4)
    family = case.family
    mean, covariance = family.observation_moments(natural)
    n = rng.uniform(1.0, 9.0, size=4)
    added = family.observed(mean, covariance, n)
    np.testing.assert_allclose(family.effective_size(added), n)
    for found, expected in zip(family.observation_moments(added), (mean, covariance), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


@every_case_with(GaussianPosterior)
def test_points_add_what_their_moments_do(case):
    rng = np.random.default_rng(0)
    points, family = rng.normal(size=(7, case.family.dim)), case.family
    covariance = np.atleast_2d(np.cov(points.T, bias=True))
    if family.observation_moments(case.draw(rng, 1))[1].ndim == 2:
        covariance = np.diag(covariance)
    added = family.observed(points.mean(axis=0)[None], covariance[None], np.array([7.0]))
    np.testing.assert_allclose(family.of_points(points).sum(axis=0)[None], added, rtol=1e-9)
