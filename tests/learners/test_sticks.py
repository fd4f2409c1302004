"""The top level: moments of tilted Beta distributions, and a bound that is one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, gammaln, log_expit

from klfusion.learners._transitions import Sticks, TransitionPrior, Transitions, _grid


@pytest.mark.parametrize(
    ("a", "b", "tilt"),
    [(2, 7, 0), (2, 6, 50), (16, 250, -300), (16, 250, 3000), (16, 20, 1e5), (16, 20, -1e5)],
)
def test_moments_of_a_tilted_beta(a, b, tilt):
    x, weight, log_total = _grid(float(a), float(b), float(tilt))
    top = float(x[weight.argmax()])

    def density(y, power=0):
        log = a * log_expit(y) + b * log_expit(-y) + tilt * expit(y)
        log -= a * log_expit(top) + b * log_expit(-top) + tilt * expit(top)
        return np.exp(log) * expit(y) ** power

    limits = (2 * x[0] - top, 2 * x[-1] - top)
    total, first = (
        quad(density, *limits, args=(power,), points=[top], limit=500)[0] for power in (0, 1)
    )
    assert weight @ expit(x) == pytest.approx(first / total, rel=1e-8)
    shift = a * log_expit(top) + b * log_expit(-top) + tilt * expit(top)
    assert log_total == pytest.approx(np.log(total) + shift, abs=1e-8)


def test_weights_add_up():
    sticks = Sticks.even(4, 5.0)
    np.testing.assert_allclose(sticks.weights, 0.2)


@pytest.mark.parametrize("kappa", [0.0, 10.0])
def test_updates_raise_the_bound(kappa):
    prior = TransitionPrior(kappa=kappa, gamma=5.0, eta=0.5)
    rng = np.random.default_rng(0)
    counts = rng.poisson(3.0, size=(6, 5)) * (rng.random((6, 5)) < 0.4) + 0.0
    padded = np.pad(counts, [(0, 0), (0, 1)])

    def value(q):
        return prior.bound(q) + (padded * q.expected_log).sum()

    q = prior.posterior(counts, Sticks.even(5, 5.0))
    values = [value(q)]
    for _ in range(30):
        q = prior.posterior(counts, q.sticks)
        values.append(value(q))
    assert np.diff(values).min() > -1e-9
    # Far from a maximum in any direction: rows that are not the best have a lower bound.
    assert value(Transitions(1.3 * q.concentration, q.sticks)) < values[-1]


def test_the_bound_of_the_normaliser():
    """Superadditivity: the bound on the Dirichlet's normaliser holds, for weights anywhere."""
    rng = np.random.default_rng(1)
    for _ in range(50):
        n, eta, kappa = rng.integers(1, 8), rng.gamma(1.0, 3.0), rng.gamma(1.0, 10.0)
        beta = rng.dirichlet(np.full(n + 1, 0.5))
        row = eta * beta
        row[0] += kappa
        exact = gammaln(row.sum()) - gammaln(row).sum()
        bound = n * np.log(eta) + np.log(beta[1:]).sum() - np.log(eta + kappa)
        chord = np.log(kappa) + beta[0] * np.log1p(eta / kappa)
        assert exact >= bound + chord - 1e-9
