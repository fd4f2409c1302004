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
    found = SiloStore.of(Listed(parts), whole.natural).take(rows)
    for name in ("natural", "counts", "given", "weights", "log_partition"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name)[rows])
    np.testing.assert_array_equal(found.silo, np.unique(whole.silo[rows], return_inverse=True)[1])
    assert found.prior is None


@pytest.mark.parametrize("without", [0, 1, 2])
def test_what_one_batch_lacks_is_left_out(batches, without):
    whole, parts = batches
    parts[without] = replace(parts[without], counts=None)
    found = SiloStore.of(Listed(parts), whole.natural).take(np.array([1, 6, 9]))
    assert found.counts is None
    np.testing.assert_array_equal(found.given, whole.given[[1, 6, 9]])


@pytest.mark.parametrize("prior_in_batches", [True, False])
def test_components_as_given_and_compared_again(prior_in_batches):
    rng, family = np.random.default_rng(1), kf.families.NormalWishart(2)
    n = rng.uniform(50.0, 500.0, size=12)
    natural = family.natural(
        rng.normal(size=(12, 2)), n, n[:, None, None] * np.stack([np.eye(2)] * 12), n + 3.0
    )
    prior = family.natural(np.zeros((1, 2)), [0.01], np.eye(2)[None], [4.0])[0]
    silo = np.repeat(np.arange(6), 2)
    given = FusionProblem(family, natural, silo, np.ones(12))
    base = given.comparable()
    variation = base.varying.variation(np.tile([0, 1], 6))
    varied = base.with_variation(variation)
    if prior_in_batches:
        varied = replace(varied, prior=np.tile(prior, (12, 1)))
    known = None if prior_in_batches else prior
    parts = [varied.some(slice(a, a + 4)) for a in (0, 4, 8)]
    store = SiloStore.of(Listed(parts), natural, variation, known)
    rows = np.array([1, 4, 5, 9])
    some = store.given(store.take(rows))
    np.testing.assert_array_equal(some.natural, natural[rows])
    np.testing.assert_array_equal(some.prior, np.tile(prior, (4, 1)))
    again = store.compared(some)  # at another origin, which changes no divergence
    for one, other in ((again, base), (again.with_variation(variation), varied)):
        found, expected = (family.kl(x, x) for x in (one.natural, other.natural[rows]))
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)
