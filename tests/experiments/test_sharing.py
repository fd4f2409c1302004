"""The study of silos that share all, some or none: its problems are what they claim to be."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

pytest.importorskip("threadpoolctl")
pytest.importorskip("joblib")
from experiments import sharing
from experiments.sharing import Setting


def test_a_small_run_writes_everything(tmp_path, monkeypatch):
    settings = [Setting(name, 2, 12.0, 4, 1.0) for name in sharing.SHARED]
    monkeypatch.setattr(sharing, "grid", lambda quick: settings)
    rows = sharing.run(tmp_path, seeds=2, quick=True, n_jobs=1)
    with (tmp_path / "runs.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 8
    written = json.loads((tmp_path / "results.json").read_text())
    assert written["rows"] == rows
    assert written["settings"]["problems"] == 8
    totals = {row["sharing"]: row for row in rows if row["setting"] == "all"}
    assert list(totals) == ["all", "half", "one", "none"]
    assert all(row["problems"] + row["failed_fits"] == 2 for row in totals.values())
    assert totals["all"]["right_matching"] == 1.0
    assert sharing.shown(rows).row_count == len(rows)


def test_the_grid_has_seven_hundred_problems_and_a_tenth_of_them():
    assert 5 * len(sharing.grid()) == 720
    assert len(sharing.grid(quick=True)) == 72
    assert len(set(sharing.grid())) == len(sharing.grid())


@pytest.mark.parametrize("name", sharing.SHARED)
def test_silos_share_as_many_clusters_as_they_should(name):
    setting = Setting(name, 3, 6.0, 6, 2.0)
    silos = [set(sharing.held(setting, j).tolist()) for j in range(3)]
    assert all(len(own) == 6 for own in silos)
    assert len(set.union(*silos)) == setting.n_clusters
    assert len(set.intersection(*silos)) == setting.n_shared
    assert setting.n_shared == {"all": 6, "half": 3, "one": 1, "none": 0}[name]


def test_clusters_lie_as_far_apart_and_shifts_reach_as_far_as_they_should():
    rng = np.random.default_rng(0)
    setting = Setting("none", 5, 12.0, 6, 2.0)
    places = sharing.centres(setting, rng)
    distance = np.linalg.norm(places[:, None] - places, axis=2)
    assert places.shape == (30, sharing.DIM)
    assert distance[~np.eye(30, dtype=bool)].min() >= 12.0
    lengths = np.concatenate(
        [np.linalg.norm(sharing.shifts(setting, rng), axis=1) for _ in range(100)]
    )
    assert 1.9 < lengths.max() <= 2.0
    # Three quarters of the radius hold this share of a ball.
    assert np.mean(lengths < 1.5) == pytest.approx(0.75**sharing.DIM, abs=0.06)


def test_a_matching_is_right_up_to_the_numbers_of_labels():
    true = np.array([0, 1, 0, 2])
    assert sharing.same_partition(true, np.array([2, 0, 2, 1]))
    assert not sharing.same_partition(true, np.array([0, 1, 0, 1]))
    assert not sharing.same_partition(true, np.array([0, 1, 3, 2]))
    assert not sharing.same_partition(true, np.array([0, 1, 0, -1]))


def test_runs_of_one_seed_are_equal():
    setting = Setting("half", 2, 6.0, 4, 1.0)
    assert sharing.run_one(setting, 1) == sharing.run_one(setting, 1)
