"""Local components that describe no component: mixed ones, and clusters that are one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

import klfusion as kf
from klfusion.model_size.evidence import LinkageSettings
from klfusion.model_size.failed_fits import find_failed
from klfusion.model_size.failed_prior import FailedFits
from klfusion.model_size.linked import at_labels
from klfusion.objective.problem import FusionProblem
from tests.helpers.loops import for_each


def find_mixed(problem, labels):
    """Which components are averages of two others, given a matching."""
    linked = at_labels(problem, LinkageSettings(), labels)
    return find_failed(problem, problem, linked).mixed


DIM, JITTER = 20, 0.3
NORMAL = kf.families.DiagonalNormal(DIM)


def problem_of(means, silo):
    natural = NORMAL.natural(np.asarray(means), np.full((len(means), DIM), 0.05))
    order = np.argsort(silo, kind="stable")
    silo = np.unique(np.asarray(silo)[order], return_inverse=True)[1]
    return FusionProblem(NORMAL, natural[order], silo, np.ones(len(means))), order


def three_components(rng, n_silos=12):
    centres = rng.normal(size=(3, DIM))
    truth = np.tile(np.arange(3), n_silos)
    means = centres[truth] + JITTER * rng.normal(size=(len(truth), DIM))
    return centres, means, truth, np.repeat(np.arange(n_silos), 3)


@pytest.mark.parametrize("held", [(), (0,), (0, 1)])
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_a_round_component_between_two_others_is_kept(dim, held):
    rng, family = np.random.default_rng(dim), kf.families.NormalWishart(dim)
    centres = np.zeros((5, dim))
    centres[:, 0] = [-8, 8, 24, 40, 0]  # the last lies between the first two, in one silo alone
    own = [[*held, 2, 3, 4], *[rng.choice(4, 3, replace=False) for _ in range(14)]]
    silos = []
    for j, clusters in enumerate(own):
        mean = centres[clusters] + 0.1 * rng.normal(size=(len(clusters), dim))
        draws = rng.normal(size=(len(clusters), 100, dim))
        scatter = np.einsum("kni,knj->kij", draws, draws)
        n = np.full(len(clusters), 100.0)
        natural = family.natural(mean, n, scatter, n + dim)
        silos.append(kf.Posterior(family, natural, name=f"silo-{j}"))
    fusion = kf.fuse(silos)
    assert fusion.n_components == 5
    assert fusion.n_unmatched == 0


def divided(seed, shift):
    """Three silos that divide two of three components in another way, and a mixed one in each.

    Their members of the second component are moved by so much.
    """
    rng = np.random.default_rng(seed)
    centres, means, truth, silo = three_components(rng)
    moved = (silo < 3) & (truth == 1)
    means[moved] += shift * (centres[1] - centres[0])
    keep = ~((silo < 3) & (truth == 0))
    blends = 0.7 * centres[0] + 0.3 * centres[1] + JITTER * rng.normal(size=(3, DIM))
    problem, order = problem_of([*means[keep], *blends], [*silo[keep], 0, 1, 2])
    labels = np.array([*truth[keep], 3, 3, 3])[order]
    return find_mixed(problem, labels), labels == 3


@pytest.mark.parametrize("seed", range(3))
def test_fits_that_divide_two_components_in_another_way_are_found(seed):
    found, expected = divided(seed, 0.3)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("seed", range(5))
def test_a_clean_matching_is_left_as_it_is(seed):
    rng = np.random.default_rng(seed)
    _, means, truth, silo = three_components(rng)
    problem, order = problem_of(means, silo)
    labels = truth[order]
    assert not find_mixed(problem, labels).any()


def test_a_mixed_component_its_silo_lacks_is_found():
    rng = np.random.default_rng(1)
    centres, means, truth, silo = three_components(rng)
    keep = ~((silo == 0) & (truth < 2))
    blend = 0.5 * (centres[0] + centres[1]) + JITTER * rng.normal(size=DIM)
    problem, order = problem_of([*means[keep], blend], [*silo[keep], 0])
    labels = np.array([*truth[keep], 3])[order]
    np.testing.assert_array_equal(find_mixed(problem, labels), labels == 3)
    # In a silo that has both of them it is something else.
    problem, order = problem_of([*means, blend], [*silo, 0])
    assert not find_mixed(problem, np.array([*truth, 3])[order]).any()


def test_failed_fits_left_out_before_make_others_likelier():
    rng = np.random.default_rng(4)
    _, means, truth, silo = three_components(rng)
    problem, order = problem_of([*means, rng.normal(size=DIM)], [*silo, 0])
    labels = np.array([*truth, 3])[order]
    linked = at_labels(problem, LinkageSettings(), labels)
    assert not find_failed(problem, problem, linked).any
    none = FailedFits.none(0.05, problem.silo)
    for silos in (np.arange(1, 12), np.zeros(1, dtype=int)):  # anywhere, or beside
        before = replace(none.more(silos, silos), fits=none.fits + np.bincount(silos, minlength=12))
        after = find_failed(problem, problem, linked, before).mixed
        np.testing.assert_array_equal(after, labels == 3)


def test_a_silo_is_never_left_without_components():
    rng = np.random.default_rng(2)
    centres, means, truth, silo = three_components(rng)
    blend = 0.5 * (centres[0] + centres[1]) + JITTER * rng.normal(size=DIM)
    problem, order = problem_of([*means, blend], [*silo, 99])
    assert not find_mixed(problem, np.array([*truth, 3])[order]).any()


def test_mixed_components_are_left_out_of_the_fused_model():
    rng = np.random.default_rng(4)
    _, means, _, silo = three_components(rng)
    silos = []
    for j in range(12):
        own = means[silo == j]
        if j < 4:  # a fit that could not tell the first two apart
            own = np.stack([own[:2].mean(axis=0), own[2]])
        natural = NORMAL.natural(own, np.full(own.shape, 0.05))
        silos.append(kf.Posterior(NORMAL, natural, name=f"silo-{j}"))
    fusion = kf.fuse(silos)
    assert fusion.n_components == 3
    assert fusion.n_unmatched == 4
    assert [labels.tolist().count(-1) for labels in fusion.labels] == [1] * 4 + [0] * 8


@pytest.mark.parametrize("n_words", [400, 2_000])  # all of them are compared, or the frequent ones
@for_each("share", [0.3, 0.5, 0.75])
@for_each("seed", [1, 2])
def test_mixed_topics_are_found_over_few_words_as_over_all(seed, share, n_words):
    rng, n_topics, n_silos = np.random.default_rng(seed), 5, 8
    words = rng.dirichlet(np.full(n_words, 0.05), size=n_topics)
    topics, silo, truth = [], [], []
    for j in range(n_silos):
        for k in range(2 if j == 0 else 0, n_topics):  # the first silo has two as one
            topics.append(words[k])
            silo.append(j)
            truth.append(k)
    topics, silo = [*topics, share * words[0] + (1 - share) * words[1]], [*silo, 0]
    truth = np.array([*truth, n_topics])
    counts = np.array([rng.multinomial(rng.integers(5_000, 40_000), p) for p in topics])
    order = np.argsort(silo, kind="stable")
    problem = FusionProblem(
        kf.families.Dirichlet(n_words),
        0.1 + counts[order],
        np.array(silo)[order],
        np.ones(len(silo)),
    ).comparable()
    labels = truth[order]
    np.testing.assert_array_equal(find_mixed(problem, labels), labels == n_topics)


def test_fits_of_two_clusters_do_not_join_those_of_one():
    """Two of six silos describe two clusters by one component, which others know apart."""
    kinds = {"A": (20, -8), "B": (20, 8), "C": (0, -4), "D": (0, 4), "E": (-14, 0)}
    sees = {"p": "AC", "q": "AD", "r": "ACD", "s": "ABC", "t": "ABD", "u": "CDE"}
    rng, models = np.random.default_rng(0), {}
    for name, own in sees.items():
        x = np.concatenate([rng.normal(kinds[kind], 1.0, (150, 2)) for kind in own])
        size = len(own) - ("B" in own)
        models[name] = BayesianGaussianMixture(n_components=size, random_state=0).fit(x)
    fusion = kf.fuse(models)
    pure = {int(fusion.labels[name][np.argmax(models[name].means_[:, 0])]) for name in "pqr"}
    both = {int(fusion.labels[name][np.argmax(models[name].means_[:, 0])]) for name in "st"}
    assert len(pure) == 1
    assert not pure & both
    assert fusion.path.n_components[fusion.path.evidence.argmax()] == fusion.n_components


def four_that_vary(n_silos=60):
    """Each silo has all four components; which each is, and halves of the first one."""
    rng = np.random.default_rng(3)
    family = kf.families.DiagonalNormal(2)
    centres = 10.0 * rng.normal(size=(4, 2))
    means = (centres + rng.normal(size=(n_silos, 4, 2))).reshape(-1, 2)
    problem = FusionProblem(
        family,
        family.natural(means, np.full(means.shape, 0.1)),
        np.repeat(np.arange(n_silos), 4),
        np.ones(len(means)),
    )
    truth = np.tile(np.arange(4), n_silos)
    halves = np.where((truth == 0) & (means[:, 0] > np.median(means[truth == 0, 0])), 4, truth)
    return problem, truth, halves


def test_halves_of_a_cluster_become_one():
    """Distances within halves are smaller, which is no evidence for two clusters."""
    problem, truth, halves = four_that_vary()
    merged = at_labels(problem, LinkageSettings(), halves).merged()
    np.testing.assert_array_equal(merged.labels, truth)


def test_halves_of_the_only_cluster_become_one_where_others_are_known():
    """One component of each silo shows nothing of what differs; those of a sample may have."""
    problem, truth, halves = four_that_vary()
    sample = at_labels(problem, LinkageSettings(), truth)
    first = np.flatnonzero(truth == 0)
    found = at_labels(problem.some(first), LinkageSettings(), np.sign(halves[first]))
    found = replace(found, same=sample.same, different=sample.different)
    assert found.merged().labels.max() == 1
    assert found.merged(known=True).labels.max() == 0


@for_each("seed", [1, 2])
def test_clusters_that_share_no_silo_stay_apart(seed):
    """Members lie near their own centre, which is no evidence that the other centre is near."""
    rng, n_silos, size = np.random.default_rng(seed), 30, 6
    family = kf.families.DiagonalNormal(6)
    centres = 4.0 * rng.normal(size=(60, 6))
    truth = np.concatenate([rng.permutation(60)[:size] for _ in range(n_silos)])
    truth = np.unique(truth, return_inverse=True)[1]
    means = centres[truth] + 0.5 * rng.normal(size=(n_silos * size, 6))
    problem = FusionProblem(
        family,
        family.natural(means, np.full(means.shape, 0.25)),
        np.repeat(np.arange(n_silos), size),
        np.ones(n_silos * size),
    )
    merged = at_labels(problem, LinkageSettings(), truth).merged()
    np.testing.assert_array_equal(merged.labels, truth)


@for_each("seed", range(3))
def test_clusters_of_an_overfitted_tied_mixture_stay_apart(seed):
    """Covariances differ, so that one cluster of each silo has two components of a tied mixture."""
    rng = np.random.default_rng(seed)
    centres, shapes = 1.2 * rng.normal(size=(5, 20)), rng.uniform(0.3, 1.8, size=(5, 20))
    kinds = [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 0], [4, 0, 1]]
    models, truth = {}, []
    for j, own in enumerate(kinds):
        z = rng.choice(own, 300)
        x = centres[z] + shapes[z] * rng.normal(size=(300, 20))
        model = BayesianGaussianMixture(n_components=4, covariance_type="tied", random_state=0)
        models[f"{j}"] = model.fit(x)
        truth.append(
            [np.bincount(z[model.predict(x) == k], minlength=5).argmax() for k in range(4)]
        )
    labels = kf.fuse(models).labels
    every, of = np.concatenate(labels), np.concatenate(truth)
    assert all(len(np.unique(of[every == g])) == 1 for g in np.unique(every[every >= 0]))


@pytest.mark.parametrize("bayesian", [True, False])
@for_each("seed", [0, 1])
def test_a_private_cluster_beside_a_failed_fit_is_kept(bayesian, seed):
    """It lies far from all others, and so do its observations."""
    rng = np.random.default_rng(seed)
    kinds = np.array([[-8.0, 0.0], [0.0, 8.0], [8.0, 0.0], [0.0, -8.0], [14.0, 14.0]])
    sees = [[0, 1, 2], [1, 2, 3], [0, 2, 3], [0, 1, 3], [1, 2, 3], [0, 1, 2, 4]]
    fit = BayesianGaussianMixture if bayesian else GaussianMixture
    sites = []
    for j, held in enumerate(sees):  # the last site has one component too few
        x = kinds[rng.choice(held, 300)] + rng.normal(size=(300, 2))
        model = fit(n_components=3, n_init=3, random_state=0).fit(x)
        known = {} if bayesian else {"n_observations": 300}
        sites.append(kf.extract(model, f"site-{j}", **known))
    fusion = kf.fuse(sites)
    assert fusion.n_components == 5
    assert fusion.labels["site-5"].tolist().count(-1) == 1
