"""Sums of squares given sums with noise: within bounds, exact without noise, calibrated with."""

import numpy as np
import pytest
from scipy import stats

from klfusion.pooling.noisy_gram import NoisyGram

EVEN = np.where(np.eye(3, dtype=bool), 1.0, 0.5)


def nothing_else(matrices):
    return np.zeros(len(matrices)), np.zeros_like(matrices)


def gram(rng, n=200):
    z = np.column_stack(
        [np.ones(n), rng.uniform(-1.0, 1.0, size=(n, 2)) @ [[0.6, 0.3], [0.0, 0.5]]]
    )
    return z.T @ z


def noisy(sent, deviation):
    largest = np.zeros((3, 3))
    largest[1:, 0] = 1.0
    seen, constant = np.ones((3, 3), dtype=bool), np.array([True, False, False])
    return NoisyGram(sent, deviation**2 * EVEN, seen, constant, largest)


def drawn(own):
    return own.draws(own.start(), nothing_else)


def test_without_noise_the_matrix_is_what_was_sent():
    true = gram(np.random.default_rng(0))
    found = drawn(noisy(true, 1e-6))
    assert found.mean(axis=0) == pytest.approx(true, abs=1e-6)
    assert found.std(axis=0) == pytest.approx(1e-6 * np.sqrt(EVEN), rel=0.25)


def test_draws_are_sums_of_squares_within_bounds():
    rng = np.random.default_rng(1)
    off = rng.normal(scale=300.0, size=(3, 3))
    found = drawn(noisy(gram(rng) + off + off.T, 400.0))
    assert np.linalg.eigvalsh(found).min() > 0.0
    diagonal = np.diagonal(found, axis1=1, axis2=2)
    assert (diagonal[:, 1:] <= diagonal[:, :1]).all()


def from_prior(rng):
    """A matrix as `noisy` expects them beforehand, with some hundred rows."""
    while True:
        rows, root, share = rng.uniform(100.0, 900.0), *rng.uniform(size=2)
        wishart = np.atleast_2d(stats.wishart(4.0 / share**2, np.eye(3)).rvs(random_state=rng))
        columns = wishart[1, 1] + wishart[2, 2]
        unit = np.sqrt([rows / wishart[0, 0], *[2.0 * rows * root**2 / columns] * 2])
        found = wishart * np.outer(unit, unit)
        if found.diagonal().max() <= rows:
            return found


@pytest.mark.slow
def test_ranks_of_matrices_from_the_prior_are_uniform():
    """What is true is as often below as above what is drawn given the noise."""
    ranks, deviation = [], 20.0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        true, half = from_prior(rng), rng.normal(scale=deviation, size=(3, 3)) * np.sqrt(EVEN)
        found = drawn(noisy(true + np.triu(half) + np.triu(half, 1).T, deviation))
        ranks.append((found < true).mean(axis=0)[np.triu_indices(3)])
    inside = (np.array(ranks) > 0.05) & (np.array(ranks) < 0.95)
    assert inside.mean() == pytest.approx(0.9, abs=0.05)  # 360 ranks: a deviation of .016
    assert np.mean(ranks) == pytest.approx(0.5, abs=0.05)


def test_entries_that_are_zero_stay_zero():
    seen = np.array([[True, True, True], [True, True, False], [True, False, True]])
    sent = np.where(seen, [[40.0, 10.0, -5.0], [10.0, 60.0, 0.0], [-5.0, 0.0, 50.0]], 0.0)
    largest = np.zeros((3, 3))
    largest[0, 1:] = 1.0
    constant = np.array([False, True, True])
    found = drawn(NoisyGram(sent, 9.0 * EVEN, seen, constant, largest))
    assert (found[:, ~seen] == 0.0).all() and np.linalg.eigvalsh(found).min() > 0.0


def test_equal_sums_have_equal_draws():
    own = noisy(gram(np.random.default_rng(0)), 10.0)
    assert np.array_equal(drawn(own), drawn(own))


def test_slopes_are_those_of_the_density():
    rng = np.random.default_rng(0)
    own = noisy(gram(rng), 10.0)
    u = np.triu(rng.normal(size=(1, 3, 3))) + 10.0 * np.eye(3)
    u[0, 0, 0] = 14.0
    step = 1e-5
    _, slope = own._log_density(u, nothing_else)
    for i, j in zip(*np.triu_indices(3), strict=True):
        moved = np.zeros((3, 3))
        moved[i, j] = step
        values = [own._log_density(u + sign * moved, nothing_else)[0] for sign in (1.0, -1.0)]
        assert slope[0, i, j] == pytest.approx((values[0] - values[1])[0] / (2 * step), rel=1e-4)
