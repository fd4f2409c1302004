"""Gaussian classes from sums with noise: exact without, wide with, added up over silos."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import polygamma, psi
from scipy.stats import gamma
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.naive_bayes import GaussianNB

import klfusion as kf
from klfusion.errors import InvalidPosteriorError
from klfusion.pooling.noisy_classes import NoisyClasses, _freedom, _log_moments
from klfusion.pooling.noisy_sums import PriorWarning
from klfusion.privacy.mechanism import seeds_allowed

pytest.importorskip("opendp")
MEAN, DEVIATION = np.array([[0.0, 1.0], [1.0, -1.0]]), np.array([[1.0, 1.5], [0.7, 1.0]])


def rows(seed, n=400):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    return np.clip(MEAN[y] + DEVIATION[y] * rng.normal(size=(n, 2)), -6.0, 6.0), y


def private(data, seed=0, *, model=None, epsilon=1.0, wide=1.0, name="a", classes=(0, 1)):
    bounds = dict.fromkeys(["x0", "x1"], (-6.0 * wide, 6.0 * wide))
    with seeds_allowed():
        return kf.privatize(
            model or GaussianNB(), name=name, data=data, epsilon=epsilon, delta=1e-5,
            bounds=bounds, classes=list(classes), random_state=seed,
        )  # fmt: skip


@pytest.mark.parametrize("model", [GaussianNB(), QuadraticDiscriminantAnalysis()])
def test_with_little_noise_the_posterior_is_that_of_the_rows(model):
    data = rows(0, 20_000)
    exact = kf.extract(model.fit(*data), name="a", **({} if "N" in str(model) else {"data": data}))
    found, exact = private(data, model=model, epsilon=99.0).params(), exact.params()
    for key, own in exact.items():
        assert found[key] == pytest.approx(own, rel=0.1, abs=0.03 * np.abs(own).max()), key


def held(seed, epsilon, wide):
    """Whether intervals hold the variances."""
    found = private(rows(seed), seed, epsilon=epsilon, wide=wide).params()
    low, high = (found["rate"] / gamma.ppf(p, found["shape"]) for p in (0.975, 0.025))
    return (low < DEVIATION**2) & (high > DEVIATION**2)


@pytest.mark.parametrize(("epsilon", "wide"), [(1.0, 1.0), (10.0, 1.0), (10.0, 3.0)])
def test_intervals_of_variances_include_the_noise(epsilon, wide):
    """Of 160 intervals; a deviation of 2 %."""
    assert np.mean([held(seed, epsilon, wide) for seed in range(40)]) > 0.88


@pytest.mark.parametrize("model", [GaussianNB(), QuadraticDiscriminantAnalysis()])
def test_sums_of_silos_are_added_before_anything_is_inferred(model):
    files = [private(rows(k), k, model=model, epsilon=5.0, name=f"silo {k}") for k in range(4)]
    fusion = kf.fuse(files)
    sums = [NoisyClasses.of(own) for own in files]
    total = NoisyClasses(
        sum(own.sums for own in sums), sum(own.noise for own in sums),
        sums[0].centre, sums[0].half, sums[0].largest,
    )  # fmt: skip
    assert fusion.posterior.natural == pytest.approx(total.posterior(files[0].prior))
    assert kf.fuse(files[::-1]).posterior.natural == pytest.approx(fusion.posterior.natural)
    assert fusion.posterior.structure.info.get("sums") is None
    predicted = fusion.model().predict(rows(9)[0])
    assert np.mean(predicted == rows(9)[1]) > 0.75


def test_a_class_that_some_silos_lack():
    x, y = rows(0)
    more = private(
        (np.vstack([x, x / 1.5 + 1.0]), np.r_[y, np.full(400, 2)]),
        1,
        epsilon=20.0,
        classes=(0, 1, 2),
    )
    fusion = kf.fuse([more, private(rows(1), 2, epsilon=20.0, name="b")])
    alone = kf.fuse([more])
    assert fusion.posterior.n_components == 3
    third = fusion.posterior.structure.info["components"].index("2")
    one = alone.posterior.structure.info["components"].index("2")
    assert fusion.posterior.natural[third] == pytest.approx(alone.posterior.natural[one])


def test_noise_that_hides_variances_is_said():
    with pytest.warns(PriorWarning, match="say less of 4 of 4 variances of classes"):
        kf.fuse([private(rows(0), wide=30.0)])


def test_a_silo_without_noise_may_be_fused_with_others():
    exact = kf.extract(GaussianNB().fit(*rows(1, 4000)), name="exact")
    found = kf.fuse([private(rows(0)), exact]).posterior.params()
    assert found["mean"] == pytest.approx(exact.params()["mean"], abs=0.2)


def test_files_with_other_sums_are_refused():
    own = private(rows(0))
    arrays = dict(own.structure.arrays) | {"sums.classes": np.zeros((2, 4))}
    with pytest.raises(InvalidPosteriorError, match=r"sums.classes to be of shape \(2, 5\)"):
        replace(own, structure=replace(own.structure, arrays=arrays))


def test_quadrature_finds_the_moments_of_a_logarithm():
    shape = np.array([[0.6, 5.0], [400.0, 1e6]])
    rate = 1e-3 * shape

    def density(logs):  # of the logarithm of an inverse Gamma variable
        return -shape * logs - rate * np.exp(-logs)

    mean, variance = _log_moments(density, shape.shape, 5.0)
    assert mean[shape > 1] == pytest.approx((np.log(rate) - psi(shape))[shape > 1], abs=1e-4)
    assert variance[shape > 1] == pytest.approx(polygamma(1, shape)[shape > 1], rel=1e-3)


@pytest.mark.parametrize("d", [1, 3])
def test_degrees_of_freedom_of_a_log_determinant(d):
    freedom = d - 1 + np.array([0.3, 4.0, 1000.0])
    each = 0.5 * (freedom[:, None] - np.arange(d))
    assert _freedom(polygamma(1, each).sum(axis=1), d) == pytest.approx(freedom, rel=1e-6)


def test_a_silo_without_its_prior_is_refused():
    bare = replace(private(rows(0), epsilon=99.0), prior=None)
    with pytest.raises(InvalidPosteriorError, match="silo 'a': expected the prior that sums of"):
        kf.fuse([bare])


@pytest.mark.parametrize(
    "wrong",
    [{"epsilon": 1.0, "delta": []}, {"epsilon": "x"}, {"noise_sd": 3}, {"sensitivity": {"x": "y"}}],
)
def test_a_budget_that_cannot_be_read_promises_nothing(wrong, tmp_path):
    """A stranger's statement ended the report with a traceback."""
    site = private(rows(0), epsilon=99.0)
    told = {"privacy": {**site.provenance["privacy"], **wrong}}
    fusion = kf.fuse([replace(site, provenance=told)])
    broken = replace(fusion, posterior=replace(fusion.posterior, provenance=told))
    broken.report(str(tmp_path / "report.html"))
    assert "cannot be read: nothing is promised" in (tmp_path / "report.html").read_text()
