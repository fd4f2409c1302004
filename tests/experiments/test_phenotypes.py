"""Phenotypes of a consortium: what the experiment concludes, on less."""

from __future__ import annotations

import os

import numpy as np
import pytest

from experiments import phenotypes, phenotypes_data

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
