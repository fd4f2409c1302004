"""How probable failed fits are, given those known."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from scipy.special import comb
from scipy.stats import betabinom

from klfusion.model_size.failed_prior import FailedFits
from klfusion.model_size.partitions import PartitionPrior

SILO = np.repeat(np.arange(6), 4)
NONE = FailedFits.none(0.05, SILO)
NO_SILO = np.zeros(0, dtype=np.intp)


def test_the_first_failure_has_the_expected_odds():
    # One failure for nineteen others, and 24 fits of which none is known to have failed.
    assert NONE.log_odds(np.array([2])) == approx(np.log(1 / (19 + 24 - 1)))


SILOS = st.lists(st.integers(0, 5), max_size=12)


@given(SILOS, SILOS)
def test_log_odds_are_those_of_sequences_with_a_beta_prior(known, more):
    counts, more = np.minimum(np.bincount(known, minlength=6), 3), np.unique(more).astype(int)
    failed = np.concatenate([np.arange(4) < n for n in counts])
    beside = (counts[SILO] - failed) > 0  # another one of the silo failed
    expected = 0.0
    for group, others, n_more in (
        (~beside, 19.0, (counts[more] == 0).sum()),
        (beside, 1.0, (counts[more] > 0).sum()),
    ):
        n, k = group.sum(), (group & failed).sum()
        after, before = betabinom(n, 1.0, others).logpmf([k + n_more, k])
        expected += after - before - np.log(comb(n, k + n_more) / comb(n, k))
    assert NONE.more(np.repeat(np.arange(6), counts), NO_SILO).log_odds(more) == approx(expected)


def test_fits_beside_a_failed_one_are_likelier_to_have_failed():
    several = NONE.more(np.array([0, 0, 1, 1, 2, 2]), NO_SILO)
    assert several.log_odds(np.array([2])) > several.log_odds(np.array([3])) + 2.0
    single = NONE.more(np.array([0, 1, 2]), NO_SILO)  # where they fail one by one
    assert single.log_odds(np.array([2])) < several.log_odds(np.array([2])) - 1.5


def test_private_components_beside_failed_fits_are_unexplained_failed_fits():
    prior, sizes = PartitionPrior(50), np.array([40, 35, 20, 45])
    silo = np.repeat(np.arange(50), 3)
    known = FailedFits.none(0.05, silo).more(np.repeat(np.arange(6), 2), np.arange(6))
    found = known.unexplained_among(np.array([3, 20]), sizes, prior)
    np.testing.assert_array_equal(found, [True, False])
    nothing_shared = known.unexplained_among(np.array([3, 20]), np.ones(4, dtype=int), prior)
    assert not nothing_shared.any()
