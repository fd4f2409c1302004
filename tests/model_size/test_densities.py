"""Densities of log-distances."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import f as f_distribution

from klfusion.model_size.densities import Different, Same, farther, grid_log_odds
from klfusion.model_size.log_f import (
    LOWEST,
    grid_prior,
    log_f,
    log_sum,
    logaddexp,
    lowest_location,
    same_grid,
)


@pytest.mark.parametrize(("k", "nu"), [(2, 6), (5, 300), (2000, 3000)])
def test_the_density_is_that_of_the_logarithm_of_an_f_variate(k, nu):
    y = np.linspace(-2.0, 1.0, 7)
    expected = f_distribution.logpdf(np.exp(y), k, nu) + y
    moved = 1.5
    found = log_f(y + moved, np.array([moved]), np.array([k]), np.array([nu]))
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-8)


@pytest.mark.parametrize("k", [3, 50])
def test_few_directions_leave_a_wide_lower_tail(k):
    x = np.log(f_distribution.rvs(k, 1000, size=2000, random_state=0))
    found = Different.of(x, 500, 0.05, 100.0)
    true = log_f(np.array([-1.0]), np.zeros(1), np.array([k]), np.array([1000]))
    assert found.log_density(np.array([-1.0]))[0] == pytest.approx(true[0, 0], abs=1.0)


def test_what_is_nearer_is_no_less_alike_and_what_is_farther_no_less_different():
    different = Different.of(np.log(np.linspace(50.0, 200.0, 30)), 10, 0.05, 100.0)
    x = np.linspace(different.centre - 12.0, different.centre + 6.0, 200)
    assert (np.diff(different.log_density(x)) >= -1e-9).all()
    near = np.full(20, different.centre - 4.0) + np.linspace(-0.5, 0.5, 20)
    noise, nearest = different.centre - 3.0, different.centre - 4.0
    odds = grid_log_odds(near, np.zeros(20), different, 0.05, noise, nearest).sum(axis=0)
    same = Same.of(different.centre, odds, noise, nearest)
    odds = same.log_odds(x, x, np.zeros(len(x)), different, 0.05)
    assert odds[0] == odds.max()
    assert odds[-1] < -3.0
    assert same.location == pytest.approx(-4.0, abs=0.7)


def test_larger_clusters_look_farther_but_at_most_twice():
    sizes = np.array([1.0, 2.0, 10.0, 1e6])
    shift = farther(sizes, 1.0, 1e6)
    assert shift[0] == 0.0
    assert (np.diff(shift) > 0).all()
    assert shift[-1] == pytest.approx(np.log(2.0), abs=1e-5)


def test_few_pairs_do_not_show_more_directions_than_parameters():
    pairs = np.log(np.array([90.0, 100.0, 110.0]))
    near = np.array([np.log(100.0) - 3.0])
    few, many = (Different.of(pairs, 3, 0.05, n).log_density(near)[0] for n in (2.0, 2000.0))
    assert few > many + 1.0
    enough = np.tile(pairs, 100)
    few, many = (Different.of(enough, 300, 0.05, n).log_density(near)[0] for n in (2.0, 2000.0))
    assert few == pytest.approx(many, abs=0.5)


def test_sums_of_exponentials_are_those_of_the_libraries():
    rng = np.random.default_rng(0)
    a, b = rng.normal(scale=300.0, size=(2, 20, 30))
    b[3] = -np.inf
    np.testing.assert_allclose(logaddexp(a, b), np.logaddexp(a, b), rtol=1e-14)
    np.testing.assert_allclose(log_sum(a.copy()), logsumexp(a, axis=1), rtol=1e-14)


@pytest.mark.parametrize("nearest", [-0.2, -3.3, -30.0])
def test_locations_below_the_nearest_components_are_not_possible(nearest):
    noise = -2.0
    grid, prior = same_grid(lowest_location(noise, nearest)), grid_prior(noise, nearest)
    every = same_grid(LOWEST)
    possible = every.location >= max(min(noise, nearest), LOWEST) - 0.5
    likely = prior > -1e3
    np.testing.assert_array_equal(grid.location[likely], every.location[possible])
    assert np.exp(prior).sum() == pytest.approx(1.0)
