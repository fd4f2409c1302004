"""Gaussian classes from sums with noise: exact without, wide with, added up over silos."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import polygamma
from scipy.stats import gamma
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.naive_bayes import GaussianNB

import klfusion as kf
from klfusion.errors import InvalidPosteriorError
from klfusion.pooling.noisy_classes import NoisyClasses, _gammas, _quadrature, _quantile, _variance
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


def held(seed, epsilon, wide, unit=1.0, offset=0.0):
    """Whether intervals hold the variances, and the means, of rows in other units."""
    x, y = rows(seed)
    bound = 6.0 * wide * unit
    with seeds_allowed():
        site = kf.privatize(
            GaussianNB(), name="a", data=(offset + unit * x, y), epsilon=epsilon, delta=1e-5,
            bounds=dict.fromkeys(["x0", "x1"], (offset - bound, offset + bound)), classes=[0, 1],
            random_state=seed,
        )  # fmt: skip
    found = kf.fuse([site]).posterior.params()
    low, high = (found["rate"] / gamma.ppf(p, found["shape"]) for p in (0.975, 0.025))
    variance = (unit * DEVIATION) ** 2
    off = np.abs(found["mean"] - offset - unit * MEAN)
    near = off < 1.96 * np.sqrt(found["rate"] / (found["shape"] * found["kappa"]))
    return (low < variance) & (high > variance), near


@pytest.mark.filterwarnings("ignore::klfusion.pooling.noisy_sums.PriorWarning")
@pytest.mark.parametrize("wide", [1.0, 3.0, 10.0])
@pytest.mark.parametrize("epsilon", [1.0, 10.0])
def test_intervals_of_variances_include_the_noise(epsilon, wide):
    """Of 160 intervals; a deviation of 2 %."""
    assert np.mean([held(seed, epsilon, wide) for seed in range(40)], axis=(0, 2, 3)).min() > 0.88


@pytest.mark.filterwarnings("ignore::klfusion.pooling.noisy_sums.PriorWarning")
@pytest.mark.parametrize(("unit", "offset"), [(9.0, 120.0), (0.1, 0.0), (0.1, 5.0)])
@pytest.mark.parametrize("model", [GaussianNB(), QuadraticDiscriminantAnalysis()])
def test_units_of_columns_do_not_matter(model, unit, offset):
    """Pressures, fractions, and deviations far smaller than means."""
    (x, y), sites = rows(3), []
    for own, start in ((1.0, 0.0), (unit, offset)):
        bounds = dict.fromkeys(["x0", "x1"], (start - 12.0 * own, start + 12.0 * own))
        with seeds_allowed():
            site = kf.privatize(
                model, name="a", data=(start + own * x, y), epsilon=1.0, delta=1e-5,
                bounds=bounds, classes=[0, 1], random_state=0,
            )  # fmt: skip
        sites.append(kf.fuse([site]))
    one, two = (fusion.posterior.params() for fusion in sites)
    assert two["mean"] == pytest.approx(offset + unit * one["mean"], rel=1e-3)
    assert two["kappa"] == pytest.approx(one["kappa"], rel=1e-3)
    key = "rate" if "rate" in one else "scale_inv"
    assert two[key] == pytest.approx(unit**2 * one[key], rel=1e-2, abs=1e-3 * unit**2)
    more = rows(4)[0]
    first, second = (fusion.model() for fusion in sites)
    assert np.mean(first.predict(more) == second.predict(offset + unit * more)) > 0.99


@pytest.mark.filterwarnings("ignore::klfusion.pooling.noisy_sums.PriorWarning")
@pytest.mark.parametrize("model", [GaussianNB(), QuadraticDiscriminantAnalysis()])
@pytest.mark.parametrize("wide", [1.0, 3.0, 10.0])
def test_predictions_are_as_uncertain_as_noise_makes_them(model, wide):
    """Better than even odds over five draws of the noise, or about as good if all is hidden."""
    losses, (x, y) = [], rows(99, 2000)
    for seed in range(5):
        fusion = kf.fuse([private(rows(seed), seed, model=model, wide=wide)])
        share = fusion.model().predict_proba(x)[np.arange(len(y)), y]
        losses.append(-np.log(share).mean())
    assert np.mean(losses) < np.log(2.0) + 0.1


@pytest.mark.parametrize("model", [GaussianNB(), QuadraticDiscriminantAnalysis()])
def test_sums_of_silos_are_added_before_anything_is_inferred(model):
    files = [private(rows(k), k, model=model, epsilon=5.0, name=f"silo {k}") for k in range(4)]
    fusion = kf.fuse(files)
    sums = [NoisyClasses.of(own) for own in files]
    total = NoisyClasses(
        sum(own.sums for own in sums), sum(own.noise for own in sums),
        sums[0].centre, sums[0].half, sums[0].largest,
    )  # fmt: skip
    assert fusion.posterior.natural == pytest.approx(total.pooled(np.arange(2), 2))
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


def test_quadrature_finds_quantiles_and_variances_of_a_logarithm():
    shape = np.array([[0.6, 5.0], [400.0, 1e6]])
    rate = 1e-3 * shape

    def density(logs):  # of the logarithm of an inverse Gamma variable
        return -shape * logs - rate * np.exp(-logs)

    logs, weights = _quadrature(density, shape.shape, 30.0)
    for share in (0.025, 0.5, 0.975):
        exact = np.log(rate / gamma.ppf(1.0 - share, shape))
        near = 0.03 * np.sqrt(polygamma(1, shape))
        assert np.all(np.abs(_quantile(logs, weights, share) - exact) < near)
    assert _variance(logs, weights) == pytest.approx(polygamma(1, shape), rel=1e-2)


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


def test_gammas_have_the_quantiles_that_are_asked_for():
    low = np.array([-30.0, -5.0, -1.0, -1e-3])
    shape, rate = _gammas(low, np.zeros(4))
    assert np.log(rate / gamma.ppf(0.975, shape)) == pytest.approx(low, abs=1e-6)
    assert np.log(rate / gamma.ppf(0.025, shape)) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("model", [GaussianNB(), QuadraticDiscriminantAnalysis()])
def test_the_prior_is_worth_no_row(model):
    site = private(rows(0), model=model)
    assert site.family.in_domain(site.prior[None])
    assert np.abs(site.prior[:-1]).max() < 1e-12


@pytest.mark.parametrize("d", [3, 5, 9, 33, 100])
def test_a_prior_of_many_columns_is_of_its_family(d):
    """Its degrees of freedom were rounded to the limit."""
    sums = np.zeros((1, d + 1, d + 1))
    prior = NoisyClasses(sums, np.ones(1), np.full(d, 40.0), np.ones(d), 1.0).nothing()
    assert kf.families.NormalWishart(d).in_domain(prior[None])


@pytest.mark.parametrize("model", [GaussianNB(), QuadraticDiscriminantAnalysis()])
@pytest.mark.parametrize("how", [{"weights": [1.0, 2.0, 1.0]}, {"pooling": "robust"}, {}])
def test_silos_whose_sums_cannot_be_added_predict_as_well(model, how):
    """By weights, robustly, or with other bounds: products of what silos know."""
    (x, y), losses = rows(99, 2000), []
    for seed in range(3):
        files = [
            private(rows(10 * seed + k), 10 * seed + k, model=model, epsilon=5.0, name=f"silo {k}",
                    wide=1.5 if k == 2 and not how else 1.0)
            for k in range(3)
        ]  # fmt: skip
        share = kf.fuse(files, **how).model().predict_proba(x)[np.arange(len(y)), y]
        losses.append(-np.log(share).mean())
    assert np.mean(losses) < 0.5
