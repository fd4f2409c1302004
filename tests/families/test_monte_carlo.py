"""Divergences and mean parameters against averages over draws."""

import zlib

import numpy as np

from tests.families.cases import every_case

from .sampling import sample, statistics

DRAWS = 30_000
STANDARD_ERRORS = 5.0


def seeded(case):
    return np.random.default_rng(zlib.crc32(str(case).encode()))


@every_case
def test_mean_is_the_average_statistic(case):
    family, rng = case.family, seeded(case)
    natural = case.draw(rng, 2)
    drawn = statistics(family, sample(family, natural, DRAWS, rng))
    error = drawn.std(axis=0) / np.sqrt(DRAWS)
    gap = np.abs(drawn.mean(axis=0) - family.mean(natural))
    assert np.all(gap <= STANDARD_ERRORS * error + 1e-12)


@every_case
def test_kl_is_the_average_log_ratio(case):
    family, rng = case.family, seeded(case)
    first, second = case.draw(rng, 2), case.draw(rng, 3)
    drawn = statistics(family, sample(family, first, DRAWS, rng))
    kl = family.kl(first, second)
    for i, a in enumerate(first):
        shift = family.log_partition(second) - family.log_partition(a[None])
        log_ratio = drawn[:, i] @ (a - second).T + shift
        error = log_ratio.std(axis=0) / np.sqrt(DRAWS)
        assert np.all(np.abs(log_ratio.mean(axis=0) - kl[i]) <= STANDARD_ERRORS * error + 1e-12)
