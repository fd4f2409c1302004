"""`experiments probabilities` and the picture of the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import klfusion as kf

pytest.importorskip("matplotlib")
from experiments import linkage_figure
from experiments.probabilities import BINS, binned, false_matches, run_one, summary

RATES = kf.families.Gamma()
TRUTH = np.array([0, 1, 1, 0, 0, 2])


def rates():
    shapes = {"a": [30, 900], "b": [910, 32], "c": [31, 250]}
    return kf.fuse({n: kf.Posterior(RATES, RATES.natural(s, [10, 10])) for n, s in shapes.items()})


def test_every_pair_of_two_silos_is_in_one_bin():
    fusion = rates()
    stated, is_same, pairs = binned(fusion, TRUTH)
    assert pairs.sum() == 12  # of 15, three within silos
    assert (pairs[-1], is_same[-1]) == (4, 4)
    probabilities = np.triu(fusion.probabilities_same(), k=1)
    assert stated[-1] == pytest.approx(probabilities[probabilities >= 1.0 - 1.0 / BINS].sum())
    assert stated[-1] > 3.6
    assert is_same[:-1].sum() == 0


def test_a_match_is_false_if_most_others_describe_another_cluster():
    fusion = rates()
    assert false_matches(fusion, TRUTH) == (5, 0)
    wrong = np.where(np.arange(6) == 4, 3, TRUTH)  # site c's first differs from both others
    assert false_matches(fusion, wrong) == (5, 1)


def test_bins_and_rates_of_several_problems_add_up():
    runs = [run_one("two silos, right size", seed, False) for seed in (1, 2)]
    found = summary(runs, nearer=False)
    assert found["problems"] == 2
    assert sum(one["pairs"] for one in found["bins"]) == sum(run.pairs.sum() for run in runs)
    assert len(found["bins"]) <= BINS
    assert [one["asked"] for one in found["rates"]] == [1.0, 0.05, 0.1]
    assert summary(runs, nearer=True)["bins"] == []


@pytest.mark.slow
def test_the_picture_shows_what_the_page_says(tmp_path):
    fusion = linkage_figure.draw(tmp_path / "linkage.png")
    page = (Path(__file__).parents[2] / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    evidence = dict(zip(fusion.path.n_components, fusion.path.evidence, strict=True))
    behind = [f"{evidence[10] - evidence[size]:.1f} nats" for size in (11, 9)]
    assert fusion.n_components == 10
    assert f"eleven are {behind[0]} less probable and nine {behind[1]}" in page
    assert (tmp_path / "linkage.png").stat().st_size < 100_000
