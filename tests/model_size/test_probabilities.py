"""Probabilities of matches: marginals of assignments, pairs, and matches that are undone."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import klfusion as kf
from klfusion.model_size.evidence import LinkageSettings
from klfusion.model_size.linkage import link
from klfusion.model_size.linked import at_labels
from klfusion.model_size.probabilities import (
    marginals,
    memberships,
    own_probabilities,
    same,
    undone,
)
from tests.model_size.test_linkage import silent, units


def by_enumeration(scores):
    """Marginals of all assignments in which no cluster is taken twice."""
    size, total = scores.shape[1], np.zeros((len(scores), scores.shape[1] + 1))
    padded = np.hstack([scores, np.zeros((len(scores), 1))])
    for chosen in product(range(size + 1), repeat=len(scores)):
        taken = [g for g in chosen if g < size]
        if len(taken) == len(set(taken)):
            weight = np.exp(sum(padded[k, g] for k, g in enumerate(chosen)))
            total[np.arange(len(scores)), chosen] += weight
    return total / total.sum(axis=1, keepdims=True)


def test_marginals_of_one_component_are_exact():
    scores = np.array([[1.0, -2.0, 0.5]])
    assert marginals(scores) == pytest.approx(by_enumeration(scores))


@pytest.mark.parametrize("seed", range(5))
def test_marginals_of_several_are_close_to_those_of_all_assignments(seed):
    scores = 3.0 * np.random.default_rng(seed).normal(size=(4, 5))
    assert np.abs(marginals(scores) - by_enumeration(scores)).max() < 0.06


def test_marginals_stay_finite_at_certainty():
    found = marginals(np.array([[800.0, -np.inf], [799.0, -900.0]]))
    assert np.isfinite(found).all()
    assert found.sum(axis=1) == pytest.approx(1.0)
    assert found[:, 0].sum() <= 1.0 + 1e-6  # one place for two


def test_two_components_that_compete_for_one_cluster_share_it():
    found = marginals(np.full((2, 1), 6.0))
    assert found[:, 0] == pytest.approx([0.5, 0.5], abs=0.01)


@pytest.mark.parametrize("noise", [0.3, 0.8])
def test_the_model_at_the_labels_that_were_found_is_the_model_that_found_them(noise):
    problem, _ = units(1, noise=noise)
    found = link(problem, LinkageSettings(), silent)
    again = at_labels(problem, LinkageSettings(), found.labels)
    assert memberships(again) == pytest.approx(memberships(found), abs=1e-3)


def test_pairs_are_the_same_as_their_memberships_say():
    problem, truth = units(0)
    found = link(problem, LinkageSettings(), silent)
    pairs = same(found)
    assert pairs == pytest.approx(pairs.T)
    assert np.diag(pairs) == pytest.approx(1.0)
    assert (pairs[problem.silo[:, None] == problem.silo] == np.eye(4).ravel().tolist() * 6).all()
    equal = (truth[:, None] == truth) & (problem.silo[:, None] != problem.silo)
    assert pairs[equal].min() > 0.99
    assert pairs[truth[:, None] != truth].max() < 0.01


def test_a_pair_by_itself_is_one_event():
    problem, truth = units(0, n_silos=2, size=6)
    found = at_labels(problem, LinkageSettings(), truth)
    own, pairs = own_probabilities(found), same(found)
    there = memberships(found)[np.arange(12), found.labels]  # of one, given the other
    for row in range(6):
        assert own[row] == own[row + 6] == pytest.approx(pairs[row, row + 6], abs=1e-12)
        assert own[row] <= min(there[row], there[row + 6]) + 1e-9
        assert own[row] >= there[row] * there[row + 6] - 1e-9


def test_two_that_were_left_apart_are_probably_the_same():
    problem, truth = units(0)
    labels = truth.copy()
    labels[0] = labels.max() + 1  # one component is by itself
    found = at_labels(problem, LinkageSettings(), labels)
    there = np.flatnonzero(truth == truth[0])[1:]
    assert same(found)[0, there].min() > 0.7
    assert own_probabilities(found)[0] < 0.1


def test_clusters_that_were_left_apart_are_probably_one():
    problem, truth = units(0)
    labels = np.where((truth == 0) & (problem.silo < 3), 4, truth)
    found = at_labels(problem, LinkageSettings(), labels)
    halves = np.flatnonzero(labels == 0), np.flatnonzero(labels == 4)
    assert same(found)[np.ix_(*halves)].min() > 0.95


def test_matches_are_undone_until_few_are_expected_to_be_false():
    labels = np.repeat(np.arange(4), 6)
    sure = np.where(np.arange(24) < 3, 0.4, 1.0)
    new, _ = undone(labels, sure, 0.05)
    assert new.max() == labels.max() + 2  # 0.6 of 22 matches are less than 5 %
    new, certain = undone(labels, sure, 0.01)
    assert new.max() == labels.max() + 3
    assert certain[:3] == pytest.approx(0.6)


def test_the_other_of_a_pair_is_alone_as_well():
    new, certain = undone(np.array([0, 0, 1, 1]), np.array([0.6, 0.7, 1.0, 1.0]), 0.1)
    assert len(set(new[:2])) == 2
    assert certain == pytest.approx([0.4, 0.3, 1.0, 1.0])


def test_marginals_of_silos_of_one_size_are_those_of_each():
    scores = np.random.default_rng(0).normal(scale=4.0, size=(7, 3, 5))
    np.testing.assert_allclose(marginals(scores), [marginals(one) for one in scores], rtol=1e-14)


def test_components_that_match_nothing_are_alone_with_the_probability_that_is_left():
    rng, normal = np.random.default_rng(0), kf.families.DiagonalNormal(3)
    natural = normal.natural(rng.normal(size=(8, 3)), np.full((8, 3), 0.05))
    silos = [kf.Posterior(normal, natural[own::2], name=f"silo-{own}") for own in range(2)]
    fusion = kf.fuse(silos)
    assert fusion.n_components == 8
    alone = np.concatenate(list(fusion.probability))
    same = fusion.probabilities_same() - np.eye(8)
    assert (alone < 1.0).all()
    assert (alone + same.max(axis=1) <= 1.0 + 1e-9).all()
