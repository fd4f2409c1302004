"""Columns: names that are missing, sites that standardised their own data, other units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.mixture import BayesianGaussianMixture

import klfusion as kf
from klfusion.learners import BayesianHead
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


def heads(change, n_sites=3, features=None):
    """Heads on wines; the last site's rows are changed."""
    x, y = load_wine(return_X_y=True)
    site = np.random.default_rng(1).integers(n_sites, size=len(y))
    rows = [x[site == j] if j < n_sites - 1 else change(x[site == j]) for j in range(n_sites)]
    return [
        kf.extract(BayesianHead(features).fit(own, y[site == j]), name=f"site-{j}")
        for j, own in enumerate(rows)
    ]


@pytest.mark.parametrize("n_sites", [2, 3, 5])
def test_heads_in_other_units_are_named(n_sites):
    one = np.where(np.arange(13) == 4, 2.2, 1.0)
    last = f"site-{n_sites - 1}"
    assert reasons(heads(lambda x: x, n_sites)) == {}
    found = reasons(heads(lambda x: x * one, n_sites))
    assert [*found] == [last]
    assert "mean and spread of column 4 are 2." in found[last]
    found = reasons(heads(lambda x: 10.0 * x, n_sites))
    assert [*found] == [last]
    assert "of all columns are 9." in found[last] or "of all columns are 10" in found[last]
    fusion = kf.fuse(heads(lambda x: x * one, n_sites))
    assert any(own.silo == last and "units?" in own.reason for own in kf.diagnose(fusion).findings)


def test_heads_of_many_features_are_compared_as_a_whole():
    """A feature map of one degree carries the factor of its inputs to all features."""
    weights = np.random.default_rng(2).normal(size=(13, 500)) / 100.0
    features = lambda x: np.maximum(np.asarray(x) @ weights, 0.0)  # noqa: E731
    assert reasons(heads(lambda x: x, features=features)) == {}
    found = reasons(heads(lambda x: 16.0 * x, features=features))
    assert [*found] == ["site-2"]
    assert "of all columns are 1" in found["site-2"]


@pytest.mark.parametrize("names", [3, 0.5, "abc", None, ["a"]])
def test_heads_whose_classes_have_no_names_show_nothing(names):
    """As a mutated file may have them."""
    silos = []
    for own in heads(lambda x: 10.0 * x):
        structure = replace(own.structure, info={**own.structure.info, "components": names})
        silos.append(replace(own, structure=structure))
    assert reasons(silos) == {}


def test_heads_without_a_class_in_common_show_nothing():
    x, y = load_wine(return_X_y=True)
    alone = [kf.extract(BayesianHead().fit(x[y == k], y[y == k]), name=f"{k}") for k in range(3)]
    assert reasons(alone) == {}


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
