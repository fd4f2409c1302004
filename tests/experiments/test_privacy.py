"""The experiment on privacy: intervals hold what they should, audits stay below the budget."""

from __future__ import annotations

import os

import numpy as np
import pytest

from klfusion.privacy.bounds import ClippedWarning
from klfusion.privacy.mechanism import Budget

pytest.importorskip("opendp")
pytest.importorskip("pandas")
from experiments import privacy

pytestmark = pytest.mark.filterwarnings(f"ignore::{ClippedWarning.__module__}.ClippedWarning")


@pytest.mark.slow
def test_intervals_include_the_noise_and_naive_ones_do_not(monkeypatch):
    monkeypatch.setattr(privacy, "EPSILONS", (1.0,))
    found = privacy.coverage(100, 40)["epsilon 1"]  # 200 intervals: a deviation of 1.5 %
    assert 0.89 <= found["intervals"] <= 0.99
    assert found["naive intervals"] < 0.2


def test_one_simulated_regression(monkeypatch):
    monkeypatch.setattr(privacy, "EPSILONS", (5.0,))
    found = privacy.coverage(100, 2)["epsilon 5"]
    assert found["sd"] > 3.0 * found["naive sd"]


def test_audits_stay_below_the_budget_and_can_fail():
    budget = Budget(5.0, privacy.HEART_DELTA)
    bound = privacy.lower_bound(*privacy.play_count(budget, 4_000, 0), budget.delta)
    assert 5.0 / 3.0 * 0.8 < bound < 5.0
    assert privacy.lower_bound(*privacy.play_regression(budget, 200, 0), budget.delta) < 5.0
    without, there = np.zeros(2_000), np.ones(2_000)  # a mechanism that promises too much
    assert privacy.lower_bound(without, there, budget.delta) > 5.0


@pytest.mark.skipif("KLFUSION_DATA" not in os.environ, reason="needs KLFUSION_DATA: heart disease")
def test_heart_disease():
    found = privacy.heart(None, 1)
    assert found["epsilon 10"]["accuracy"] > 0.78 > found["no noise"]["FLamby"]
