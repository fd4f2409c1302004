"""Every benchmark in small: the rows it promises, and figures that can be."""

from __future__ import annotations

import json
from importlib import import_module

import numpy as np
import pytest

pytest.importorskip("threadpoolctl")
from benchmarks import __main__ as command
from benchmarks import accepted, growth, measure

QUICK = ("local",)  # the others take seconds
NEEDS = {"assignment": "cvxpy", "homogeneous": "ot", "hmm": "hmmlearn"}


@pytest.mark.filterwarnings("default")  # of the peers
@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in command.NAMES
    ],
)
def test_quick(name, monkeypatch):
    monkeypatch.setattr(measure, "MIN_SECONDS", 0.0)  # one run is enough here
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    rows = import_module(f"benchmarks.{name}").run(quick=True)
    assert rows
    names = [(row["problem"], row["peer"]) for row in rows]
    assert len(set(names)) == len(names)  # accepted figures go by them
    for row in rows:
        assert row["ours_s"] > 0
        assert row["cpu_s"] > 0
        assert row["peak_mb"] is None or row["peak_mb"] >= 0
        assert np.isfinite(row["exponent"] if "exponent" in row else row["ratio"])
        json.dumps(row)
    assert command.table(name, rows).row_count == len(rows)


def test_growth_is_the_slope_of_logarithms():
    assert growth.exponent([10, 20, 40, 80], [1.0, 2.8, 8.1, 22.5]) == pytest.approx(1.5, abs=0.01)


def fake(monkeypatch, tmp_path, ratio):
    rows = [{"problem": "p", "peer": "q", "ours_s": 1.0, "cpu_s": 1.0, "ratio": ratio}]
    monkeypatch.setattr(import_module("benchmarks.local"), "run", lambda quick: rows)
    monkeypatch.setattr(accepted, "PATH", tmp_path / "accepted.json")


def test_the_command_accepts_compares_and_writes(monkeypatch, tmp_path, capsys):
    out = tmp_path / "deep" / "rows.json"
    fake(monkeypatch, tmp_path, ratio=10.0)
    command.main(["local", "--accept", "--out", str(out)])
    assert json.loads(out.read_text())["rows"][0]["benchmark"] == "local"
    command.main(["local"])
    assert "No figure changed" in capsys.readouterr().out
    fake(monkeypatch, tmp_path, ratio=5.0)
    command.main(["local"])
    assert "slower" in capsys.readouterr().out


def test_quick_figures_are_not_accepted(capsys):
    with pytest.raises(SystemExit):
        command.main(["local", "--quick", "--accept"])
    assert "--quick" in capsys.readouterr().err
