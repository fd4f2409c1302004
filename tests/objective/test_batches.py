"""Some components of silos in batches, as a problem of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import klfusion as kf
from klfusion.objective.batches import ProblemBatches, SiloStore
from klfusion.objective.problem import FusionProblem


class Listed(ProblemBatches):
    """Problems in a list."""

    def __init__(self, batches):
        self.batches, self.family = batches, batches[0].family

    def map(self, task, *arguments):
        return map(task, self.batches, *arguments)


@pytest.fixture
def batches():
    rng, family = np.random.default_rng(0), kf.families.Gamma()
    natural = family.natural(rng.gamma(5.0, size=12), rng.gamma(5.0, size=12))
    silo, counts = np.repeat(np.arange(6), 2), rng.gamma(5.0, size=12)
    whole = FusionProblem(family, natural, silo, np.ones(12), counts, natural + 1.0)
    return whole, [whole.some(slice(a, a + 4)) for a in (0, 4, 8)]


@pytest.mark.parametrize("rows", [[0, 3, 5, 8, 11], [5, 6], [10], list(range(12)), []])
def test_components_of_all_batches_in_order(batches, rows):
    whole, parts = batches
    rows = np.array(rows, dtype=np.intp)
    found = SiloStore.of(Listed(parts)).take(rows)
    for name in ("natural", "counts", "given", "weights", "log_partition"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name)[rows])
    np.testing.assert_array_equal(found.silo, np.unique(whole.silo[rows], return_inverse=True)[1])
    assert found.prior is None


@pytest.mark.parametrize("without", [0, 1, 2])
def test_what_one_batch_lacks_is_left_out(batches, without):
    whole, parts = batches
    parts[without] = replace(parts[without], counts=None)
    found = SiloStore.of(Listed(parts)).take(np.array([1, 6, 9]))
    assert found.counts is None
    np.testing.assert_array_equal(found.given, whole.given[[1, 6, 9]])
