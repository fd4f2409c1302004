"""Pairs of components: every way to compute what they cost together gives the same."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from klfusion.objective.clusters import Clusters
from klfusion.objective.problem import FusionProblem
from tests.families.sampling import jensen_gap


@pytest.mark.parametrize("dim", [3, 200])  # of 6 and 400 natural parameters
def test_pairs_and_merges_cost_their_jensen_gaps(dim):
    rng = np.random.default_rng(dim)
    family, n = kf.families.DiagonalNormal(dim), 7
    natural = family.natural(rng.normal(size=(n, dim)), rng.uniform(0.5, 2.0, size=(n, dim)))
    weights = rng.uniform(0.5, 2.0, size=n)
    problem = FusionProblem(family, natural, np.arange(n), weights)
    for a in range(n):
        for b in range(a + 1, n):
            both = [a, b]
            gap = jensen_gap(family, natural[both], weights[both])
            assert problem.pair_increases[a, b] == pytest.approx(gap, rel=1e-9)
            assert problem.pair_increases[b, a] == problem.pair_increases[a, b]
    clusters = Clusters(problem, np.array([0, 0, 1, 2, 3, 4, 4]))
    others = np.array([1, 2, 3, 4])
    pairs = clusters.merge_increases(np.zeros(4, dtype=np.intp), others)
    np.testing.assert_allclose(clusters.merge_increases_with(0, others), pairs, rtol=1e-9)


def test_a_label_of_minus_one_is_in_no_sum():
    rates = kf.families.Gamma()
    natural = rates.natural([3.0, 5.0, 40.0, 7.0], [1.0, 1.0, 2.0, 1.0])
    problem = FusionProblem(rates, natural, np.array([0, 0, 1, 1]), np.array([1.0, 1.0, 2.0, 2.0]))
    labels = np.array([1, -1, 0, 1])
    kept = np.flatnonzero(labels >= 0)
    for found, expected in zip(
        problem.sums(labels, 2), problem.some(kept).sums(labels[kept], 2), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
