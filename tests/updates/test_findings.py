"""Columns: names that are missing, sites that standardised their own data, other units."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.mixture import BayesianGaussianMixture

import klfusion as kf
from klfusion.report import summarize
from klfusion.updates.findings import findings_of

pd = pytest.importorskip("pandas")
CENTRES = np.array([[10.0, 40.0], [20.0, 10.0], [30.0, 30.0]])


def data(n_silos=3, n=600, seed=0):
    rng = np.random.default_rng(seed)
    return [CENTRES[rng.integers(3, size=n)] + rng.normal(size=(n, 2)) for _ in range(n_silos)]


def fitted(*tables, kind="full"):
    silos = []
    for j, x in enumerate(tables):
        model = BayesianGaussianMixture(n_components=3, random_state=0, covariance_type=kind).fit(x)
        silos.append(kf.extract(model, name=f"site-{j}"))
    return silos


def reasons(silos):
    found = {}
    for finding in findings_of(silos):
        found[finding.silo] = f"{found.get(finding.silo, '')}{finding.reason}"
    return found


@pytest.mark.parametrize("kind", ["full", "diag", "tied", "spherical"])
def test_sites_that_standardised_their_own_data_are_named(kind):
    own = fitted(*[(x - x.mean(axis=0)) / x.std(axis=0) for x in data()], kind=kind)
    found = reasons(own)
    assert [*found] == ["site-0", "site-1", "site-2"]
    assert all("as if it had been standardised by itself" in reason for reason in found.values())
    both = np.concatenate(data())
    common = [(x - both.mean(axis=0)) / both.std(axis=0) for x in data()]
    assert reasons(fitted(*common, kind=kind)) == {}


def test_other_units_are_named():
    x, y = data(2)
    y[:, 1] *= 2.2
    found = reasons(fitted(x, y))
    assert [*found] == ["site-1"]
    assert "mean and spread of column 1 are 2." in found["site-1"]
    assert found["site-1"].endswith("other units?")


def test_three_sites_one_in_other_units_in_two_columns():
    tables = [pd.DataFrame(x, columns=["weight", "height"]) for x in data(3)]
    tables[1] = tables[1] * [2.2, 0.39]
    found = reasons(fitted(*tables))
    assert [*found] == ["site-1"]
    assert "spread of columns 'weight', 'height' are 2.2" in found["site-1"]
    assert found["site-1"].endswith("other units?")


def test_columns_without_names_beside_named_ones():
    x, y, z = data()
    frame = pd.DataFrame(x, columns=["age", "dose"])
    silos = fitted(frame, y[:, ::-1], z)
    found = reasons(silos)
    assert [*found] == ["site-1", "site-2"]
    assert "its columns have no names, those of silo 'site-0' have" in found["site-1"]
    assert "expected the order 'age', 'dose'" in found["site-1"]
    with pytest.raises(kf.KLFusionError, match="expected the features"):
        kf.fuse(fitted(frame, pd.DataFrame(y[:, ::-1], columns=["dose", "age"])))


def test_findings_are_in_summaries_and_diagnoses():
    x, y = data(2)
    fusion = kf.fuse(fitted(pd.DataFrame(x, columns=["age", "dose"]), y))
    (line,) = summarize(fusion)["findings"]
    assert line.startswith("silo 'site-1': its columns have no names")
    assert line in str(kf.diagnose(fusion))
    assert summarize(fusion.without_silos())["findings"] == []


def test_honest_silos_have_no_finding():
    assert findings_of(fitted(*data(5))) == []
    assert findings_of(fitted(*data(1))) == []
