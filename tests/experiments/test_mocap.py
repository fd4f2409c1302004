"""The motion-capture experiment in small, and on the data where they are."""

from __future__ import annotations

import csv
import json
import os
from functools import partial

import numpy as np
import pytest

pytest.importorskip("matplotlib")
from experiments import mocap


def small_recordings():
    """Six sequences of four exercises; each subject has one that the other has not."""
    rng = np.random.default_rng(0)
    means = 8.0 * np.eye(4, 3) - 2.0
    orders = [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 3], [1, 3, 0], [3, 0, 1]]
    labels = [np.repeat(order, 30) for order in orders]
    frames = [means[own] + rng.normal(size=(90, 3)) for own in labels]
    return mocap.Recordings(frames, labels, ["jump", "jog", "squat", "box"])


@pytest.fixture(autouse=True)
def few_states(monkeypatch):
    monkeypatch.setattr(mocap, "StickyHDPHMM", partial(mocap.StickyHDPHMM, n_components=6))


@pytest.mark.slow
def test_a_small_run_writes_everything(tmp_path):
    results = mocap.run(small_recordings(), tmp_path, seeds=1, quick=True, n_jobs=1)
    methods = {*mocap.METHODS, mocap.APART, mocap.POOLED}
    with (tmp_path / "runs.csv").open() as file:
        assert {row["method"] for row in csv.DictReader(file)} == methods
    assert json.loads((tmp_path / "results.json").read_text())["methods"] == results["methods"]
    for name in ("timelines.png", "timelines.svg", "held_out.csv"):
        assert (tmp_path / name).stat().st_size > 0
    by_method = {row["method"]: row for row in results["methods"]}
    assert by_method[mocap.OURS]["states"] == 4
    assert by_method[mocap.OURS]["ari_local"] > 0.95
    assert by_method[mocap.OURS]["ari_decoded"] > 0.95
    assert by_method[mocap.APART]["states"] == 6
    density = {(r["model"], r["subject"]): r["log_likelihood"] for r in results["held_out"]}
    for one, other in (("subject 13", "subject 14"), ("subject 14", "subject 13")):
        assert density[mocap.OURS, other] > density[one, other]
    assert sum(map(sum, results["confusion"].values())) == 540
    assert mocap.shown(results["methods"]).row_count == len(methods)


def test_standardised_channels_leave_the_divergences():
    recordings = small_recordings()
    silos = {name: kf_extract(recordings, own, name) for name, own in mocap.SUBJECTS.items()}
    family = silos["subject 13"].family
    before = family.kl(*[silo.natural for silo in silos.values()])
    after = family.kl(*[silo.natural for silo in mocap.standardised(silos)])
    np.testing.assert_allclose(after, before, rtol=1e-6)


def kf_extract(recordings, which, name):
    return mocap.kf.extract(mocap.fit(recordings, which, seed=0, n_init=1), name=name)


@pytest.mark.skipif(not os.environ.get("KLFUSION_DATA"), reason="KLFUSION_DATA is not set")
def test_the_data_are_as_described():
    recordings = mocap.load()
    assert [len(x) for x in recordings.frames] == [382, 205, 251, 446, 387, 387]
    assert recordings.exercises[0] == "JumpJack"
    assert sorted(set(np.concatenate(recordings.labels))) == list(range(12))
