"""The demo: its files are real, and its figures are what it promises."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import klfusion as kf
from klfusion.cli import demo


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "not" / "there yet"


@pytest.fixture(scope="module")
def result(folder: Path) -> demo.Result:
    return demo.run(folder)


def test_fused_model_beats_every_site_and_comes_near_pooled_training(result: demo.Result) -> None:
    best = max(site.log_likelihood for site in result.sites)
    assert result.fused.log_likelihood > best + 0.8 * (result.pooled.log_likelihood - best)
    assert result.fused.rand_index > 2 * max(site.rand_index for site in result.sites)
    assert result.fused.purity > 2 * max(site.purity for site in result.sites)
    assert result.fused.rand_index > result.pooled.rand_index - 0.1


def test_size_is_about_the_number_of_digits(result: demo.Result) -> None:
    assert 7 <= result.fusion.n_components <= 14


def test_files_hold_what_was_fused(result: demo.Result, folder: Path) -> None:
    sites = sorted(folder.glob("site-*.safetensors"))
    assert tuple(path.stem for path in sites) == result.fusion.silo_names
    again = kf.fuse(sites)
    saved = kf.load(folder / "global.safetensors")
    assert isinstance(saved, kf.Fusion)
    np.testing.assert_array_equal(again.posterior.natural, saved.posterior.natural)
    assert result.report == folder / "fusion.html"
    assert result.report.stat().st_size < 2_000_000  # of which the plotting library is 1.1 MB


def test_sites_hold_three_digits_each_and_no_image_twice() -> None:
    sites, x_test, y_test = demo.split()
    rows = np.concatenate([*sites, x_test])
    assert len(rows) == 1797
    assert len(np.unique(rows, axis=0)) == len(rows)
    assert set(y_test) == set(range(10))
    assert all(len(set(digits)) == 3 for digits in demo.DIGITS_OF_SITE)


def test_says_each_step(tmp_path: Path) -> None:
    said: list[str] = []
    demo.run(tmp_path, quick=True, say=said.append)
    assert [line.split()[0] for line in said[:2]] == ["site-01", "site-02"]
    assert len(said) == 12
