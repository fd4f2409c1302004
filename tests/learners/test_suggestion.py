"""Which columns of numbers have a value that no density explains."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import numpy as np
import pytest

import klfusion as kf
from klfusion.learners import MixedMixture
from tests.helpers.loops import for_each

RNG = np.random.default_rng(0)
N = 500


def _preferred(values):
    """Most people round to tens."""
    return np.where(np.arange(len(values)) % 5 < 3, np.round(values, -1), np.round(values))


@for_each(
    "values, point_mass",
    [
        (np.where(RNG.random(N) < 0.4, 0.0, RNG.normal(1.5, 1.0, N).round(1)), 0.0),
        (np.where(RNG.random(N) < 0.2, 14.0, 14.0 + RNG.exponential(60.0, N).round()), 14.0),
        (np.where(RNG.random(N) < 0.1, 0.0, RNG.lognormal(8.0, 1.0, N)), 0.0),
        (RNG.normal(0.0, 1.0, N), None),
        (np.round(2.0 * RNG.normal(0.0, 1.0, N)) / 2.0, None),
        (RNG.normal(60.0, 10.0, N).round(), None),
        (_preferred(RNG.normal(130.0, 18.0, N)), None),
        (np.floor(RNG.exponential(100.0, N)), None),
        (RNG.normal(0.0, 1.0, N)[RNG.integers(N, size=N)], None),
    ],
)
def test_a_value_that_no_density_explains(values, point_mass):
    column = kf.Schema.suggest({"x": values}).columns[0]
    assert column.kind == ("continuous" if point_mass is None else "semicontinuous")
    assert column.point_mass == point_mass


def test_the_range_is_of_the_other_values():
    dose = np.concatenate([np.zeros(300), RNG.normal(50.0, 5.0, 100)])
    low, high = kf.Schema.suggest({"dose": dose}).columns[0].reference
    assert 35.0 < low < 45.0
    assert 55.0 < high < 65.0


def test_a_kind_that_is_given():
    found = kf.Schema.suggest({"visits": [0, 0, 1, 3, 9]}, kinds={"visits": "semicontinuous"})
    assert found.columns[0].point_mass == 0.0
    with pytest.raises(kf.KLFusionError, match="'a': expected values that vary beside 0, got one"):
        kf.Schema.suggest({"a": [0, 0, 1.5]}, kinds={"a": "semicontinuous"})


def test_logarithms_of_skewed_columns():
    logs = RNG.normal(8.0, 1.0, N)
    zero = RNG.random(N) < 0.3
    frame = {"cost": np.where(zero, 0.0, np.exp(logs)), "age": RNG.normal(60, 10, N), "x": -logs}
    cost, age, negative = kf.Schema.suggest(frame)
    assert (cost.log, age.log, negative.log) == (True, False, False)
    low, high = cost.reference
    assert 300.0 < low < 600.0
    assert 1.5e4 < high < 3e4


def test_columns_that_are_left_out():
    n = 40
    frame = {
        "id": [f"P{k:03d}" for k in range(n)],
        "row": np.arange(1000, 1000 + n),
        "site": ["A"] * n,
        "empty": [None] * n,
        "born": [date(1950, 1, 1 + k % 28) for k in range(n)],
        "text": [f"{k * 1.37:.2f}" for k in range(n)],
        "both": [1.5, "low"] * (n // 2),
        "sex": ["f", "m"] * (n // 2),
        "age": np.linspace(40.5, 80.0, n),
    }
    with pytest.warns(UserWarning, match="left out of the schema") as warned:
        schema = kf.Schema.suggest(frame)
    assert schema.names == ["sex", "age"]
    (message,) = [str(one.message) for one in warned]
    for reason in (
        "'id' (most values occur once)",
        "'row' (consecutive numbers, each once)",
        "'site' (all values are 'A')",
        "'empty' (no values)",
        "'born' (values of type date, not text or numbers)",
        "'text' (numbers as text)",
        "'both' (text and numbers, such as 'low' and 1.5)",
    ):
        assert reason in message
    known = kf.Schema.suggest({"id": frame["id"]}, kinds={"id": "categorical"})
    assert len(known.columns[0].categories) == n


@for_each(
    "values, kind",
    [
        (RNG.poisson(3.0, 300), "counts"),
        (RNG.poisson(2.0, 300), "counts"),
        (RNG.poisson(0.5, 300), "counts"),
        (RNG.poisson(RNG.gamma(1.0, 1.5, 300)), "counts"),
        (RNG.integers(0, 4, 300), "categorical"),
        (RNG.choice(3, 300, p=[0.5, 0.02, 0.48]), "categorical"),
        (RNG.choice(5, 300, p=[0.1, 0.2, 0.1, 0.5, 0.1]), "categorical"),
        (1 + RNG.poisson(2.0, 300).clip(0, 4), "categorical"),
    ],
)
def test_few_whole_numbers_are_counts_or_codes(values, kind):
    assert kf.Schema.suggest({"x": values}).columns[0].kind == kind


@for_each(
    "texts, reason",
    [
        ([f"2020-{1 + k % 4:02d}-{1 + k % 28:02d}" for k in range(300)], "dates as text"),
        ([f"{1 + k % 28}.{1 + k % 4}.1999" for k in range(300)], "dates as text"),
        ([f"2020-01-{1 + k % 28:02d} 10:30" for k in range(300)], "dates as text"),
        ([f"{36 + 0.1 * (k % 30):.1f}" for k in range(300)], "numbers as text"),
        ([f"{36 + 0.1 * (k % 30):.1f}".replace(".", ",") for k in range(300)], "numbers as text"),
        ([str(k % 4) for k in range(300)], None),
        (["1.0", "1.5"] * 20, None),
        ([f"1-{k % 3}" for k in range(30)], None),
    ],
)
def test_texts_that_are_no_categories(texts, reason):
    frame = {"x": texts, "age": RNG.normal(60.0, 10.0, len(texts))}
    if reason is None:
        assert "x" in kf.Schema.suggest(frame).names
        return
    with pytest.warns(UserWarning, match=rf"'x' \({reason}\)"):
        assert "x" not in kf.Schema.suggest(frame).names
    known = kf.Schema.suggest(frame, kinds={"x": "categorical"})
    assert len(known.columns[0].categories) == len(set(texts))


def test_a_negative_value_that_may_say_that_a_cell_is_missing():
    dose = np.where(np.arange(N) % 5 == 0, -999.0, RNG.lognormal(2.0, 0.5, N))
    with pytest.warns(UserWarning, match="column 'dose': many rows have -999"):
        kf.Schema.suggest({"dose": dose})
    kf.Schema.suggest({"dose": dose}, kinds={"dose": "semicontinuous"})
    kf.Schema.suggest({"change": np.where(dose < 0, -5.0, RNG.normal(0.0, 1.0, N))})


def test_truth_values_with_missing_ones():
    """As pandas has them: of numpy's type, in a column of objects."""
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"sick": pd.array([True, False, None, True], dtype="boolean")})
    (column,) = schema = kf.Schema.suggest(frame)
    assert (column.kind, column.categories) == ("binary", (False, True))
    np.testing.assert_array_equal(schema.encoded(frame)[:, 0], [1.0, 0.0, np.nan, 1.0])


