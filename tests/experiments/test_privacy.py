"""The experiment on privacy: intervals hold what they should, audits stay below the budget."""

from __future__ import annotations

import os

import numpy as np
import pytest
from scipy.stats import chi2

from klfusion.privacy.bounds import ClippedWarning
from klfusion.privacy.mechanism import Budget

pytest.importorskip("opendp")
pytest.importorskip("pandas")
from experiments import (
    canaries,
    noisy_bounds,
    noisy_classes,
    noisy_coverage,
    noisy_draws,
    privacy,
)
from klfusion.pooling import noisy_gram
from klfusion.pooling.noisy_sums import noise_aware

pytestmark = pytest.mark.filterwarnings(f"ignore::{ClippedWarning.__module__}.ClippedWarning")


@pytest.mark.slow
def test_intervals_include_the_noise_and_naive_ones_do_not():
    """Of 200 intervals; a deviation of 1.5 %."""
    found = noisy_coverage.coverage(100, 40, [1.0])["epsilon 1"]
    assert 0.89 <= found["intervals"] <= 0.99
    assert found["naive intervals"] < 0.2


def test_one_simulated_regression():
    found = noisy_coverage.coverage(100, 2, [5.0])["epsilon 5"]
    assert found["sd"] > 3.0 * found["naive sd"]


def test_audits_stay_below_the_budget_and_can_fail(monkeypatch):
    rng = np.random.default_rng(0)  # this sampler has no seed
    monkeypatch.setattr(canaries, "_many", lambda scale, plays: rng.normal(scale=scale, size=plays))
    budget = Budget(5.0, privacy.HEART_DELTA)
    games = canaries.play_count(budget, 4_000)
    assert 5.0 / 3.0 * 0.8 < canaries.lower_bound(*games[:2], budget.delta) < 5.0
    assert 5.0 / 3.0 < canaries.gaussian_bound(*games, budget.delta) < 5.0
    released = canaries.play_regression(budget, 600, 0)
    assert 5.0 / 3.0 < canaries.gaussian_bound(*released, budget.delta) < 5.0
    without, there = np.zeros(2_000), np.ones(2_000)  # a mechanism that promises too much
    assert canaries.lower_bound(without, there, budget.delta) > 5.0
    assert canaries.gaussian_bound(without, there, 0.5, budget.delta) > 5.0
    assert canaries.gaussian_bound(without, without, 0.5, budget.delta) == 0.0


def test_epsilon_of_a_distance():
    """A distance of 1 has epsilon 4.38 at delta 1e-5: Dong, Roth and Su (2022), corollary 1."""
    rng = np.random.default_rng(0)
    worlds = rng.normal(size=2_000_000), 1.0 + rng.normal(size=2_000_000)
    assert canaries.gaussian_bound(*worlds, 0.5, 1e-5) == pytest.approx(4.38, abs=0.05)


@pytest.mark.skipif("KLFUSION_DATA" not in os.environ, reason="needs KLFUSION_DATA: heart disease")
def test_heart_disease():
    found = privacy.heart(None, 1, [10.0])
    assert found["epsilon 10"]["accuracy"] > 0.78 > found["no noise, prior deviation 1"]["FLamby"]


def test_longer_runs_of_the_sampler_change_little():
    sums = [noisy_coverage.simulated_sums(100, 5.0, seed)[0] for seed in range(2)]
    short = {"as it is": {}, "5 moves": {"_MOVES": 5}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noisy_draws, "SETTINGS", short)
        patch.setitem(noisy_draws.LONG, "_MOVES", 60)
        found = noisy_draws.study(sums)
    assert found["as it is"]["error of means"] < 0.15
    assert found["as it is"]["of variances"] < 0.25
    assert noisy_gram._MOVES == 15  # as before


@pytest.mark.parametrize("kind", noisy_bounds.EFFECTS)
def test_wide_bounds_cost_certainty_and_no_coverage(kind, monkeypatch):
    monkeypatch.setattr(noisy_bounds, "CENTRES", (0.0,))
    monkeypatch.setattr(noisy_bounds, "WIDTHS", (1.0, 10.0))
    monkeypatch.setattr(noisy_bounds, "EFFECTS", {kind: noisy_bounds.EFFECTS[kind]})
    close, wide = noisy_bounds.study(2, (10.0,), 3).values()
    assert wide["deviation, epsilon 10"] > 1.3 * close["deviation, epsilon 10"]
    assert wide["coverage, epsilon 10"] >= 0.75  # of four or six intervals


def test_intervals_of_private_classes(monkeypatch):
    monkeypatch.setattr(noisy_classes, "SITES", (2,))
    monkeypatch.setattr(noisy_classes, "WIDTHS", (1.0,))
    found = noisy_classes.study(8, (10.0,), 3)
    assert len(found) == 2
    for row in found.values():  # of 32 and 8 intervals
        assert min(row.values()) >= 0.75


def test_draws_need_far_less_work_than_is_allowed():
    found = noisy_draws.work([noisy_coverage.simulated_sums(100, 5.0, 0)[0]])
    assert found["rounds, most"] < noisy_gram.MOST / 8
    assert found["fewest draws"] >= noisy_gram.ENOUGH <= found["fewest weighted"]


def test_with_little_noise_the_region_is_that_of_a_normal_posterior():
    sums, *_ = noisy_coverage.simulated_sums(400, 50.0, 0)
    assert noise_aware(tuple(sums)).radius == pytest.approx(chi2.ppf(0.95, 5) ** 0.5, rel=0.1)
    sums, *_ = noisy_coverage.simulated_sums(100, 1.0, 0)
    assert noise_aware(tuple(sums)).radius > 1.02 * chi2.ppf(0.95, 5) ** 0.5
