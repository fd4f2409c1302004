"""The experiment on draws of posteriordb: what it measures, without its samplers."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.loops import for_each

pytest.importorskip("numpyro")
from experiments import draws, draws_models

DATA = Path(os.environ.get("KLFUSION_DATA", "none"))
with_data = pytest.mark.skipif(
    not (DATA / "posteriordb").is_dir(), reason="needs posteriordb in KLFUSION_DATA"
)


def test_errors_are_in_units_of_the_reference():
    true = (np.zeros(2), np.diag([1.0, 4.0]))
    found = draws.compared((np.array([0.0, 1.0]), np.diag([1.21, 4.0])), true)
    assert found["mean"] == pytest.approx(0.5)
    assert found["deviation"] == pytest.approx(0.1)
    assert draws.compared(true, true)["nats"] == pytest.approx(0.0, abs=1e-12)


@for_each("how", ["random", "covariate"])
def test_every_row_is_dealt_once(how):
    rng = np.random.default_rng(0)
    x = np.column_stack([np.ones(97), rng.normal(size=97)])
    model = draws_models.Regression("made", x, rng.normal(size=97), x[:, 1])
    sites = draws_models.dealt(model, 4, how, 0)
    assert sorted(np.concatenate(sites).tolist()) == list(range(97))
    means = [model.by[rows].mean() for rows in sites]
    assert (np.ptp(means) > 1.0) == (how == "covariate")


def test_the_potential_is_that_of_the_regression():
    """Differences of log-likelihoods agree, with the volume of the coordinates added."""
    jax = pytest.importorskip("jax")
    rng = np.random.default_rng(0)
    x = np.column_stack([np.ones(30), rng.normal(size=30)])
    model = draws_models.Regression("made", x, x @ [1.0, 2.0] + rng.normal(size=30), x[:, 1])
    basis, r = np.linalg.qr(model.x)
    q = basis.T @ model.y
    rss = np.square(model.y - basis @ q).sum()
    own = (30.0, rss, np.zeros(3), r, q)
    z, values = rng.normal(size=(4, 3)), []
    with jax.enable_x64(True):
        potentials = np.array([float(draws_models.linear(row, *own)) for row in z])
        for row in z:
            beta, sigma = draws_models.linear_values(row, 30.0, rss, r, q)
            values.append((np.asarray(beta), float(sigma)))
    beta, sigma = np.stack([b for b, _ in values]), np.array([s for _, s in values])
    exact = model.log_likelihood(np.arange(30), {"beta": beta, "sigma": sigma}) + np.log(sigma)
    np.testing.assert_allclose(np.diff(-potentials), np.diff(exact), rtol=1e-9)


@with_data
def test_labels_of_posteriordb_are_found_again():
    for name, row in draws.relabelling(DATA, 0).items():
        assert (row["draws"], row["errors"]) == (10_000, 0), name


@with_data
def test_least_squares_are_near_the_reference():
    """The models are those of posteriordb: estimates lie within a deviation of its draws."""
    for name, model in draws_models.regressions(DATA).items():
        if not model.logistic:
            mean, covariance = draws.moments(draws_models.reference(name, DATA))
            beta = np.linalg.lstsq(model.x, model.y, rcond=None)[0]
            error = (mean[: len(beta)] - beta) / np.sqrt(np.diag(covariance))[: len(beta)]
            assert np.abs(error).max() < 0.2, name
