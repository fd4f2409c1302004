"""Phenotypes of a consortium: what the experiment concludes, on less."""

from __future__ import annotations

import os

import numpy as np
import pytest

import klfusion as kf
from experiments import phenotype_sizes, phenotypes, phenotypes_data
from klfusion.learners import Column

needs_data = pytest.mark.skipif(
    not os.environ.get("KLFUSION_DATA"), reason="needs KLFUSION_DATA, the folder of the data sets"
)


def test_a_consortium_is_as_described():
    sites = phenotypes_data.Consortium.drawn(104)
    assert len(sites.train) in (3, 5, 10, 20)
    assert sites.n_phenotypes == len(np.unique(sites.test_labels)) == 5
    cells = np.isnan(sites.schema.encoded(sites.test))
    assert 0.1 < cells.mean() < 0.35
    assert not np.isnan(sites.schema.encoded(sites.truth)).any()
    assert sites.error(sites.truth) == 0.0


def test_a_simulated_consortium():
    found = phenotypes.simulated(101)
    assert found["fused size"] == found["pooled size"] == found["phenotypes"] == 5
    summary = phenotypes.summary_of_simulated([found])
    assert summary["ARI, fused over pooled"] > 0.95
    assert summary["imputation error, fused over pooled"] < 1.05


def test_what_decides_the_size_of_two_clear_groups():
    """The joint bound of one site is its own; small groups of patients show the same size."""
    rng = np.random.default_rng(3)
    schema = kf.Schema([Column(name, "continuous", (0.0, 10.0)) for name in "ab"])
    group = rng.integers(2, size=(3, 60))
    sites = [{name: 8.0 * own + rng.normal(size=60) for name in "ab"} for own in group]
    every = phenotypes_data.joined(sites)
    pooled = phenotype_sizes.fitted(schema, every, 0)
    same = phenotype_sizes.bound_of_sites(schema, every, [pooled], (np.arange(2),))
    assert same == pytest.approx(pooled.lower_bound_, abs=0.01)
    found = phenotype_sizes.dealt_at_random(schema, every, every, pooled, sites, 0)
    sizes = {name: value for name, value in found.items() if "size" in name and "nats" not in name}
    assert set(sizes.values()) == {2.0}
    assert 0.0 <= found["dealt, nats lost by sites' own assignments"] < 1.0
    assert found["pooled, nats above the next size"] > 5.0


@needs_data
@pytest.mark.slow
def test_heart_disease():
    hospitals = phenotypes_data.heart(None)
    assert [len(frame["age"]) for frame in hospitals.values()] == [303, 294, 123, 200]
    assert np.isnan(hospitals["switzerland"]["cholesterol"]).all()
    summary = phenotypes.summary_of_heart([phenotypes.heart(hospitals, 100)])
    assert summary["fused less best hospital"] > 0.5
    assert summary["fused less pooled"] > -0.05
    assert summary["fused, 4 rounds less pooled"] > -0.05
