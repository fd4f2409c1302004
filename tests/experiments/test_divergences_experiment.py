"""The comparison of divergences in small."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("matplotlib")
from experiments import divergences
from experiments.simulation import Simulation


def test_a_small_run_writes_everything(tmp_path):
    point = Simulation(separation=2.0, n_components=3, dim=2, n_silos=5, n_points=90)
    rows = divergences.run(tmp_path, seeds=1, n_jobs=1, points=[point])
    assert len(rows) == 5 + 6
    assert json.loads((tmp_path / "results.json").read_text())["rows"] == rows
    assert all(0.0 < r["hausdorff"] < 20.0 for r in rows)
    assert len(divergences.shown(rows).columns) == 4