def test_categories_that_a_frame_declares():
    """A site that saw some of the stages, or one sex, knows of the others."""
    pd = pytest.importorskip("pandas")
    stages = ["I", "II", "III", "IV"]
    frame = pd.DataFrame(
        {
            "stage": pd.Categorical(["I", "II", None], categories=stages, ordered=True),
            "sex": pd.Categorical(["f", "f", "f"], categories=["f", "m"]),
            "cost": [Decimal("10.5"), Decimal("12.5"), None],
        }
    )
    stage, sex, cost = kf.Schema.suggest(frame, kinds={"cost": "continuous"})
    assert (stage.kind, stage.categories) == ("ordered", tuple(stages))
    assert (sex.kind, sex.categories) == ("binary", ("f", "m"))
    assert cost.kind == "continuous"
    twice = pd.concat([frame[["sex"]], frame[["sex"]]], axis=1)
    with pytest.raises(kf.KLFusionError, match="different names, got 'sex' twice"):
        kf.Schema.suggest(twice)


@for_each("seed", range(12))
def test_what_is_suggested_fits_the_data(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(8, 60))
    every = {
        "normal": rng.normal(0.0, 10.0 ** rng.uniform(-8, 8), n),
        "skewed": np.exp(rng.normal(0.0, 3.0, n)),
        "whole": rng.integers(0, 2000, n),
        "letters": rng.choice(list("abcd"), n).astype(object),
        "yes": rng.random(n) < 0.3,
        "dose": np.where(rng.random(n) < 0.5, 0.0, np.exp(rng.normal(0.0, 1.0, n))),
        "change": np.where(rng.random(n) < 0.5, 0.0, rng.normal(0.0, 1.0, n)),
        "negative": -np.exp(rng.normal(0.0, 2.0, n)),
        "visits": rng.poisson(2.0, n).astype(float),
    }
    for name in ("normal", "dose", "letters"):
        every[name][rng.random(n) < 0.2] = np.nan
    model = MixedMixture(kf.Schema.suggest(every), n_components=3, n_init=1, random_state=0)
    assert np.isfinite(model.fit(every).score_samples(every)).all()
    assert not np.isnan(model.schema.encoded(model.impute(every))).any()
