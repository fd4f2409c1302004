"""The network experiment in small, on scikit-learn's digits."""

from __future__ import annotations

import argparse
import json

import numpy as np
import pytest
from rich.console import Console

pytest.importorskip("matplotlib")
pytest.importorskip("torch")
from experiments import bnn
from experiments.images import deal, load


def arguments(tmp_path, *words):
    parser = argparse.ArgumentParser()
    bnn.add_arguments(parser)
    args = parser.parse_args(["--dataset", "digits", "--splits", "1", "--batch-size", "30", *words])
    args.out = tmp_path
    return args


@pytest.mark.slow
def test_a_small_run_writes_everything(tmp_path):
    args = arguments(tmp_path, "--hidden", "40", "--epochs", "60", "--pooled")
    bnn.main(args, Console(quiet=True))
    found = json.loads((tmp_path / "results.json").read_text())
    rows = {row["method"]: row for row in found["summary"]}
    fused = rows["fused, size chosen"]
    local = [row for name, row in rows.items() if name.startswith("silo")]
    assert len(local) == 5
    assert fused["accuracy"] > max(row["accuracy"] for row in local)
    assert fused["log_likelihood"] > max(row["log_likelihood"] for row in local)
    assert fused["accuracy"] > rows["coordinate average"]["accuracy"]
    assert {"PFNM", "ensemble", "class-weighted ensemble", "pooled"} <= set(rows)
    for figure in ("accuracy", "entropy", "images"):
        assert (tmp_path / f"{figure}.svg").stat().st_size > 1000
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "locals").iterdir()}
    bnn.main(args, Console(quiet=True))  # fuses again without training again
    assert before == {p: p.stat().st_mtime_ns for p in (tmp_path / "locals").iterdir()}


@pytest.mark.slow
def test_two_hidden_layers(tmp_path, monkeypatch):
    monkeypatch.setattr(bnn, "DEEP_SIZES", (90, 60))
    args = arguments(tmp_path, "--hidden", "30", "20", "--epochs", "20", "--prior", "horseshoe")
    bnn.main(args, Console(quiet=True))
    rows = {row["method"]: row for row in bnn.results(tmp_path)["summary"]}
    assert rows["fused, (90, 60) units"]["units"] == [90, 60]


@pytest.mark.slow
def test_sizes_that_a_horseshoe_does_not_leave_are_left_out(tmp_path):
    args = arguments(
        tmp_path, "--hidden", "30", "--epochs", "20", "--prior", "horseshoe", "--tempering", "1"
    )
    bnn.main(args, Console(quiet=True))
    rows = {row["method"]: row for row in bnn.results(tmp_path)["summary"]}
    assert "fused, 60 units" in rows
    assert "fused, 150 units" not in rows


@pytest.mark.slow
def test_cosines_are_the_same_images_turned(tmp_path):
    images = load("digits", None)
    turned = images.in_cosines()
    np.testing.assert_allclose(turned.pixels(turned.test), images.test, atol=1e-6)
    np.testing.assert_allclose(turned.test @ turned.test.T, images.test @ images.test.T, rtol=1e-4)
    assert images.pixels(images.test) is images.test
    words = ("--hidden", "20", "--epochs", "5", "--prior", "horseshoe", "--basis", "cosines")
    bnn.main(arguments(tmp_path, *words), Console(quiet=True))
    assert bnn.results(tmp_path)["settings"]["basis"] == "cosines"
    kept = [path.name for path in (tmp_path / "locals").iterdir()]
    assert len(kept) == 5 and all("-cosines-" in name for name in kept)


def test_digits_are_dealt_once_each():
    digits = load("digits", None).train_digits
    silos = deal(digits, seed=3)
    assert np.array_equal(np.sort(np.concatenate(silos)), np.arange(len(digits)))
    assert len({len(s) for s in silos}) > 1
    np.testing.assert_array_equal(deal(digits, seed=3)[0], silos[0])


def test_calibration_error():
    p = np.array([[0.8, 0.2]] * 10)
    assert bnn.calibration_error(p, np.array([0] * 8 + [1] * 2)) == pytest.approx(0.0)
    assert bnn.calibration_error(p, np.ones(10, dtype=int)) == pytest.approx(0.8)
