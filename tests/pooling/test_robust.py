"""Claims about numbers: no silo counts more than three times the median one."""

from __future__ import annotations

import numpy as np

import klfusion as kf
from klfusion.pooling.robust import bounded
from klfusion.posteriors.structure import Structure


def test_equal_claims_stay():
    counts = [np.array([100.0, 50.0])] * 4
    for share in bounded(counts, [np.array([0, 1])] * 4):
        np.testing.assert_array_equal(share, 1.0)


def test_one_component_is_bounded_by_its_median_member():
    counts = [np.array([100.0, 100.0])] * 4 + [np.array([1e9, 90.0])]
    *others, last = bounded(counts, [np.array([0, 1])] * 5)
    np.testing.assert_array_equal(np.concatenate(others), 1.0)
    np.testing.assert_allclose(last * counts[-1], [303.0, 90.0])


def test_components_of_its_own_are_bounded_by_the_median_silo():
    counts = [np.array([100.0])] * 4 + [np.full(50, 1000.0)]
    shares = bounded(counts, [np.array([0])] * 4 + [1 + np.arange(50)])
    np.testing.assert_allclose((shares[-1] * counts[-1]).sum(), 303.0)


def test_splits_of_a_silo_count_as_one_and_unmatched_ones_not():
    counts = [np.array([100.0])] * 4 + [np.array([1e6, 1e6, 1e9])]
    shares = bounded(counts, [np.array([0])] * 4 + [np.array([0, 0, -1])])
    np.testing.assert_allclose((shares[-1] * counts[-1])[:2].sum(), 303.0)
    assert shares[-1][2] == 1.0


def test_two_silos_are_left_alone():
    counts = [np.array([1.0]), np.array([1e6])]
    np.testing.assert_array_equal(np.concatenate(bounded(counts, [np.array([0])] * 2)), 1.0)


def test_a_majority_without_observations_does_not_forbid_them():
    counts = [np.array([0.0])] * 4 + [np.array([2.0])]
    np.testing.assert_array_equal(np.concatenate(bounded(counts, [np.array([0])] * 5)), 1.0)


def silo(number, kind, arrays, **lies):
    rates = kf.families.Gamma()
    natural = rates.natural(np.array([30.0, 900.0]) + number, [10, 10])
    around = Structure(kind, {**arrays, **lies})
    return kf.Posterior(rates, natural, name=f"s{number}", structure=around)


def last_as_if_honest(kind, arrays, **lies):
    """Structures fused robustly of five silos: all honest, and the last lies."""
    fused = []
    for lie in ({}, lies):
        silos = [silo(j, kind, arrays) for j in range(4)] + [silo(4, kind, arrays, **lie)]
        fused.append(kf.fuse(silos, pooling="robust").posterior.structure.arrays)
    return fused


def test_transitions_and_priors_are_claims_too():
    states = {"start": [5.0, 5.0], "transition": [[90.0, 10.0], [10.0, 90.0]]}
    states |= {"start_prior": [1.0, 1.0], "transition_prior": np.ones((2, 2))}
    lie = {"transition": [[0.0, 1e9], [10.0, 90.0]], "transition_prior": np.full((2, 2), 1e9)}
    honest, hostile = last_as_if_honest("hmm", states, **lie)
    assert hostile["transition"][0].sum() < 7.1 * 100.0  # four honest rows, and at most three more
    assert hostile["transition_prior"].max() < 5.0 * honest["transition_prior"].max()
    honest, hostile = last_as_if_honest("mixture", {"counts": [9.0, 9.0], "weight_prior": 1.0},
                                        weight_prior=1e12)  # fmt: skip
    assert hostile["weight_prior"] < 3.0
