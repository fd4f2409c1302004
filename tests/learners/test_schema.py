"""`Schema`: columns that sites agree on before they fit."""

from __future__ import annotations

import json

import numpy as np
import pytest

import klfusion as kf
from klfusion.learners import Column
from tests.helpers.loops import for_each

AGE = Column("age", "continuous", (30, 80), unit="years")
PAIN = Column("pain", "categorical", categories=("none", "some", "much"))
VISITS = Column("visits", "counts", (0, 6))
GRADE = Column("grade", "ordered", categories=(1, 2, 3))
SCHEMA = kf.Schema([AGE, PAIN, VISITS, GRADE])


def test_a_file_holds_all_of_it(tmp_path):
    SCHEMA.save(tmp_path / "schema.json")
    assert kf.Schema.load(tmp_path / "schema.json") == SCHEMA
    (tmp_path / "schema.json").write_text("[1, 2")
    with pytest.raises(kf.KLFusionError, match=r"schema\.json.*expected a schema in JSON"):
        kf.Schema.load(tmp_path / "schema.json")
    (tmp_path / "schema.json").write_text(json.dumps({"schema": [{"name": "a", "sort": 1}]}))
    with pytest.raises(kf.KLFusionError, match="malformed column"):
        kf.Schema.load(tmp_path / "schema.json")


def test_cells_become_numbers_and_back():
    data = {"grade": [3, None, 1.0], "pain": ["some", np.nan, "none"], "visits": [0, 2, None]}
    coded = SCHEMA.encoded(data)
    nan = np.nan
    np.testing.assert_array_equal(coded, [[nan, 1, 0, 2], [nan, nan, 2, nan], [nan, 0, nan, 0]])
    assert PAIN.decoded(coded[:, 1])[[0, 2]].tolist() == ["some", "none"]
    with pytest.raises(kf.KLFusionError, match="an array with the 4 columns"):
        SCHEMA.encoded(np.zeros((2, 3)))
    with pytest.raises(kf.KLFusionError, match="one length"):
        SCHEMA.encoded({"age": [1.0], "visits": [1, 2]})


@for_each(
    "data, message",
    [
        ({"pain": ["none", "strong"]}, "column 'pain', row 1: expected one of 'none'"),
        ({"pain": [["none"]]}, "column 'pain', row 0"),
        ({"age": [50.0, "old"]}, "column 'age', row 1: expected a number, got 'old'"),
        ({"age": [np.inf]}, "column 'age', row 0: expected finite numbers"),
        ({"visits": [1.5]}, "column 'visits', row 0: expected whole numbers >= 0"),
        ({"visits": [-1]}, "column 'visits', row 0: expected whole numbers >= 0"),
        ({"presure": [1.0]}, "columns 'presure': expected columns of the schema: drop them"),
    ],
)
def test_wrong_cells_are_named(data, message):
    with pytest.raises(kf.KLFusionError, match=message):
        SCHEMA.encoded({name: np.array(own, dtype=object) for name, own in data.items()})


@for_each(
    "given, message",
    [
        ({"name": "", "kind": "counts"}, "the name of a column"),
        ({"name": "a", "kind": "number"}, "column 'a': expected a kind of continuous"),
        ({"name": "a", "kind": "continuous"}, "column 'a': expected a reference range"),
        ({"name": "a", "kind": "continuous", "reference": (2, 1)}, "expected a reference range"),
        ({"name": "a", "kind": "binary", "categories": (1, 2, 3)}, "expected two different"),
        ({"name": "a", "kind": "ordered", "categories": (1, 1)}, "two or more different"),
        ({"name": "a", "kind": "binary", "categories": (1, None)}, "text or numbers"),
        ({"name": "a", "kind": "counts", "reference": (0, 1), "unit": 3}, "the unit as text"),
        ({"name": "a", "kind": "counts", "reference": (0, 1), "categories": (1, 2)}, "no categor"),
    ],
)
def test_wrong_columns_are_refused(given, message):
    with pytest.raises(kf.KLFusionError, match=message):
        Column(**given)


def test_wrong_schemas_are_refused():
    for columns in ([], [AGE, AGE], [AGE, "pain"], AGE):
        with pytest.raises(kf.KLFusionError, match="schema: expected"):
            kf.Schema(columns)


def test_a_suggestion():
    rng = np.random.default_rng(0)
    frame = {
        "age": rng.normal(60, 10, 200),
        "pressure": rng.integers(90, 180, 200),
        "sex": np.where(rng.random(200) < 0.5, "f", "m"),
        "code": rng.integers(1, 4, 200),
        "visits": rng.poisson(4, 200),
        "sick": rng.random(200) < 0.5,
    }
    schema = kf.Schema.suggest(frame, kinds={"code": "ordered"}, units={"age": "years"})
    kinds = {column.name: column.kind for column in schema}
    assert kinds == {
        "age": "continuous",
        "pressure": "continuous",
        "sex": "binary",
        "code": "ordered",
        "visits": "counts",
        "sick": "binary",
    }
    age = schema.columns[0]
    assert age.label == "age (years)"
    np.testing.assert_allclose(age.reference, [40, 80], atol=5)
    assert schema.columns[3].categories == (1, 2, 3)
    assert kf.Schema.from_config(json.loads(json.dumps(schema.to_config()))) == schema


@for_each(
    "frame, message",
    [
        ({"a": [None, np.nan]}, r"expected a column that can be fitted, got 'a' \(no values\)"),
        ({"a": [3.0, 3.0]}, r"got 'a' \(all values are 3.0\)"),
        ({"a": [1.5, 2.5, np.inf, 3.0]}, "column 'a': expected finite numbers, got inf"),
        (np.zeros((2, 2)), "expected a frame"),
        ({}, "expected a column that can be fitted, got none"),
    ],
)
def test_no_suggestion(frame, message):
    with pytest.raises(kf.KLFusionError, match=message):
        kf.Schema.suggest(frame)
    with pytest.raises(kf.KLFusionError, match="expected columns of 'a'"):
        kf.Schema.suggest({"a": [1, 2, 3]}, kinds={"b": "counts"})


def test_frames_of_pandas():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "grade": pd.array([1, 3, None], dtype="Int64"),
            "pain": pd.Categorical(["some", None, "much"]),
            "age": [40.0, np.nan, 50.0],
        }
    )
    coded = SCHEMA.encoded(frame)
    np.testing.assert_array_equal(coded[:, 3], [0, 2, np.nan])
    np.testing.assert_array_equal(coded[:, 1], [1, np.nan, 2])
    assert np.isnan(coded[:, 2]).all()  # never measured
