"""Private regressions: intervals hold the truth however wide the bounds are."""

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import klfusion as kf
from klfusion.pooling.noisy_gram import NoisyGram
from klfusion.pooling.noisy_sums import FewDrawsWarning, NoisySums, PriorWarning, noise_aware
from klfusion.privacy.mechanism import seeds_allowed

pytest.importorskip("opendp")
TRUE = np.array([-1.0, 0.8, -0.3])


def private(seed, wide=1.0, prior_sd=5.0):
    """A site of 2000 rows; columns are far from zero, as ages are."""
    rng = np.random.default_rng(seed)
    x = np.clip(2.0 + 0.4 * rng.normal(size=(2000, 2)), 1.0, 3.0)
    y = TRUE[0] + x @ TRUE[1:] + 0.5 * rng.normal(size=2000)
    with seeds_allowed():
        return kf.privatize(
            LinearRegression(), name="a", data=(x, y), epsilon=1.0, delta=1e-5,
            bounds={"x0": (0.0, 3.0 * wide), "x1": (0.0, 3.0 * wide), "y": (-9 * wide, 9 * wide)},
            prior_sd=prior_sd, random_state=rng,
        )  # fmt: skip


def moments(site):
    found = noise_aware((NoisySums.of(site),))
    return found.mean, np.sqrt(np.diag(found.covariance))


@pytest.mark.parametrize("wide", [1.0, 10.0])
def test_intervals_hold_the_truth_where_columns_are_nearly_constant(wide):
    inside = []
    for seed in range(4):
        mean, deviation = moments(private(seed, wide))
        inside += list(np.abs(mean - TRUE) < 2.0 * deviation)
    assert np.sum(inside) >= 11  # of 12


def test_where_noise_hides_all_a_posterior_is_as_wide_as_the_prior():
    _, deviation = moments(private(0, wide=100.0, prior_sd=1.0))
    assert deviation[1:].min() > 0.5


def test_an_answer_that_is_nearly_the_prior_is_said():
    with pytest.warns(PriorWarning, match=r"'x0', 'x1' .* deviations are 0\.[789]. to 0\.9. of"):
        kf.fuse([private(0, wide=100.0, prior_sd=1.0)])
    with warnings.catch_warnings():
        warnings.simplefilter("error", PriorWarning)
        kf.fuse([private(0)])


def test_too_few_draws_are_said(monkeypatch):
    draws = NoisyGram.draws
    monkeypatch.setattr(NoisyGram, "draws", lambda *given: (draws(*given)[0], 12.0))
    with pytest.warns(FewDrawsWarning, match="'a': .* effective draws, 400 are wanted"):
        private(9)
    noise_aware.cache_clear()
