"""The report for a consortium: prevalence, what sets phenotypes apart, and suppressed counts."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import klfusion as kf
from klfusion.cli.commands import main
from klfusion.learners import Column, MixedMixture
from klfusion.report import summarize
from klfusion.report.phenotypes import interval, phenotypes

EVIL = "<script>alert(1)</script>"
SCHEMA = kf.Schema(
    [
        Column("pressure", "continuous", (90, 140), unit="mmHg"),
        Column("smoker", "binary", categories=("no", "yes")),
        Column("visits", "counts", (0, 6)),
        Column(EVIL, "ordered", categories=("mild", "severe", EVIL)),
    ]
)


def frame(kinds, n, seed):
    rng = np.random.default_rng(seed)
    kind = rng.choice(kinds, n, p=[0.3, 0.7] if len(kinds) == 2 else None)
    return {
        "pressure": rng.normal(np.take([110, 150, 190], kind), 6),
        "smoker": np.where(rng.random(n) < np.take([0.1, 0.9, 0.5], kind), "yes", "no"),
        "visits": rng.poisson(np.take([1, 5, 12], kind)),
        EVIL: np.where(rng.random(n) < 0.5, "mild", "severe"),
    }


@pytest.fixture(scope="module")
def fusion():
    models = {
        name: MixedMixture(SCHEMA, random_state=0, n_init=1).fit(frame(kinds, 150, seed))
        for seed, (name, kinds) in enumerate({"north": [0, 1], EVIL: [1, 2]}.items())
    }
    return kf.fuse(models)


def test_prevalence_of_each_hospital(fusion):
    view = phenotypes(fusion, list(fusion.silos))
    assert len(view["phenotypes"]) == fusion.n_components == 3
    shared = next(own for own in view["phenotypes"] if len(own["hospitals"]) == 2)
    north = shared["hospitals"][0]
    assert north["name"] == "north"
    assert north["prevalence"] == pytest.approx(0.7, abs=0.08)
    assert north["low"] < north["prevalence"] < north["high"]
    assert 0.5 < north["probability"] <= 1.0
    assert [own["only_here"] for own in view["phenotypes"]].count(True) == 2
    assert sum(own["patients"] for own in view["phenotypes"]) == pytest.approx(300)
    json.dumps(view, allow_nan=False)


def test_columns_that_set_a_phenotype_apart(fusion):
    view = phenotypes(fusion, None)
    lowest = min(view["phenotypes"], key=lambda own: own["columns"][0]["effect"])
    by_name = {row["name"]: row for row in lowest["columns"]}
    assert by_name["pressure (mmHg)"]["value"].startswith(("109", "110"))
    assert by_name["smoker"]["value"].startswith("no: 8") or "no: 9" in by_name["smoker"]["value"]
    effects = [abs(row["effect"]) for row in lowest["columns"]]
    assert effects == sorted(effects, reverse=True)
    assert EVIL not in by_name  # the same in all phenotypes
    assert all(own["hospitals"] == [] for own in view["phenotypes"])


def test_few_patients_are_suppressed(fusion):
    few = [replace(p, counts=np.where(np.arange(2) == 0, 147.0, 3.0)) for p in fusion.silos]
    view = phenotypes(fusion, few)
    cells = [one for own in view["phenotypes"] for one in own["hospitals"]]
    assert all(one["suppressed"] and one["patients"] is None for one in cells)
    shown = phenotypes(fusion, few, min_cell=2)
    cells = [one for own in shown["phenotypes"] for one in own["hospitals"]]
    assert not any(one["suppressed"] for one in cells)
    small = replace(
        fusion, posterior=replace(fusion.posterior, counts=np.array([200.0, 4.0, 96.0]))
    )
    hidden = phenotypes(small, None)["phenotypes"][1]
    assert hidden["patients"] is None and hidden["share"] is None and hidden["columns"] == []
    summary = summarize(small, min_cell=5)
    assert summary["components"][1]["n_observations"] is None
    assert summary["components"][0]["parameters"] == []


def test_few_patients_of_a_hospital_are_nowhere_in_the_page(tmp_path):
    """Not as what is left of a total, of a hospital's patients, or of shares."""
    schema = kf.Schema(
        [Column("age", "continuous", (30, 80)), Column("bp", "continuous", (90, 140))]
    )
    rng = np.random.default_rng(0)

    def rows(sizes):
        ages, pressures = np.repeat([30, 55, 80], sizes), np.repeat([110, 160, 120], sizes)
        return {"age": rng.normal(ages, 4), "bp": rng.normal(pressures, 5)}

    sizes = {"a": (150, 100, 60), "b": (110, 120, 90), "west": (150, 140, 4)}
    fusion = kf.fuse(
        {k: MixedMixture(schema, random_state=0, n_init=1).fit(rows(v)) for k, v in sizes.items()}
    )
    summary = summarize(fusion)
    kept = [
        [own["suppressed"] for own in one["hospitals"]] for one in summary["view"]["phenotypes"]
    ]
    assert sorted(kept) == [[False, False, False], [True, False, True], [True, False, True]]
    for silo in summary["silos"]:
        shown = sum(match["prevalence"] is not None for match in silo["matches"])
        assert shown == (3 if silo["name"] == "b" else 1)
    text = Path(fusion.report(tmp_path / "page.html")).read_text(encoding="utf-8")
    for silo, labels, own in zip(fusion.silos, fusion.labels, summary["silos"], strict=True):
        shares = {match["component"]: match["prevalence"] for match in own["matches"]}
        for count, g in zip(silo.counts.tolist(), labels, strict=True):
            share = count / float(silo.counts.sum())
            assert (repr(count) in text) == (shares[g] == share)
            assert (f"{100 * share:.0f}&nbsp;% (" in text) or shares[g] is None


