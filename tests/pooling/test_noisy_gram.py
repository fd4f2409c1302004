"""Sums of squares given sums with noise: within bounds, exact without noise, calibrated with."""

import numpy as np
import pytest
from scipy import stats

from klfusion.pooling import noisy_gram
from klfusion.pooling.noisy_gram import ENOUGH, NoisyGram

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
    found, effective = own.draws(own.start(), nothing_else)
    assert effective >= ENOUGH
    return found


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
    x = own._position(np.triu(rng.normal(size=(3, 3))) + np.diag([14.0, 9.0, 9.0]))
    step = 1e-5 * np.eye(len(x))
    _, slope = own._log_posterior(x[None], nothing_else)
    up, down = (own._log_posterior(x + sign * step, nothing_else)[0] for sign in (1.0, -1.0))
    assert slope[0] == pytest.approx((up - down) / 2e-5, rel=1e-4)


@pytest.mark.parametrize("entry", range(6))
@pytest.mark.parametrize("size", [-1e3, -400.0, 400.0, 1e3])
def test_moves_too_far_for_a_float_fail_in_silence(entry, size):
    own = noisy(gram(np.random.default_rng(0)), 1e9)  # noise that forbids nothing small
    x = own._position(np.diag([14.0, 9.0, 9.0]))
    x[entry] = size
    with np.errstate(over="ignore", invalid="ignore"):  # as `draws` has it
        value, _ = own._log_posterior(x[None], nothing_else)
    assert value[0] == -np.inf


def test_positions_have_the_volume_of_the_matrix():
    rng = np.random.default_rng(0)
    own = noisy(gram(rng), 10.0)
    u = np.triu(rng.normal(size=(3, 3))) + np.diag([14.0, 9.0, 9.0])
    x, step = own._position(u), 1e-6
    assert own._parts(x[None])[0][0] == pytest.approx(u)
    moved = [own._parts(x + sign * step * np.eye(len(x)))[0] for sign in (1.0, -1.0)]
    change = (moved[0] - moved[1])[:, *own._place] / (2.0 * step)
    by_position = (
        own._log_posterior(x[None], nothing_else)[0] - own._log_density(u[None], nothing_else)[0]
    )
    assert by_position == pytest.approx(np.linalg.slogdet(change)[1])


def far_from_zero(seed, deviation, n=2000):
    """Columns that are nearly constant, so that noise may leave a negative eigenvalue."""
    rng = np.random.default_rng(seed)
    x = 0.66 + 0.1 * rng.normal(size=(n, 2))
    z = np.column_stack([np.ones(n), x])
    off = deviation * rng.normal(size=(3, 3)) * np.sqrt(EVEN)
    return z.T @ z, noisy(z.T @ z + np.triu(off) + np.triu(off, 1).T, deviation)


@pytest.mark.parametrize("seed", range(8))
def test_the_start_is_as_near_as_the_noise(seed):
    true, own = far_from_zero(seed, 30.0)
    start = own.start()
    assert np.linalg.eigvalsh(start)[0] > 0.0
    assert np.abs(start - own.sent).max() < 6.0 * 30.0
    assert own.draws(start, nothing_else)[0].mean(axis=0) == pytest.approx(true, abs=4.0 * 30.0)


def test_many_columns_that_noise_hides_have_draws():
    """A start that is far off in each of many directions has no density, and no move leaves it."""
    rng, q = np.random.default_rng(0), 21
    z = np.column_stack([np.ones(150), rng.uniform(-1.0, 1.0, size=(150, q - 1))])
    noise = 45.0**2 * np.where(np.eye(q, dtype=bool), 1.0, 0.5)
    off = np.triu(np.sqrt(noise) * rng.normal(size=(q, q)))
    largest, constant = np.zeros((q, q)), np.arange(q) == 0
    largest[1:, 0] = 1.0
    seen = np.ones((q, q), dtype=bool)
    own = NoisyGram(z.T @ z + off + np.triu(off, 1).T, noise, seen, constant, largest)
    start = own.start()
    assert np.linalg.eigvalsh(start)[0] > 0.0
    assert np.sum((own.sent - start) ** 2 * own._weights) < q * (q + 1) / 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noisy_gram, "MOST", 1)
        assert own.draws(start, nothing_else)[1] > 100.0


def test_what_noise_hides_is_spread_over_orders_of_magnitude():
    """Noise is thirty times the least eigenvalue: draws do not stay where they began."""
    _, own = far_from_zero(0, 300.0)
    low, high = np.quantile(np.linalg.eigvalsh(drawn(own))[:, 0], [0.01, 0.99])
    assert high > 10.0 * low


@pytest.mark.slow
def test_chains_that_do_not_move_are_worth_nothing():
    def impossible(matrices):
        return np.full(len(matrices), -np.inf), np.zeros_like(matrices)

    own = noisy(gram(np.random.default_rng(0)), 10.0)
    assert own.draws(own.start(), impossible)[1] == 0.0
