"""R-hat and effective sample sizes are ArviZ's."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.signal import lfilter

from klfusion.draws import convergence, normality
from tests.helpers.loops import for_each


def chains(phi, shape=(4, 1000, 3), seed=0):
    """Autoregressive chains of stationary variance one."""
    noise = np.random.default_rng(seed).normal(size=(shape[0], shape[1] + 200, shape[2]))
    return lfilter([np.sqrt(1 - phi**2)], [1.0, -phi], noise, axis=1)[:, 200:]


@for_each("phi", [0.0, 0.5, 0.95, -0.4])
def test_effective_sizes_of_autoregressive_chains(phi):
    expected = 80_000 * (1 - phi) / (1 + phi)
    np.testing.assert_allclose(
        convergence.ess(chains(phi, (8, 10_000, 4))).mean(), expected, rtol=0.15
    )


@for_each("phi, shift", [(0.0, 0.0), (0.9, 0.0), (0.3, 0.5), (-0.3, 0.0)])
def test_are_those_of_arviz(phi, shift):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arviz = pytest.importorskip("arviz")
    draws = chains(phi)
    draws[1] += shift
    for k in range(draws.shape[2]):
        own = draws[:, :, k]
        assert convergence.r_hat(draws)[k] == pytest.approx(float(arviz.rhat(own)), rel=1e-6)
        assert convergence.ess(draws)[k] == pytest.approx(float(arviz.ess(own)), rel=0.02)


def test_good_draws_have_no_doubts():
    draws = chains(0.2)
    names = ["a", "b", "c"]
    assert convergence.doubts(draws, names, 0) == []
    assert normality.doubts(draws.reshape(-1, 3), names, 2000.0) == []


def test_a_stuck_chain_is_found():
    draws = chains(0.2)
    draws[3, :, 1] = 2.0
    (r_hat, size) = convergence.doubts(draws, ["a", "b", "c"], 0)
    assert "'b'" in r_hat and "'a'" not in r_hat
    assert "effective sample size" in size


def test_distances_are_those_of_the_distributions():
    """Exponential draws are 0.42 nats from the Normal of their moments; bins see most of it."""
    draws = np.random.default_rng(0).exponential(size=(20_000, 1))
    own, joint = normality.distances(draws, 20_000.0)
    assert 0.2 < own[0] < 0.42
    assert joint >= own[0]
