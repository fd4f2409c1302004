"""All matchings of two silos, against their enumeration."""

from itertools import combinations, permutations

import numpy as np
import pytest
from scipy.special import logsumexp

import klfusion as kf
from klfusion.model_size.evidence import LinkageSettings
from klfusion.model_size.linkage import cut
from klfusion.model_size.matchings import Matchings, others
from klfusion.objective.problem import FusionProblem


def enumerated(log_odds):
    """Log-odds of every matching by number of pairs, and the pairs of each."""
    n_rows, n_columns = log_odds.shape
    found = []
    for size in range(min(log_odds.shape) + 1):
        rows, pairs = [], []
        for chosen in combinations(range(n_rows), size):
            for columns in permutations(range(n_columns), size):
                rows.append(sum(log_odds[pair] for pair in zip(chosen, columns, strict=True)))
                pairs.append(list(zip(chosen, columns, strict=True)))
        found.append((np.array(rows, dtype=float), pairs))
    return found


def random_odds(seed, scale, shape=(4, 5)):
    return scale * (np.random.default_rng(seed).normal(size=(3, *shape)) - 0.5)


@pytest.mark.parametrize("scale", [0.0, 1.0, 3.0, 5.0])
def test_sums_are_near_those_of_the_enumerated_matchings(scale):
    odds = random_odds(0, scale)
    exact = [[logsumexp(rows) for rows, _ in enumerated(own)] for own in odds]
    assert np.abs(Matchings(odds).log_sums.T - exact).max() < 0.35


def test_probabilities_are_near_those_of_the_enumerated_matchings():
    odds, evidence, log_prior = (
        random_odds(1, 3.0),
        np.array([0.0, 1.0, 2.0, 0.5, -1.0]),
        np.zeros(3),
    )
    weights = np.array([[logsumexp(rows) for rows, _ in enumerated(own)] for own in odds])
    of_point = weights - logsumexp(weights, axis=0)  # the points at each size
    of_size = evidence - logsumexp(evidence)
    exact = np.zeros(odds.shape[1:])
    for point, own in enumerate(odds):
        for size, (rows, pairs) in enumerate(enumerated(own)):
            total = logsumexp(rows)
            for value, chosen in zip(rows, pairs, strict=True):
                share = np.exp(value - total + of_point[point, size] + of_size[size])
                for pair in chosen:
                    exact[pair] += share
    found = Matchings(odds).probabilities(log_prior, evidence)
    assert np.abs(found - exact).max() < 0.06


def test_certain_pairs_are_matched_whatever_their_odds():
    odds = np.full((1, 3, 3), -30.0)
    odds[0, [0, 1], [1, 2]] = 400.0, 8_000.0
    found = Matchings(odds)
    assert np.isfinite(found.log_sums).all()
    chosen = found.probabilities(np.zeros(1), found.log_sums[:, 0])
    assert np.argwhere(chosen > 0.5).tolist() == [[0, 1], [1, 2]]


def test_sums_of_others_keep_small_numbers_beside_large_ones():
    values = np.array([[1e200, 1.0, 2.0]])
    assert others(values, axis=1)[0, 0] == 3.0
    assert others(values, axis=1)[0, 1] == 1e200


def many_almost_equal_matchings():
    """Two silos of topics that vary much: no single matching is more probable than none."""
    rng = np.random.default_rng(91000)
    topics = rng.dirichlet(np.full(2_000, 0.05), size=12)
    natural, truth = [], []
    for _ in range(2):
        own = rng.permutation(12)[:8]
        rows = [rng.multinomial(600, rng.dirichlet(60.0 * topics[k] + 1e-3)) for k in own]
        natural.append(0.1 + np.array(rows, dtype=float))
        truth.append(own)
    family = kf.families.Dirichlet(2_000)
    problem = FusionProblem(family, np.concatenate(natural), np.repeat([0, 1], 8), np.ones(16))
    return problem, np.concatenate(truth)


def test_all_matchings_of_a_size_have_more_evidence_than_one_of_them():
    problem, _ = many_almost_equal_matchings()
    settings = LinkageSettings()
    one = cut(problem, settings, lambda *_: None).path.evidence
    every = cut(problem, settings, lambda *_: None, every=True).path.evidence
    assert (every[1:] - every[0] > one[1:] - one[0]).all()


def test_matched_pairs_do_not_depend_on_which_silo_comes_first():
    problem, _ = many_almost_equal_matchings()
    turned = FusionProblem(
        problem.family, np.roll(problem.natural, 8, axis=0), problem.silo, problem.weights
    )
    one, two = (cut(p, LinkageSettings(), lambda *_: None, every=True) for p in (problem, turned))
    same = one.labels[:, None] == one.labels
    other = np.roll(two.labels, 8)
    assert (same == (other[:, None] == other)).all()
    assert np.allclose(one.path.evidence, two.path.evidence, atol=0.05)


def test_two_silos_that_share_components_that_vary_are_seldom_left_apart():
    family, found = kf.families.NormalWishart(6), []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        means, silos = 1.5 * rng.normal(size=(9, 6)), {}
        for name in "ab":
            own = means + 0.8 * rng.normal(size=means.shape)
            scales = [30.0 * np.cov(rng.normal(size=(30, 6)).T) for _ in own]
            natural = family.natural(own, np.full(9, 30.0), scales, np.full(9, 36.0))
            silos[name] = kf.Posterior(family, natural, name=name)
        found.append(kf.fuse(silos).n_components)
    assert np.mean(np.less(found, 18)) >= 0.8
