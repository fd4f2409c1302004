"""Plans of a known size by how well mixtures of global components reconstruct local ones."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.metrics import adjusted_rand_score

import klfusion as kf
from klfusion.families import Dirichlet
from klfusion.methods.topics import Reconstruction, best_reconstruction
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Search


def words_of(seed, sizes, dim=30):
    """Topics seen through some thousand words each, as divergences of nats per word."""
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    probability = rng.dirichlet(np.full(dim, 0.2), size=n)
    counts = np.array([rng.multinomial(rng.integers(500, 5_000), p) for p in probability])
    silo = np.repeat(np.arange(len(sizes)), sizes)
    given = FusionProblem(Dirichlet(dim), 0.1 + counts, silo, np.ones(n))
    observed = given.per_observation()
    assert observed is not None
    return observed


def random_plan(rng, sizes, size):
    """Distinct places for the components of each silo, every place taken."""
    while True:
        labels = np.concatenate([rng.permutation(size)[:own] for own in sizes])
        if len(np.unique(labels)) == size:
            return labels


def least_loss(observed, labels, size):
    """The best mixture of each component by a solver that knows nothing of EM."""
    probability = observed.family.location(observed.natural)
    share = observed.weights / observed.weights.sum()
    centres = np.stack(
        [share[labels == g] @ probability[labels == g] for g in range(size)]
    )  # averages of certain posteriors, by their observations
    centres /= centres.sum(axis=1, keepdims=True)
    total = 0.0
    for own, p in zip(share, probability, strict=True):

        def loss(free, p=p):
            mixture = np.exp(free - free.max())
            return float(p @ np.log(p / (mixture / mixture.sum() @ centres)))

        runs = [minimize(loss, start).fun for start in (np.zeros(size), *(3.0 * np.eye(size)))]
        total += own * min(runs)
    return total


@settings(max_examples=10)  # a solver that knows nothing of EM is slow
@given(st.integers(0, 10_000))
def test_mixtures_are_nearly_the_best_there_are(seed):
    observed, rng = words_of(seed, [3, 3]), np.random.default_rng(seed)
    labels = random_plan(rng, [3, 3], 3)
    reconstruction = Reconstruction(observed, 3)
    found = reconstruction.fit(labels)
    assert np.allclose(found.mixtures.sum(axis=1), 1.0)
    assert found.loss == pytest.approx(least_loss(observed, labels, 3), abs=2e-3)
    assert found.loss <= observed.divergence(labels, 3) + 1e-9
    further = reconstruction.fit(labels, found.mixtures)
    assert further.loss <= found.loss + 1e-12


@pytest.mark.parametrize("seed", [422, 785, 829, 958, 1189])
def test_mixtures_never_lose_more_than_the_own_average(seed):
    """Forty steps of EM end above the own average where that is the best mixture."""
    observed, rng = words_of(seed, [3, 3]), np.random.default_rng(seed)
    labels = random_plan(rng, [3, 3], 3)
    found = Reconstruction(observed, 3).fit(labels)
    assert found.loss <= observed.divergence(labels, 3) + 1e-9


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.sampled_from([[4, 4, 4], [4, 2, 3], [1, 4]]))
@example(70, [4, 2, 3])  # two went to the same empty place
def test_polishing_loses_less_and_keeps_places_apart(seed, sizes):
    observed, rng = words_of(seed, sizes), np.random.default_rng(seed)
    labels = random_plan(rng, sizes, 4)
    reconstruction = Reconstruction(observed, 4)
    found = reconstruction.polished(labels, max_iter=20)
    assert found.loss <= reconstruction.fit(labels).loss + 1e-12
    assert set(found.labels.tolist()) == set(range(4))
    for rows in observed.silos:
        assert len(set(found.labels[rows].tolist())) == rows.stop - rows.start


def test_an_empty_place_can_be_taken():
    # One silo has two topics; the other's one was put beside the wrong one.
    family = Dirichlet(4)
    one, other = [400.0, 400.0, 1.0, 1.0], [1.0, 1.0, 400.0, 400.0]
    given = FusionProblem(
        family, np.array([one, other, other]), np.array([0, 0, 1]), np.ones(3)
    ).per_observation()
    found = Reconstruction(given, 2).polished(np.array([0, 1, 0]), max_iter=20)
    assert found.labels[0] != found.labels[1] == found.labels[2]
    assert found.loss == pytest.approx(0.0, abs=1e-5)


def test_a_place_that_a_start_left_empty_is_taken():
    observed = words_of(3, [2, 2, 2])
    reconstruction = Reconstruction(observed, 4)
    labels = np.array([0, 1, 0, 1, 0, 1])
    before, after = reconstruction.fit(labels), reconstruction.polished(labels, max_iter=20)
    assert np.isfinite(before.loss)
    assert after.loss < before.loss
    assert set(after.labels.tolist()) == set(range(4))


def test_others_make_good_what_an_average_loses():
    """A topic that mixes two costs little where both are there."""
    family = Dirichlet(4)
    one, other = np.array([400.0, 400.0, 1.0, 1.0]), np.array([1.0, 1.0, 400.0, 400.0])
    natural = np.array([one, 10 * other, one, (one + other) / 2])
    observed = FusionProblem(family, natural, np.array([0, 0, 1, 1]), np.ones(4)).per_observation()
    labels = np.array([0, 1, 0, 1])
    assert Reconstruction(observed, 2).fit(labels).loss < 0.5 * observed.divergence(labels, 2)


def test_the_best_of_many_starts_is_as_good_as_all_plans():
    observed = words_of(5, [3, 3, 3])
    search = Search(3, np.random.default_rng(0), lambda *_: None, tol=1e-6)
    found = best_reconstruction(observed, 3, search, n_init=10)
    reconstruction = Reconstruction(observed, 3)
    orders = list(permutations(range(3)))
    plans = [np.concatenate([np.arange(3), a, b]) for a in orders for b in orders]
    losses = [reconstruction.fit(plan).loss for plan in plans]
    assert reconstruction.fit(found).loss <= min(losses) + 1e-4


def test_rare_words_are_are_merged():
    observed = words_of(1, [3, 3], dim=200)
    family, natural = observed.family.coarser(observed.natural, observed.weights, 20)
    assert family == Dirichlet(natural.shape[1])
    assert 20 < family.dim <= 20 + observed.n
    np.testing.assert_allclose(natural.sum(axis=1), observed.natural.sum(axis=1))
    # The frequent ones are as they were, and nothing can be told apart that could not before.
    frequent = np.argsort(-(observed.weights @ observed.natural), kind="stable")[:20]
    np.testing.assert_array_equal(natural[:, :20], observed.natural[:, frequent])
    before = observed.family.kl_from(observed.natural, observed.natural, observed.log_partition)
    after = family.kl_from(natural, natural, family.log_partition(natural))
    assert (after <= before * (1 + 1e-9) + 1e-3).all()
    assert observed.family.coarser(observed.natural, observed.weights, 200) == (
        observed.family,
        observed.natural,
    )


def test_a_size_that_the_path_does_not_reach_is_found_whatever_the_order():
    rng, family = np.random.default_rng(0), Dirichlet(40)
    words = rng.dirichlet(np.full(40, 0.2), size=(4, 3))
    silos = [
        kf.Posterior(family, 0.1 + rng.multinomial(3_000, own), name=f"silo {j}")
        for j, own in enumerate(words)
    ]
    fusion = kf.fuse(silos, n_components=3)
    assert fusion.n_components == 3
    other = kf.fuse([silos[j] for j in (2, 0, 3, 1)], n_components=3)
    again = np.concatenate([other.labels[j] for j in (1, 3, 0, 2)])
    assert adjusted_rand_score(np.concatenate(fusion.labels), again) == 1.0


@pytest.mark.slow
def test_many_topics_of_many_words_are_still_merged_by_loss():
    """Above 129 topics of 60,000 words all pairs are compared over fewer words, not sampled."""
    rng, family = np.random.default_rng(0), Dirichlet(60_000)
    topics = rng.dirichlet(np.full(family.dim, 0.02), size=22)
    truth = np.stack([rng.permutation(22)[:10] for _ in range(13)])
    silos = [
        kf.Posterior(family, 0.1 + rng.multinomial(20_000, topics[own]), name=f"silo {j}")
        for j, own in enumerate(truth)
    ]
    fusion = kf.fuse(silos)
    assert fusion.path.n_components[0] == 130
    assert fusion.path.losses is not None
    assert fusion.n_components == 22
    assert adjusted_rand_score(truth.ravel(), np.concatenate(fusion.labels)) == 1.0