def test_an_interval_of_a_share():
    low, high = interval(20.0, 100.0)
    np.testing.assert_allclose([low, high], [0.13, 0.28], atol=0.01)
    assert interval(0.0, 0.0)[1] > 0.9


def test_both_pages_escape_names(fusion, tmp_path):
    for one_page in (False, True):
        path = fusion.report(tmp_path / "page.html", one_page=one_page)
        text = Path(path).read_text(encoding="utf-8")
        assert EVIL not in text
        assert "Phenotype 0" in text
        assert "&lt;script&gt;" in text
    assert not re.search(r'(src|href)="', text)


def test_the_main_report_without_the_silos(fusion, tmp_path):
    fusion.report(tmp_path / "page.html", local=False)
    fusion.without_silos().report(tmp_path / "page.html", one_page=True)


def test_the_command_line(fusion, tmp_path):
    file, page = tmp_path / "f.safetensors", tmp_path / "page.html"
    kf.save(file, fusion)
    found = CliRunner().invoke(
        main, ["report", str(file), "-o", str(page), "--one-page", "--min-cell", "200"]
    )
    assert found.exit_code == 0, found.output
    assert "fewer than 200 patients" in page.read_text(encoding="utf-8")


def test_one_page_is_of_phenotypes(tmp_path):
    rates = kf.families.Gamma()
    other = kf.fuse([kf.Posterior(rates, rates.natural([3, 30], [1, 1]))])
    with pytest.raises(kf.KLFusionError, match="one_page: expected a fusion of MixedMixture"):
        other.report(tmp_path / "page.html", one_page=True)
    with pytest.raises(kf.KLFusionError, match="min_cell"):
        other.report(tmp_path / "page.html", min_cell=-1)


def test_a_semicontinuous_column_has_a_share_and_a_mean():
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=600)
    dose = np.where(rng.random(600) < np.where(kind, 0.2, 0.7), 0.0, rng.normal(20 + 20 * kind, 3))
    frame = {"age": rng.normal(40 + 30 * kind, 4), "dose": dose}
    columns = [Column("age", "continuous", (30, 80)), Column("dose", "semicontinuous", (10, 40))]
    schema = kf.Schema([columns[0], replace(columns[1], unit="mg")])
    half = [{name: own[k::2] for name, own in frame.items()} for k in range(2)]
    fusion = kf.fuse([MixedMixture(schema, random_state=0, n_init=1).fit(own) for own in half])
    view = phenotypes(fusion, list(fusion.silos))
    old = max(view["phenotypes"], key=lambda own: own["columns"][0]["effect"])
    rows = {row["name"]: row["value"] for row in old["columns"]}
    assert rows["dose other than 0 (mg)"].startswith(("39", "40"))
    assert re.match(r"no: (7|8)\d\s%", rows["dose is 0"])


def test_a_column_of_logarithms_has_geometric_means():
    rng = np.random.default_rng(0)
    kind = np.arange(400) % 2
    frame = {"cost": np.exp(rng.normal(np.log(100.0) + 3.0 * kind, 0.5))}
    schema = kf.Schema([Column("cost", "continuous", (50, 5000), unit="EUR", log=True)])
    model = MixedMixture(schema, random_state=0, n_init=1).fit(frame)
    row = phenotypes(kf.fuse([model]), None)["phenotypes"][0]["columns"][0]
    assert row["name"] == "cost (EUR), geometric mean"
    means = [np.exp(np.log(frame["cost"][kind == k]).mean()) for k in range(2)]
    value = float(row["value"].replace(",", ""))
    assert min(abs(value / mean - 1.0) for mean in means) < 0.1


def test_a_phenotype_of_one_hospital_is_matched_to_no_other(fusion, tmp_path):
    text = Path(fusion.report(tmp_path / "page.html", one_page=True)).read_text(encoding="utf-8")
    assert text.count("<td>only&nbsp;here</td>") == 2
    alone = kf.fuse([fusion.silos[0]])
    assert not any(own["only_here"] for own in phenotypes(alone, alone.silos)["phenotypes"])


def test_columns_are_counted_as_in_the_schema():
    """A semicontinuous column is two factors, and a block of two columns is one."""
    columns = [
        Column("dose", "semicontinuous", (5.0, 40.0)),
        Column("weight", "continuous", (45.0, 120.0), block="body"),
        Column("height", "continuous", (150.0, 200.0), block="body"),
        Column("pulse", "semicontinuous", (50.0, 90.0)),
    ]
    rng = np.random.default_rng(0)
    table = {c.name: rng.choice([0.0, 1.0], 60) * rng.uniform(*c.reference, 60) for c in columns}
    model = MixedMixture(kf.Schema(columns), n_components=2, random_state=0).fit(table)
    assert summarize(kf.fuse([model]))["family"] == "Product of 4 columns"
