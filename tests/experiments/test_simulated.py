"""The simulated experiment in small: it runs, writes its files, and its generator does as told."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("matplotlib")
from experiments import simulated
from experiments.simulation import Simulation, hausdorff, simulate


@pytest.mark.slow
def test_a_small_run_writes_everything(tmp_path, monkeypatch):
    small = Simulation(separation=2.0, n_components=3, dim=3, n_silos=8, n_points=120)
    points = [small, replace(small, separation=0.5, noise=0.2)]
    monkeypatch.setattr(simulated, "grid", lambda quick: points)
    rows = simulated.run(tmp_path, seeds=2, quick=True, n_jobs=1)
    with (tmp_path / "runs.csv").open() as file:
        runs = list(csv.DictReader(file))
    methods = {*simulated.METHODS, simulated.ONE_START, simulated.ORACLE, simulated.REFERENCE}
    assert {r["method"] for r in runs} == methods
    assert len(runs) == 2 * 2 * len(methods)
    written = json.loads((tmp_path / "results.json").read_text())
    assert written["rows"] == rows
    for figure in ("separation", "noise", "illustration"):
        assert (tmp_path / f"{figure}.svg").stat().st_size > 1000
    ours = next(r for r in rows if r["method"] == "klfusion")
    assert 0.0 < ours["hausdorff"] < 10.0


def test_the_grid_covers_both_figures():
    points = simulated.grid(quick=False)
    assert {p.separation for p in points if p.noise == 0.5} >= {0.1, 0.5, 2.0}
    assert {p.noise for p in points if p.separation == 0.5} >= {0.1, 1.0, 2.0}


def test_the_generator_is_seeded_and_does_as_told():
    settings = Simulation(n_silos=30, n_points=100, most_points=3000)
    one, two = (simulate(settings, np.random.default_rng(3)) for _ in range(2))
    for a, b in zip(one.data, two.data, strict=True):
        np.testing.assert_array_equal(a, b)
    sizes = [len(x) for x in one.data]
    assert 100 <= min(sizes) < 400
    assert 1000 < max(sizes) <= 3000
    assert min(len(c) for c in one.components) >= 2
    assert np.unique(np.concatenate(one.components)).tolist() == list(range(len(one.means)))
    same = simulate(Simulation(n_silos=3, homogeneous=True), np.random.default_rng(0))
    assert all(len(c) == 5 for c in same.components)


def test_hausdorff():
    true = np.array([[0.0, 0.0], [3.0, 0.0]])
    assert hausdorff(true, true) == 0.0
    assert hausdorff(true[:1], true) == 3.0
    assert hausdorff(np.array([[0.0, 0.0], [3.0, 0.0], [3.0, 4.0]]), true) == 4.0
