"""Other units: found from few matches, by a probability; honest silos are not named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import klfusion as kf
from experiments.units import SCENARIOS, run, run_consortium
from klfusion.learners import Column, MixedMixture
from klfusion.updates.component_moments import KEYS, ComponentMoments
from klfusion.updates.units import _Pairs, other_units
from tests.helpers.loops import for_each

NORMAL = kf.families.NormalWishart(3)


def silo(name, means, sds, scale=(1.0, 1.0, 1.0), n=200.0):
    means, sds = np.array(means) * scale, np.array(sds) * scale
    size = np.full(len(means), n)
    scatter = n * np.einsum("ni,ij->nij", sds**2, np.eye(3))
    return kf.Posterior(NORMAL, NORMAL.natural(means, size, scatter, size + 2), name=name)


def drawn(rng, n=4):
    return rng.uniform(0, 30, size=(n, 3)), rng.uniform(0.5, 2.0, size=(n, 3))


def near(means, sds, rng):
    return means + 0.1 * sds * rng.normal(size=means.shape), sds * np.exp(
        0.05 * rng.normal(size=sds.shape)
    )


@pytest.mark.parametrize("n_silos", [2, 4])
@pytest.mark.parametrize(("column", "factor"), [(1, 2.2), (0, 1.61), (2, 0.001), (None, 100.0)])
def test_the_silo_the_column_and_the_factor_are_found(n_silos, column, factor):
    rng = np.random.default_rng(3)
    true = drawn(rng)
    scale = np.where([column in (None, c) for c in range(3)], factor, 1.0)
    silos = [silo(f"s{j}", *near(*true, rng)) for j in range(n_silos - 1)]
    silos.append(silo("other", *near(*true, rng), scale))
    (found,) = other_units(silos)
    assert found[:2] == ("other", None if column is None else (column,))
    assert found.scales == pytest.approx((factor,), rel=0.05)
    assert found.probability > 0.9


@pytest.mark.parametrize("n_silos", [2, 3])
@pytest.mark.parametrize("scale", [(2.2, 0.39, 1.0), (1.0, 100.0, 2.54), (2.2, 0.001, 0.45)])
def test_several_columns_each_by_its_own_factor(n_silos, scale):
    """Two wrong columns leave no match, whichever one of them is corrected."""
    rng = np.random.default_rng(6)
    true = drawn(rng)
    silos = [silo(f"s{j}", *near(*true, rng)) for j in range(n_silos - 1)]
    silos.append(silo("other", *near(*true, rng), scale))
    (found,) = other_units(silos)
    columns = [c for c in range(3) if scale[c] != 1.0]
    assert found[:2] == ("other", tuple(columns))
    assert found.scales == pytest.approx([scale[c] for c in columns], rel=0.05)
    assert found.probability > 0.9


def test_silos_of_other_components_or_none_in_common_are_honest():
    rng = np.random.default_rng(4)
    shared = drawn(rng, 2)
    silos = []
    for j in range(5):
        own = [np.concatenate(both) for both in zip(shared, drawn(rng), strict=True)]
        silos.append(silo(f"s{j}", *near(*own, rng)))
    assert [*other_units(silos)] == []
    assert [*other_units([silo(f"s{j}", *drawn(rng)) for j in range(5)])] == []
    assert [*other_units(silos[:1])] == []


def test_families_without_columns_and_huge_numbers_say_nothing():
    rates = kf.families.Gamma()
    rate = kf.Posterior(rates, rates.natural([3.0], [1.0]), name="a")
    assert [*other_units([rate, replace(rate, name="b")])] == []
    rng = np.random.default_rng(5)
    huge = silo("huge", *drawn(rng), (1e150, 1.0, 1.0))
    assert all(np.isfinite(own.scales).all() for own in other_units([silo("a", *drawn(rng)), huge]))


@pytest.mark.parametrize("bare", [False, True])
def test_fitted_mixtures(bare):
    """The experiment, of one set of silos."""
    found = run(SCENARIOS["two, all shared"], 7, bare=bare)
    assert found["one column"] and found["standardised alone"]
    assert not found["honest, others"] and not found["standardised in common, others"]


def test_a_consortium_of_mixed_and_incomplete_tables():
    """The experiment, of one consortium."""
    found = run_consortium(301)
    assert found["one column"] and not found["honest, others"] and not found["one column, others"]


TABLE = kf.Schema(
    (
        Column("age", "continuous", (30.0, 80.0), unit="years"),
        Column("sex", "binary", categories=("f", "m")),
        Column("creatinine", "continuous", (0.5, 2.0), unit="mg/dl", log=True),
        Column("dose", "semicontinuous", (5.0, 40.0), unit="mg"),
        Column("weight", "continuous", (45.0, 120.0), unit="kg", block="body"),
        Column("height", "continuous", (150.0, 200.0), unit="cm", block="body"),
    )
)


def patients(rng, n=240):
    group = rng.integers(2, size=n)
    old = group == 1
    return {
        "age": np.where(old, 70.0, 40.0) + rng.normal(0, 6, n),
        "sex": np.where(rng.random(n) < np.where(old, 0.8, 0.3), "m", "f"),
        "creatinine": np.exp(np.where(old, 0.5, -0.3) + rng.normal(0, 0.2, n)),
        "dose": np.where(rng.random(n) < 0.4, 0.0, np.where(old, 30.0, 12.0) + rng.normal(0, 3, n)),
        "weight": np.where(old, 92.0, 68.0) + rng.normal(0, 6, n),
        "height": np.where(old, 168.0, 181.0) + rng.normal(0, 5, n),
    }


@pytest.mark.parametrize(
    ("column", "factor"), [("age", 12.0), ("creatinine", 88.4), ("dose", 0.001), ("height", 0.394)]
)
def test_a_column_of_a_table_in_other_units(column, factor):
    """Logarithms, shared values, blocks, and a site that never measured the column."""
    rng = np.random.default_rng(8)
    tables = {name: patients(rng) for name in ("a", "b", "other", "without")}
    tables["other"][column] = tables["other"][column] * factor
    del tables["without"][column]
    silos = [
        kf.extract(MixedMixture(TABLE, n_components=4, random_state=0).fit(table), name)
        for name, table in tables.items()
    ]
    (found,) = other_units(silos)
    assert found[:2] == ("other", (TABLE.names.index(column),))
    assert found.scales == pytest.approx((factor,), rel=0.1)
    (finding,) = [f for f in kf.diagnose(kf.fuse(silos)).findings if "units" in f.reason]
    assert finding.silo == "other" and f"column {column!r} " in finding.reason


@for_each("seed", range(12))
def test_bounds_are_above_what_they_bound(seed):
    rng = np.random.default_rng(seed)
    own, other = (
        ComponentMoments(
            np.where(rng.uniform(size=(n, 3)) < 0.1, 0.0, rng.normal(scale=3.0, size=(n, 3))),
            rng.normal(size=(n, 3)),
            np.full((n, 1), 50.0),
        )
        for n in (3, 5)
    )
    with np.errstate(all="ignore"):
        pairs = _Pairs(own, other, 0.1)
        assert pairs.bound_of_several() >= pairs.best_of_several()[0]
        for c in range(3):
            columns = np.arange(3) == c
            assert pairs.bound(columns) >= pairs.best(columns)[0]


def test_many_silos_of_different_sizes_are_compared_as_each_by_itself():
    rng = np.random.default_rng(11)
    means, sds = drawn(rng)
    silos = []
    for j in range(30):
        rows = rng.permutation(4)[: 2 + j % 3]
        scale = (1.0, 2.2, 1.0) if j == 7 else (1.0, 1.0, 1.0)
        silos.append(silo(f"s{j}", *near(means[rows], sds[rows], rng), scale))
    (found,) = other_units(silos)
    assert found[:2] == ("s7", (1,))
    own, other = (ComponentMoments.of(silos[j]) for j in (0, 2))
    alike = [own, ComponentMoments.of(silos[3])]
    every = replace(own, **{k: np.stack([getattr(one, k) for one in alike]) for k in KEYS})
    together, alone = _Pairs(every, other, 0.1), [_Pairs(one, other, 0.1) for one in alike]
    column = np.arange(3) == 1
    for value in (_Pairs.same, _Pairs.bound_of_several, lambda pairs: pairs.bound(column)):
        np.testing.assert_allclose(value(together), [value(one) for one in alone], rtol=1e-12)
