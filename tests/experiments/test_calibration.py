"""The calibration experiment in small: it runs, and poolings are ranked as they should be."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("matplotlib")
import klfusion as kf
from experiments import calibration
from experiments.calibration import Setting
from tests.families.sampling import sample


def test_a_small_run_writes_everything(tmp_path):
    settings = [Setting(h, n_silos=6, n_components=3, n_points=40) for h in (0.0, 1.0)]
    rows = calibration.run(tmp_path, seeds=4, n_jobs=1, settings=settings)
    written = json.loads((tmp_path / "results.json").read_text())
    assert written["rows"] == rows
    assert (tmp_path / "calibration.svg").stat().st_size > 1000
    at = {(r["heterogeneity"], r["pooling"], r["level"]): r["coverage"] for r in rows}
    assert len(at) == 2 * 5 * 3
    # Averages are far too modest where silos agree; products far too sure where they do not.
    assert at[0.0, "average", 0.5] > 0.8
    assert at[1.0, "product", 0.95] < 0.6
    for pooling in ("auto", "hierarchical"):
        assert at[1.0, pooling, 0.95] > at[1.0, "product", 0.95]
    regression = Setting(1.0, model="regression", n_silos=6, n_components=1, dim=3, n_points=200)
    rows = calibration.run(tmp_path, seeds=4, n_jobs=1, settings=[regression])
    at = {(r["pooling"], r["level"]): r["coverage"] for r in rows}
    assert at["auto", 0.95] > at["product", 0.95]


def test_regions_of_a_known_posterior_are_exact():
    rng = np.random.default_rng(0)
    family = kf.families.NormalWishart(2)
    natural = family.natural([[1.0, -1.0]], [3.0], 5.0 * np.eye(2)[None], [6.0])
    posterior = kf.Posterior(family, natural)
    draws = sample(family, natural, 4000, rng)["mean"][:, 0]
    inside = np.concatenate([calibration.probabilities(posterior, d[None]) for d in draws])
    for level in calibration.LEVELS:
        assert np.mean(inside <= level) == pytest.approx(level, abs=0.03)


def test_the_default_is_hardly_wider_than_the_narrowest_right_interval():
    found = calibration.narrowest(5)
    assert 1.15 < found["narrowest"] < found["default"] < 1.21
    assert 0.92 < found["least_coverage"] < found["most_coverage"] < 0.97
    assert found["its_least_coverage"] == pytest.approx(0.93, abs=1e-4)


def test_a_narrower_interval_is_wrong_where_silos_vary_little():
    found = calibration.narrowest(5, gap=8.0)
    assert found["narrowest"] < 1.0
    assert found["its_least_coverage"] < 0.87
