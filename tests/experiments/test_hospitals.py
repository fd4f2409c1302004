"""The experiments with hospitals: what they conclude, on less."""

from __future__ import annotations

import os

import numpy as np
import pytest

pytest.importorskip("lifelines")

from experiments import heterogeneity, hospitals, hospitals_data

needs_data = pytest.mark.skipif(
    not os.environ.get("KLFUSION_DATA"), reason="needs KLFUSION_DATA, the folder of the data sets"
)


@needs_data
def test_trauma_is_corrected_by_a_second_round():
    rows = [row["deviations"] for row in hospitals.trauma(None).values()]
    assert rows[0] == pytest.approx(0.5595, abs=1e-3)  # BFI's rule
    assert rows[1] < 0.1
    assert rows[2] < 1e-3


@needs_data
@pytest.mark.slow
def test_heart_disease():
    rows = hospitals.heart(None, range(2))
    best = rows["klfusion, two rounds"]
    assert best["accuracy, FLamby's split"] >= 0.80
    assert best["log-loss, FLamby's split"] <= 0.40
    assert rows["FLamby, FedAvg100"]["accuracy, FLamby's split"] == pytest.approx(0.685, abs=1e-3)


@needs_data
@pytest.mark.slow
def test_breast_cancer():
    hospitals_, split = hospitals_data.breast_cancer(None)
    assert [len(h.y) for h in hospitals_.values()] == [311, 196, 206, 162, 162, 51]
    first, second = hospitals.rounds(hospitals.cox_message, split[0], 2)
    scores = [
        hospitals._concordance(dict.fromkeys(split[0], hospitals._by_name(f.posterior)), split[1])
        for f in (first, second)
    ]
    assert scores[1][0] >= 0.855


def test_limits_of_the_variation():
    """A higher limit covers more, and the one that is used covers what it says."""
    for row in heterogeneity.limits(40):
        shares = [value for key, value in row.items() if key.startswith("limit")]
        assert shares == sorted(shares)


def test_coverage_of_one_run():
    found = heterogeneity.run(3, 0.2, 0)
    assert set(map(type, found.values())) <= {bool, np.bool_}
    assert found == heterogeneity.run(3, 0.2, 0)
