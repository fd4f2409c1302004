"""scikit-learn's point estimates of mixtures, made posteriors by the number of observations."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

import klfusion as kf
from klfusion.errors import IncompatibleSilosError, KLFusionError

CENTRES = np.array([[-6.0, 0.0, 1.0], [6.0, 0.0, 0.0], [0.0, 8.0, -2.0]])


def data(kinds=(0, 1, 2), n=600, seed=0):
    rng = np.random.default_rng(seed)
    return CENTRES[rng.choice(kinds, n)] + rng.normal(size=(n, 3)) * [1.0, 0.5, 2.0]


def fitted(x, n_components, covariance="full", cls=GaussianMixture):
    model = cls(
        n_components=n_components,
        covariance_type=covariance,
        tol=1e-8,
        max_iter=500,
        n_init=3,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(x)


def sites(rows, names, sizes, covariance="full"):
    return [
        kf.extract(fitted(x, size, covariance), name=name, n_observations=len(x))
        for name, x, size in zip(names, rows, sizes, strict=True)
    ]


@pytest.mark.parametrize("covariance", ["full", "diag", "spherical", "tied"])
class TestEveryCovarianceType:
    def test_is_what_the_bayesian_mixture_finds(self, covariance):
        x = data()
        point = kf.extract(fitted(x, 3, covariance), name="a", n_observations=len(x))
        full = kf.extract(fitted(x, 3, covariance, BayesianGaussianMixture), name="b")
        # Well apart, both share the observations out alike, in another order.
        order, other = (np.argsort(p.params()["mean"][:, 0]) for p in (point, full))
        for key, value in point.params().items():
            np.testing.assert_allclose(
                value[order], full.params()[key][other], rtol=0.03, atol=0.03, err_msg=key
            )
        np.testing.assert_allclose(point.counts[order], full.counts[other], rtol=0.01)

    def test_the_model_back_is_what_it_was(self, covariance):
        x = data()
        model = fitted(x, 3, covariance)
        again = kf.adapters.rebuild(kf.extract(model, name="a", n_observations=len(x)))
        assert type(again) is GaussianMixture
        for what in ("weights_", "means_", "covariances_", "precisions_cholesky_"):
            np.testing.assert_allclose(getattr(again, what), getattr(model, what), rtol=1e-9)
        assert again.score(x) == pytest.approx(model.score(x), rel=1e-12)

    @pytest.mark.parametrize("predictive", [False, True])
    def test_fused_silos_predict_as_a_fit_of_all_rows(self, covariance, predictive):
        sees = {"a": (0, 1), "b": (1, 2), "c": (0, 2), "d": (0, 1, 2)}
        rows = [data(kinds, 150 + 90 * j, j) for j, kinds in enumerate(sees.values())]
        fusion = kf.fuse(sites(rows, sees, [2, 2, 2, 3], covariance))
        model = fusion.model(predictive=predictive)
        pooled = fitted(np.concatenate(rows), 3, covariance)
        assert type(model) is GaussianMixture
        new = data(n=3000, seed=9)
        # The clusters hardly overlap, so that the moments of all rows are sums of those sent.
        near = 5e-3 if predictive else 1e-3  # draws are noisy
        assert model.score(new) == pytest.approx(pooled.score(new), abs=near)
        order, other = (np.argsort(m.means_[:, 0]) for m in (model, pooled))
        np.testing.assert_allclose(model.means_[order], pooled.means_[other], atol=10 * near)

    def test_what_add_and_remove_leave_is_without_prior(self, covariance):
        rows = [data(n=200, seed=j) for j in range(4)]
        given = sites(rows, "abcd", [3] * 4, covariance)
        all_ = kf.fuse(given)
        added = kf.fuse(given[:3]).add(given[3])
        less = all_.remove("b")
        for found, expected in ((added, all_), (less, kf.fuse([given[0], *given[2:]]))):
            assert type(found.model()) is GaussianMixture
            order, other = (np.argsort(f.model().means_[:, 0]) for f in (found, expected))
            got, wanted = found.model().covariances_, expected.model().covariances_
            if covariance != "tied":
                got, wanted = got[order], wanted[other]
            np.testing.assert_allclose(got, wanted, rtol=1e-9)

    def test_fused_silos_have_all_clusters(self, covariance):
        sees = {"a": (0, 1), "b": (1, 2), "c": (0, 2)}
        rows = [data(kinds, 300, seed) for seed, kinds in enumerate(sees.values())]
        fusion = kf.fuse(sites(rows, sees, [2] * 3, covariance))
        assert fusion.n_components == 3
        assert len(set(fusion.model().predict(CENTRES))) == 3


def few(dim, n, seed):
    """Two clusters far apart, and fewer observations of each than dimensions."""
    rng = np.random.default_rng(seed)
    centre = np.array([[-10.0], [10.0]])
    return np.repeat(centre, n, axis=0) + rng.normal(size=(2 * n, dim))


@pytest.mark.parametrize("predictive", [False, True])
def test_silos_with_fewer_rows_than_columns_add_up(predictive):
    dim, rows = 12, [few(12, 9, seed) for seed in range(6)]
    model = kf.fuse(sites(rows, "abcdef", [2] * 6)).model(predictive=predictive)
    pooled = fitted(np.concatenate(rows), 2)
    new = few(dim, 500, 9)
    assert model.score(new) == pytest.approx(pooled.score(new), abs=1e-4)


def test_where_some_have_a_prior_it_stays():
    rows = [data(n=200, seed=j) for j in range(3)]
    *points, last = sites(rows, "abc", [3] * 3)
    bayesian = kf.extract(fitted(rows[2], 3, cls=BayesianGaussianMixture), name="c")
    assert type(kf.fuse([*points, bayesian]).model()) is BayesianGaussianMixture
    assert type(kf.fuse([bayesian, *points]).model()) is BayesianGaussianMixture
    assert type(kf.fuse([*points, last], pooling="robust").model()) is BayesianGaussianMixture


def test_the_prior_of_the_fused_posterior_is_that_of_the_pooled_rows():
    rows = [data(kinds, 300, seed) for seed, kinds in enumerate(((0, 1), (1, 2), (0, 2)))]
    fused, x = kf.fuse(sites(rows, "abc", [2] * 3)).posterior, np.concatenate(rows)
    prior = fused.family.params(fused.prior[None])
    np.testing.assert_allclose(prior["mean"][0], x.mean(axis=0), atol=0.01)
    np.testing.assert_allclose(prior["scale_inv"][0], np.cov(x.T, bias=True), rtol=0.01, atol=0.02)
    within = fused.likelihood().params()
    np.testing.assert_allclose(
        within["scale_inv"] / within["dof"][:, None, None],
        np.tile(np.diag([1, 0.25, 4]), (3, 1, 1)),
        atol=0.6,
    )


def test_files_of_a_version_without_the_mark_are_bayesian():
    site = sites([data()], "a", [3])[0]
    info = {k: v for k, v in site.structure.info.items() if k != "point_estimates"}
    old = replace(site, structure=replace(site.structure, info=info))
    assert type(kf.adapters.rebuild(old)) is BayesianGaussianMixture


def test_columns_of_a_frame_are_kept():
    names = np.array(["age", "bmi", "glucose"], dtype=object)
    sites = []
    for name, columns in {"a": names, "b": names[::-1]}.items():
        model = fitted(data(), 3)
        model.feature_names_in_ = columns
        sites.append(kf.extract(model, name=name, n_observations=600))
    with pytest.raises(IncompatibleSilosError, match="in this order"):
        kf.fuse(sites)


def test_says_how_to_give_the_number_of_observations():
    with pytest.raises(KLFusionError, match=r"'north'.*n_observations=len\(x\)"):
        kf.fuse({"north": fitted(data(), 3)})


@pytest.mark.parametrize("n", [0, -5, np.nan, np.inf, "many", True, 1e300])
def test_refuses_a_number_that_is_none(n):
    with pytest.raises(KLFusionError, match="'a': expected n_observations to be a number > 0"):
        kf.extract(fitted(data(), 3), name="a", n_observations=n)


def test_refuses_one_that_is_not_fitted():
    with pytest.raises(KLFusionError, match="'a': expected a fitted GaussianMixture"):
        kf.extract(GaussianMixture(2), name="a", n_observations=10)


@pytest.mark.parametrize("covariance", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize(
    ("what", "value"),
    [("means_", np.nan), ("weights_", -0.1), ("covariances_", np.inf), ("covariances_", -1.0)],
)
def test_refuses_estimates_that_are_none(covariance, what, value):
    x = np.random.default_rng(0).normal(size=(100, 2))
    model = GaussianMixture(n_components=2, covariance_type=covariance, random_state=0).fit(x)
    values = getattr(model, what).copy()
    values.flat[0] = value
    setattr(model, what, values)
    with pytest.raises(kf.KLFusionError, match=f"silo 'here': {what}: expected"):
        kf.extract(model, name="here", n_observations=100)
