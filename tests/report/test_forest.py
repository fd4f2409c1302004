"""The forest plots of a report."""

from __future__ import annotations

import numpy as np

import klfusion as kf
from klfusion.report import summarize


def fusion(n=4, **settings):
    rng = np.random.default_rng(0)
    silos = [
        kf.coefficients(
            [j, 0.5 + 0.3 * rng.normal(), rng.normal()], np.diag([0.1, 0.02, 0.3]),
            ["intercept", "dose", "<b>age</b>"], name=f"hospital-{j}", local=["intercept"],
        )
        for j in range(n)
    ]  # fmt: skip
    return kf.fuse(silos, **settings)


def test_summary():
    view = summarize(fusion())["view"]
    assert view["kind"] == "regression"
    assert view["local"] == ["intercept"]
    names = [one["name"] for one in view["coefficients"]]
    assert names == ["dose", "<b>age</b>"]
    plot = view["coefficients"][0]["plot"]
    assert [row["silo"] for row in plot["rows"]] == [f"hospital-{j}" for j in range(4)]
    for row in plot["rows"]:
        assert row["x"] == sorted(row["x"])
        assert 0.0 <= row["x"][0] <= row["x"][2] <= view["width"]
    assert plot["new"][0] <= plot["mean"][0] <= plot["mean"][2] <= plot["new"][1]


def test_page(tmp_path):
    path = tmp_path / "f.html"
    fusion(pooling="hierarchical").report(path)
    page = path.read_text(encoding="utf-8")
    assert page.count('<svg class="forest"') == 2
    assert "<b>age" not in page
    assert "Each silo keeps its own intercept." in page
    assert "4 silos, one regression of 2 coefficients" in page


def test_findings(tmp_path):
    silos = [
        kf.coefficients([m], [[0.01]], ["dose"], name=f"hospital-{j}")
        for j, m in enumerate([0.1, 0.2, 0.1, 2.0])
    ]
    finding = summarize(kf.fuse(silos))["findings"][-1]
    assert finding.startswith("silo 'hospital-3': coefficient 'dose' differs most")
    assert finding.endswith("pooling='hierarchical' lets it vary")
    finding = summarize(kf.fuse(silos, pooling="hierarchical"))["findings"][-1]
    assert finding.endswith(")")


def test_without_silos(tmp_path):
    path = tmp_path / "f.html"
    fusion(keep_silos=False).report(path)
    assert '<svg class="forest"' not in path.read_text(encoding="utf-8")


def test_many_silos(tmp_path):
    view = summarize(fusion(80))["view"]
    plot = view["coefficients"][0]["plot"]
    assert len(plot["rows"]) == 60
    assert plot["n_not_shown"] == 20
