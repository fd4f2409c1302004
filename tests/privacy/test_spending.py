"""The record of releases: what a site has spent, for which neighbours, and whose record it is."""

import json

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import klfusion as kf
from klfusion.errors import KLFusionError
from klfusion.posteriors.budgets import described
from klfusion.privacy import privatize
from klfusion.privacy.mechanism import REPLACE, Statistic, epsilon_of
from klfusion.privacy.spending import RecordWarning, spent

pytest.importorskip("opendp")


def private(record=None, name="a", **more):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, size=(400, 1))
    y = x[:, 0] + rng.uniform(-1.0, 1.0, size=400)
    given = {"epsilon": 1.0, "delta": 1e-5, "bounds": {"x0": (-1, 1), "y": (-2, 2)}, "prior_sd": 1}
    return kf.privatize(LinearRegression(), name=name, data=(x, y), record=record, **given | more)


def test_record_of_releases(tmp_path):
    path = tmp_path / "releases.jsonl"
    first = private(record=path)
    assert first.provenance["privacy"]["spent"]["epsilon"] == pytest.approx(1.0)
    for _ in range(8):
        last = private(record=path, limit=(5.0, 1e-4))
    total = last.provenance["privacy"]["spent"]
    assert total["releases"] == 9 == len(path.read_text().splitlines())
    assert total["epsilon"] < 4.0  # nine times one, by the sum of epsilons
    assert spent(path, 1e-5)["rho"] == pytest.approx(total["rho"])
    with pytest.raises(KLFusionError, match="expected releases within epsilon"):
        private(record=path, limit=(3.2, 1e-5))
    assert len(path.read_text().splitlines()) == 9  # nothing was released
    path.write_text(path.read_text() + "{}\n")
    with pytest.raises(KLFusionError, match="line 10: expected a release"):
        private(record=path)
    with pytest.raises(KLFusionError, match="expected record="):
        private(limit=(1.0, 1e-5))


def test_spending_is_written_before_a_release_that_fails(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise RuntimeError

    monkeypatch.setattr(privatize, "noised", fails)
    with pytest.raises(RuntimeError):
        private(record=tmp_path / "a.jsonl")
    assert json.loads((tmp_path / "a.jsonl").read_text())["epsilon"] == 1.0


def test_a_record_that_is_none_is_refused(tmp_path):
    with pytest.raises(KLFusionError, match="expected a record of releases"):
        spent(tmp_path, 1e-5)


@pytest.mark.parametrize("limit", [2.5, ("a", 1e-5), (5.0, 2.0), (1.0, 1e-5, 3.0)])
def test_limits_that_are_none_are_refused(limit, tmp_path):
    with pytest.raises(kf.KLFusionError, match="limit: expected epsilon > 0 and delta"):
        private(record=tmp_path / "record.jsonl", limit=limit)


def test_a_record_without_a_last_newline_is_continued_on_a_line_of_its_own(tmp_path):
    path = tmp_path / "releases.jsonl"
    private(record=path)
    path.write_text(path.read_text().rstrip("\n"))  # as an editor may leave it
    private(record=path)
    assert private(record=path).provenance["privacy"]["spent"]["releases"] == 3


@pytest.mark.parametrize("rho", ["Infinity", "NaN", "0.0", "true"])
def test_numbers_that_are_none_are_refused(rho, tmp_path):
    path = tmp_path / "releases.jsonl"
    path.write_text(f'{{"silo": "a", "epsilon": 1.0, "delta": 1e-5, "rho": {rho}}}\n')
    with pytest.raises(KLFusionError, match="line 1: expected a release"):
        private(record=path)


def test_the_record_of_another_site_is_said(tmp_path):
    path = tmp_path / "releases.jsonl"
    private(record=path, name="north")
    with pytest.warns(RecordWarning, match="are of 'north', this one is of 'south'"):
        private(record=path, name="south")
    private(record=path, name="north")


def test_a_row_replaced_costs_what_two_rows_do(tmp_path):
    path = tmp_path / "releases.jsonl"
    one = private(record=path).provenance["privacy"]["rho"]
    private(record=path, neighbours=REPLACE)
    mixed = spent(path, 1e-5, REPLACE)
    assert mixed["rho"] == pytest.approx(5.0 * one, rel=1e-6)
    assert mixed["epsilon"] == pytest.approx(epsilon_of(5.0 * one, 1e-5), rel=1e-6)
    assert spent(path, 1e-5)["rho"] == pytest.approx(2.0 * one, rel=1e-6)
    last = private(record=path, neighbours=REPLACE)
    assert last.provenance["privacy"]["spent"]["rho"] == pytest.approx(6.0 * one, rel=1e-6)
    with pytest.raises(KLFusionError, match="expected releases within epsilon"):
        private(record=path, neighbours=REPLACE, limit=(spent(path, 1e-5)["epsilon"], 1e-5))


def test_what_was_spent_is_said_with_its_neighbours(tmp_path):
    path = tmp_path / "releases.jsonl"
    first = described(private(record=path).provenance)[-1]
    assert first == (
        "The only release in the site's record spends epsilon 1 at delta 1e-05, for one row added "
        "or removed."
    )
    second = described(private(record=path, neighbours=REPLACE).provenance)[-1]
    assert second.startswith("All 2 releases in the site's record spend epsilon 2.4")
    assert second.endswith("for one row replaced.")


def test_statistics_by_name_are_recorded(tmp_path):
    path = tmp_path / "releases.jsonl"
    counts = {"n": Statistic(np.ones((9, 1)), 1.0)}
    kf.privatize(counts, name="a", epsilon=1.0, delta=1e-5, record=path)
    assert spent(path, 1e-5)["releases"] == 1
