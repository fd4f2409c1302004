"""A second look at a matching: doubles, blends and stragglers."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from klfusion.model_size.revision import find_mixed
from klfusion.objective.problem import FusionProblem
from tests.helpers.loops import for_each

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


@pytest.mark.parametrize("seed", range(5))
def test_a_clean_matching_is_left_as_it_is(seed):
    rng = np.random.default_rng(seed)
    _, means, truth, silo = three_components(rng)
    problem, order = problem_of(means, silo)
    labels = truth[order]
    assert not find_mixed(problem, labels).any()


def test_a_blend_of_two_components_its_silo_lacks_is_found():
    rng = np.random.default_rng(1)
    centres, means, truth, silo = three_components(rng)
    keep = ~((silo == 0) & (truth < 2))
    blend = 0.5 * (centres[0] + centres[1]) + JITTER * rng.normal(size=DIM)
    problem, order = problem_of([*means[keep], blend], [*silo[keep], 0])
    labels = np.array([*truth[keep], 3])[order]
    np.testing.assert_array_equal(find_mixed(problem, labels), labels == 3)
    # In a silo that has one of the two it is something else.
    problem, order = problem_of([*means, blend], [*silo, 0])
    assert not find_mixed(problem, np.array([*truth, 3])[order]).any()


def test_a_silo_is_never_left_without_components():
    rng = np.random.default_rng(2)
    centres, means, truth, silo = three_components(rng)
    blend = 0.5 * (centres[0] + centres[1]) + JITTER * rng.normal(size=DIM)
    problem, order = problem_of([*means, blend], [*silo, 99])
    assert not find_mixed(problem, np.array([*truth, 3])[order]).any()


def test_blends_are_left_out_of_the_fused_model():
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
def test_blends_of_topics_are_found_over_few_words_as_over_all(seed, share, n_words):
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
