"""`Column`: kinds, and semicontinuous columns as two."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from klfusion.learners import Column
from tests.helpers.loops import for_each

DOSE = Column("dose", "semicontinuous", (10, 40), unit="mg")


def test_a_semicontinuous_column_is_two():
    whether, how_much = DOSE.expanded
    assert (whether.label, how_much.label) == ("dose is 0", "dose other than 0 (mg)")
    assert (how_much.kind, how_much.reference) == ("continuous", (10.0, 40.0))
    found = DOSE.expand(DOSE.encoded(np.array([0.0, 20.0, np.nan, -0.0])))
    np.testing.assert_array_equal(found, [[0, np.nan], [1, 20], [np.nan, np.nan], [0, np.nan]])


def test_other_columns_stay_as_they_are():
    age = Column("age", "continuous", (30, 80))
    assert age.expanded == (age,)
    np.testing.assert_array_equal(age.expand(np.array([0.0, 1.0])), [[0.0], [1.0]])


def test_the_shared_value_may_be_another():
    limit = Column("troponin", "semicontinuous", (20, 400), unit="ng/l", point_mass=14)
    assert limit.expanded[0].name == "troponin is 14"
    assert kf.Schema.from_config(kf.Schema([limit, DOSE]).to_config()) == kf.Schema([limit, DOSE])


@for_each(
    "given, message",
    [
        ({"kind": "continuous", "point_mass": 0}, "'a': expected no point mass of a continuous"),
        ({"kind": "semicontinuous", "point_mass": np.nan}, "'a': expected a finite point mass"),
        ({"kind": "semicontinuous", "point_mass": "0"}, "expected a finite point mass, got '0'"),
        ({"kind": "semicontinuous", "point_mass": True}, "expected a finite point mass, got True"),
        ({"kind": "semicontinuous", "block": "b"}, "a block of continuous columns"),
    ],
)
def test_wrong_point_masses_are_refused(given, message):
    with pytest.raises(kf.KLFusionError, match=message):
        Column("a", reference=(0, 1), **given)


def test_names_of_both_parts_are_reserved():
    for other in (Column("dose is 0", "counts", (0, 6)), Column("dose", "counts", (0, 6))):
        with pytest.raises(kf.KLFusionError, match="columns of different names, got 'dose"):
            kf.Schema([DOSE, other])


def test_the_logarithm_of_a_column():
    cost = Column("cost", "semicontinuous", (100, 10_000), log=True)
    assert cost.expanded[1].log
    assert cost.expanded[1].centre == pytest.approx(np.log(1000.0))
    np.testing.assert_array_equal(
        cost.expand(cost.encoded(np.array([0.0, 1.0, np.nan]))),
        [[0, np.nan], [1, 0], [np.nan, np.nan]],
    )
    with pytest.raises(kf.KLFusionError, match=r"'cost', row 1: expected positive numbers.*got -2"):
        cost.encoded(np.array([0.0, -2.0]))
    with pytest.raises(kf.KLFusionError, match=r"'a', row 0: expected positive numbers.*got 0"):
        Column("a", "continuous", (1, 2), log=True).encoded(np.array([0.0]))
    config = kf.Schema([cost, DOSE]).to_config()
    assert [own.get("log") for own in config] == [True, None]
    assert kf.Schema.from_config(config) == kf.Schema([cost, DOSE])


@for_each(
    "given, message",
    [
        ({"kind": "counts", "reference": (1, 2)}, "'a': expected no logarithm of a counts column"),
        ({"kind": "binary", "categories": (1, 2)}, "'a': expected no logarithm of a binary column"),
        ({"kind": "continuous", "reference": (0, 2)}, "'a': expected a positive reference range"),
        ({"kind": "continuous", "reference": (1, 2), "log": 1}, "log to be True or False, got 1"),
    ],
)
def test_no_logarithm(given, message):
    with pytest.raises(kf.KLFusionError, match=message):
        Column("a", **{"log": True, **given})
