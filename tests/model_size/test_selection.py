"""How large the fused model is: what merges are believed, and silos of one component each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import klfusion as kf
from klfusion.model_size.selection import _last_accepted

NW = kf.families.NormalWishart(2)


def one_each(means, count=300.0):
    """A silo for each mean: one component, of unit variance."""
    return [
        kf.Posterior(NW, NW.natural([m], [count], [count * np.eye(2)], [count + 1.0]), name=f"{j}")
        for j, m in enumerate(np.asarray(means, dtype=float))
    ]


def test_components_that_nobody_takes_for_one_stay_apart():
    assert kf.fuse(one_each([[0, 0], [100, 0]])).n_components == 2
    assert kf.fuse(one_each([[20 * k, 0] for k in range(6)])).n_components == 6
    assert kf.fuse(one_each([[0, 0], [1, 0]])).n_components == 1


@pytest.mark.parametrize("n_silos", [2, 5, 20])
@pytest.mark.parametrize("variation", [0.3, 1.0, 2.0])
def test_points_in_no_order_are_one(n_silos, variation):
    sizes = [
        kf.fuse(
            one_each(np.random.default_rng(seed).normal(scale=variation, size=(n_silos, 2)))
        ).n_components
        for seed in range(10)
    ]
    assert np.mean([size == 1 for size in sizes]) >= 0.7


def test_groups_are_found():
    rng = np.random.default_rng(0)
    means = np.array([[0, 0], [8, 0], [0, 8]])[np.arange(12) % 3] + 0.2 * rng.normal(size=(12, 2))
    assert kf.fuse(one_each(means)).n_components == 3


@example([0.0, *[1.0] * 9, 0.0], 2)  # exactly as many failures as may be
@given(st.lists(st.floats(0.0, 1.0), max_size=40), st.integers(2, 50))
def test_more_merges_that_are_unlikely_never_make_others_less_so(chances, n_silos):
    before = np.array(chances)
    assert _last_accepted(np.append(0.0, before), n_silos) >= _last_accepted(before, n_silos)


def test_low_p_values_among_many_are_not_accepted():
    few = np.array([0.05, 0.1, 0.12])
    assert _last_accepted(np.append(few, [0.4, 0.9]), 2) == 3
    assert _last_accepted(np.append(few, [0.4, 0.9]), 20) == 0
    assert _last_accepted(np.append(few, np.linspace(0.2, 1.0, 40)), 2) == 0
    assert _last_accepted(np.append(np.full(20, 1e-3), np.linspace(0.2, 1.0, 40)), 5) == 20
    assert _last_accepted(np.empty(0), 2) == 0
