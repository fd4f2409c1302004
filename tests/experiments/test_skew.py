"""The experiment on label skew, in small."""

from __future__ import annotations

import argparse
import json
import os

import numpy as np
import pytest
from rich.console import Console
from sklearn.datasets import load_digits

pytest.importorskip("matplotlib")
from experiments import skew
from experiments.skew_problem import Problem, Split

LABELS = load_digits(return_X_y=True)[1]


@pytest.fixture(scope="module")
def digits():
    """scikit-learn's digits, twice as large; the other data set is their negatives."""
    x = load_digits().images / 16.0
    x = np.kron(x, np.ones((2, 2))).reshape(len(x), -1).astype(np.float32)
    return Problem("digits", x[:900], LABELS[:900], x[900:1300], LABELS[900:1300], 1 - x[:400])


def test_labels_drawn_from_probabilities_have_the_floor_of_the_calibration_error():
    p = np.random.default_rng(0).dirichlet(np.ones(4), size=2000)
    sure = np.eye(4)[np.zeros(2000, dtype=int)]
    assert skew.calibration_floor(sure) == 0.0
    labels = (np.random.default_rng(1).random((2000, 1)) > p.cumsum(axis=1)[:, :-1]).sum(axis=1)
    assert skew.calibration_error(p, labels) < 2.0 * skew.calibration_floor(p) < 0.1


@pytest.mark.parametrize("n_sites", [5, 10, 100])
def test_partitions_deal_every_row_once(n_sites):
    for name, rows in skew.partitions(LABELS, n_sites, seed=1):
        assert len(rows) == n_sites
        assert sorted(np.concatenate(rows)) == list(range(len(LABELS)))
        if name.startswith("classes"):
            assert {len(np.unique(LABELS[own])) for own in rows} == {int(name.split()[1])}


def test_every_partition_gives_the_same_head(digits):
    rows = []
    for name, own in skew.partitions(digits.labels, 10, seed=1):
        split = Split(digits, name, [r for r in own if len(r)], 1, 1, quick=True)
        rows += [row | {"asked": 10} for row in skew.run_split(split, ["heads"])]
    found = {row["method"]: row for row in skew.spread(rows)}
    assert float(found["head, one round"]["spread of log-likelihood"]) < 1e-6
    assert float(found["head, calibrated 2x"]["spread of log-likelihood"]) < 1e-6
    assert found["head, one round"]["least accuracy"] > 90
    assert len(skew.summary(rows)) == 35


@pytest.mark.slow
@pytest.mark.skipif("KLFUSION_DATA" not in os.environ, reason="needs MNIST in KLFUSION_DATA")
def test_a_quick_run_writes_everything(tmp_path):
    pytest.importorskip("torch")
    parser = argparse.ArgumentParser()
    skew.add_arguments(parser)
    args = parser.parse_args(["--quick", "--partitions", "classes 1", "classes 2"])
    args.out = tmp_path
    skew.main(args, Console(quiet=True))
    found = json.loads((tmp_path / "results.json").read_text())
    best = {(row["dataset"], row["method"]): row["least accuracy"] for row in found["spread"]}
    assert best["mnist", "head, calibrated 2x"] > 93
    assert best["mnist", "network, head refitted"] > best["mnist", "network, fused"] + 10


@pytest.mark.slow
def test_networks_in_one_round_and_their_peers(digits):
    pytest.importorskip("torch")
    rows = skew.by_class(digits.labels, 10, 2, seed=1)
    split = Split(digits, "classes 2", rows, 1, 1, True)
    found = {row["method"]: row["accuracy"] for row in skew.run_split(split, ["networks"])}
    ours = found.pop("one-shot network, class statistics")
    assert len(found) == 8
    assert ours > max(found.values()) + 5
