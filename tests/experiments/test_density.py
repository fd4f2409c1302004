"""The density experiment in small."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

from experiments import density
from experiments.density import Cell


def test_a_small_run_writes_everything(tmp_path):
    cell = Cell("small", partial(density.simulated, 2, 4, 200), (3, 4))
    tasks = [
        partial(density.run_one, cell, seed, None)
        for seed in range(density.FIRST_SEED, density.FIRST_SEED + 2)
    ]
    rows = density.run(tmp_path, tasks, seeds=2, n_jobs=1)
    assert json.loads((tmp_path / "results.json").read_text())["rows"] == rows
    found = {r["model"]: r["density"] for r in rows}
    assert set(found) >= {"default", "predictive", "FedGenGMM", "pooled data"}
    assert found["default"] == pytest.approx(found["product"], abs=1e-6)
    assert found["predictive"] > found["FedGenGMM"]
    assert "small" in density.shown(rows).columns[0]._cells


@pytest.mark.slow
def test_moments_that_were_sent_hold_what_is_well_separated():
    """Pooled data's mixture stays what it is when its draws are moved to what was sent."""
    cell = Cell("small", partial(density.simulated, 2, 4, 200), (3, 4))
    found = density.run_limit(cell, density.FIRST_SEED, None)["found"]
    first, last = (found[f"pooled data, {n} rounds"]["density"] for n in (0, 10))
    assert last == pytest.approx(first, abs=0.1)
    for name in ("misfit of predictive", "misfit of pooled data"):
        assert 0.0 < found[name]["density"] < 1.0


def test_users_fits_are_compared_with_pooled_data():
    found = density.run_user("ten silos, 60 rows", 0)["found"]
    assert found["default"]["density"] > found["all components"]["density"] - 0.1
    assert found["default"]["size"] == found["pooled data"]["size"]


def test_fits_by_maximum_likelihood_are_fused_without_a_prior():
    found = density.run_point(8, 60, 0)["found"]
    near = {"default": 1e-3, "predictive": 0.05}
    for name, tolerance in near.items():
        wanted = found["pooled data"]["density"]
        assert found[name]["density"] == pytest.approx(wanted, abs=tolerance)
    assert found["prior left in"]["density"] < found["default"]["density"] - 0.1


def test_the_data_sets_have_silos_and_held_out_rows():
    for name in ("digits", "wine", "cancer"):
        silos, held_out = density.table(name, 0, None)
        assert len(silos) >= 2 and len(held_out) > 50
        assert {x.shape[1] for x in silos} == {held_out.shape[1]}


def test_density_is_that_of_the_mixture():
    from sklearn.mixture import GaussianMixture

    x = np.random.default_rng(0).normal(size=(200, 3))
    for kind in ("full", "tied", "diag", "spherical"):
        model = GaussianMixture(2, covariance_type=kind, random_state=0).fit(x)
        assert density.density(model, x) == pytest.approx(model.score(x))
