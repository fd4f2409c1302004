"""One hostile silo of ten: bounded under "robust" with two silos per component, and named."""

from __future__ import annotations

import pytest

from experiments import attacks

BOUND = 0.01  # nats per observation
BEYOND = "all counts on one"  # 0.0103 is the bound of the counts alone


@pytest.fixture(scope="module")
def rows():
    return {row["attack"]: row for row in attacks.run(seed=100)}


def test_no_attack_costs_much(rows):
    lost = {name: -row["robust, two silos"] for name, row in rows.items() if name != BEYOND}
    assert len(lost) == 11
    assert {name: loss for name, loss in lost.items() if loss > BOUND} == {}
    assert -rows[BEYOND]["robust, two silos"] < 1.1 * BOUND


def test_the_share_of_a_silo_is_bounded_without_support(rows):
    # log(12 / 9): a silo counts at most as three of the other nine.
    assert min(row["robust"] for row in rows.values()) > -0.288


def test_averages_are_not_bounded(rows):
    assert rows["counts 1e9 for 100"]["average"] < -8.0


def test_the_silo_is_named_and_no_honest_one(rows):
    unnamed = [name for name, row in rows.items() if not row["named"]]
    assert set(unnamed) <= {"means shifted by 0.3"}
    accused = {name for name, row in rows.items() if row["others named"]}
    assert accused == {"copy of another silo", "copies from two silos"}  # of two copies, both are
