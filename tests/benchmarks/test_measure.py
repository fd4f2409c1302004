"""Times, memory, and peers that are not there."""

from __future__ import annotations

import platform
import sys
import time

import numpy as np
import pytest

from benchmarks import assignment, fusion, hmm, homogeneous, measure


def test_waiting_is_wall_time_and_not_cpu_time():
    waited = measure.measure(lambda: time.sleep(0.05), repeats=3)
    assert waited.wall >= 0.05
    assert waited.cpu < waited.wall


def test_the_peak_is_what_the_call_took():
    kept = np.ones(10_000_000)  # 80 MB that stand before the call are not in it
    peak = measure.measure(lambda: float((kept + 1.0).sum())).peak_mb
    if peak is None:
        pytest.skip("this system does not tell a process its peak memory")
    assert 70 < peak < 100
    assert measure.measure(lambda: None).peak_mb < 10  # nor is what an earlier call took


def test_results_of_earlier_runs_are_not_in_the_peak():
    measured = measure.measure(lambda: np.ones(5_000_000), repeats=3)
    assert measured.peak_mb is None or measured.peak_mb < 60
    assert len(measured.result) == 5_000_000


@pytest.fixture(autouse=True)
def _hurry(monkeypatch):
    monkeypatch.setattr(measure, "MIN_SECONDS", 0.0)


def test_short_calls_are_repeated(monkeypatch):
    monkeypatch.setattr(measure, "MIN_SECONDS", 3600.0)
    calls = []
    measure.measure(lambda: calls.append(0))
    assert len(calls) == measure.MAX_REPEATS


def test_the_ratio_is_of_cpu_times():
    ours = measure.Measured(None, wall=9.0, cpu=1.0, peak_mb=1.0)
    theirs = measure.Measured(None, wall=10.0, cpu=4.0, peak_mb=None)
    row = measure.compare("problem", "peer", ours, theirs, note="so")
    assert row["ratio"] == 4.0
    assert (row["ours_s"], row["peer_s"], row["peak_mb"], row["note"]) == (9.0, 10.0, 1.0, "so")


@pytest.mark.parametrize(
    ("benchmark", "library", "extra"),
    [(assignment, "cvxpy", "bench"), (homogeneous, "ot", "bench"), (hmm, "hmmlearn", "hmmlearn")],
)
def test_a_missing_peer_is_left_out_with_the_line_that_installs_it(
    benchmark, library, extra, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, library, None)
    assert benchmark.run(quick=True) == []
    said = capsys.readouterr().out
    assert library in said
    assert f"pip install 'klfusion[{extra}]'" in said


@pytest.mark.slow
def test_the_other_peers_stay(monkeypatch, capsys):
    for library in ("cvxpy", "ot"):
        monkeypatch.setitem(sys.modules, library, None)
    assert [row["peer"] for row in fusion.run(quick=True)] == ["SPAHM"]
    assert capsys.readouterr().out.count("pip install") == 2


def test_the_machine_is_described_without_its_name():
    described = measure.machine()
    assert {"cores", "python", "numpy"} <= set(described)
    assert platform.node() not in described.values()
