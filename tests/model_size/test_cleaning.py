"""What is left out, and what is put together, before matching."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

import klfusion as kf
from klfusion.fusion.assemble import EMPTY
from klfusion.model_size import cleaning
from klfusion.model_size.cleaning import merge_splits, merged, split_silos, with_data
from klfusion.posteriors.structure import Structure
from tests.families.cases import CASES

NW = kf.families.NormalWishart(2)
PRIOR = NW.natural([[0.0, 0.0]], [0.01], [np.eye(2)], [3.0])[0]


def from_data(*clusters, name="a", **kwargs):
    """The exact posterior of each cluster of observations."""
    rows = []
    for x in clusters:
        n, mean = len(x), x.mean(axis=0)
        kappa = 0.01 + n
        mu = n * mean / kappa
        moment = np.eye(2) + x.T @ x
        scale_inv = moment - kappa * np.outer(mu, mu)
        rows.append(NW.natural([mu], [kappa], [scale_inv], [3.0 + n])[0])
    counts = np.array([len(x) for x in clusters], dtype=float)
    return kf.Posterior(NW, np.stack(rows), name=name, prior=PRIOR, counts=counts, **kwargs)


def grouped(posterior):
    return sorted(sorted(own.tolist()) for own in groups_of(posterior))


def groups_of(posterior):
    return merge_splits(posterior, np.arange(posterior.n_components))


def test_a_split_cluster_is_put_together_exactly():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(100, 2)), rng.normal([8.0, 0.0], size=(80, 2))
    split = from_data(x[:40], x[40:], y)
    assert grouped(split) == [[0, 1], [2]]
    expected = from_data(x, y).natural
    np.testing.assert_allclose(merged(split, groups_of(split)), expected, rtol=1e-10)


def test_different_clusters_stay_apart():
    rng = np.random.default_rng(1)
    # Nearer than about three deviations, one component is the shorter description.
    for distance, groups in ((4.0, [[0], [1]]), (1.0, [[0, 1]])):
        other = rng.normal([distance, 0.0], size=(100, 2))
        assert grouped(from_data(rng.normal(size=(100, 2)), other)) == groups


@pytest.mark.parametrize(
    "change",
    [{"prior": None}, {"counts": None}, {"structure": Structure("topics")}],
    ids=["no prior", "no counts", "not a mixture"],
)
def test_without_the_means_to_tell_nothing_is_put_together(change):
    x = np.random.default_rng(0).normal(size=(100, 2))
    assert grouped(replace(from_data(x[:50], x[50:]), **change)) == [[0], [1]]


@pytest.mark.parametrize("width", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("origin", [0.0, 100.0])
def test_a_prior_of_any_width_and_place_decides_the_same(width, origin):
    rng = np.random.default_rng(4)
    x = [rng.normal(c, size=(60, 2)) for c in ([0.0, 0.0], [0.2, 0.0], [5.0, 0.0], [0.0, 12.0])]
    silo = from_data(*x)
    prior = NW.natural([[origin, 0.0]], [0.01], [width * np.eye(2)], [3.0])[0]
    other = replace(silo, natural=silo.natural - PRIOR + prior, prior=prior)
    assert grouped(silo) == grouped(other) == [[0, 1], [2], [3]]


def test_counts_that_the_parameters_deny_are_no_error():
    x = np.random.default_rng(4).normal(size=(60, 2))
    silo = from_data(x[:30], x[30:])
    denied = replace(silo, prior=silo.natural.mean(axis=0))  # less than nothing was observed
    assert grouped(denied) in ([[0, 1]], [[0], [1]])


def test_empty_components_are_left_out_but_never_all():
    x = np.random.default_rng(0).normal(size=(100, 2))
    silo = replace(from_data(x[:98], x[98:99], x[99:]), counts=np.array([98.0, 1.0, 0.2]))
    assert with_data(silo).tolist() == [0]
    assert with_data(replace(silo, counts=np.zeros(3))).tolist() == [0, 1, 2]
    assert with_data(replace(silo, counts=None)).tolist() == [0]  # its means say as much
    rates = kf.families.Gamma()
    assert with_data(kf.Posterior(rates, rates.natural([900.0, 1.0], [9.0, 9.0]))).tolist() == [
        0,
        1,
    ]


def test_members_of_a_group_get_one_label():
    rng = np.random.default_rng(2)
    centres = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    data = [[rng.normal(size=(100, 2)) + c for c in centres] for _ in range(4)]
    silos = [from_data(*x, name=f"site-{j}") for j, x in enumerate(data)]
    first = data[0][0]
    silos[0] = from_data(first[:50], first[50:], *data[0][1:], name="site-0")
    fusion = kf.fuse(silos)
    assert fusion.n_components == 3
    assert fusion.labels[0][0] == fusion.labels[0][1]
    assert fusion.contributions.max() == 2


def test_over_fitted_mixtures_of_many_silos_give_the_right_size():
    rng = np.random.default_rng(3)
    centres = np.array([[0.0, 0.0, 0.0], [7.0, 0.0, 0.0], [0.0, 7.0, 0.0], [0.0, 0.0, 7.0]])
    models = {}
    for j in range(8):
        chosen = rng.permutation(4)[:3]
        x = centres[rng.choice(chosen, size=400)] + rng.normal(size=(400, 3))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = BayesianGaussianMixture(n_components=7, max_iter=300, random_state=j)
            models[f"site-{j}"] = model.fit(x)
    assert kf.fuse(models).n_components == 4


def fitted(x, n_components, seed=0, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = BayesianGaussianMixture(
            n_components=n_components, random_state=seed, max_iter=300, **settings
        )
        return model.fit(x)


def test_copies_of_a_mixture_in_many_dimensions_stay_what_they_are():
    x = load_wine().data
    model = fitted((x - x.mean(axis=0)) / x.std(axis=0), 3)
    assert kf.fuse([model, model]).n_components == 3


@pytest.mark.parametrize("covariance", ["full", "diag", "spherical", "tied"])
def test_distant_clusters_stay_apart_where_data_are_few(covariance):
    rng = np.random.default_rng(0)
    dim, sees = 20, ([0, 1], [1, 2, 3], [0, 3])
    centres = rng.normal(size=(4, dim)) * 12 / np.sqrt(2 * dim)  # about twelve deviations apart
    models = [
        fitted(
            centres[rng.choice(kinds, 400)] + rng.normal(size=(400, dim)),
            len(kinds),
            covariance_type=covariance,
        )
        for kinds in sees
    ]
    assert kf.fuse(models).n_components == 4


@pytest.mark.parametrize("covariance", ["full", "diag", "spherical", "tied"])
@pytest.mark.parametrize("n_components", [5, 15])
def test_too_many_local_components_of_every_covariance_type(covariance, n_components):
    rng = np.random.default_rng(1)
    kinds = np.array([[-6.0, 0.0], [0.0, 6.0], [6.0, 0.0], [0.0, -6.0]])
    models = [
        fitted(
            kinds[rng.choice(sees, 300)] + rng.normal(size=(300, 2)),
            n_components,
            covariance_type=covariance,
        )
        for sees in ([0, 1], [1, 2], [0, 2, 3])
    ]
    assert kf.fuse(models).n_components == 4


@pytest.mark.parametrize("dim", [2, 4])
def test_clusters_that_overlap_a_little_stay_what_they_are(dim):
    rng = np.random.default_rng(0)
    centres = np.zeros((3, dim))
    centres[1, 0], centres[2, 1] = 3.6, 12.0
    x = np.concatenate([centre + rng.normal(size=(300, dim)) for centre in centres])
    model = BayesianGaussianMixture(n_components=3, n_init=3, max_iter=500, random_state=0).fit(x)
    fusion = kf.fuse([kf.extract(model, name=name) for name in "abc"])
    assert fusion.n_components == 3


@pytest.mark.parametrize("dim", [10, 20])
@pytest.mark.parametrize("covariance", ["full", "tied", "diag"])
def test_a_wide_prior_does_not_put_distant_clusters_together(dim, covariance):
    """scikit-learn's prior is as wide as all data: one far cluster widens every component."""
    rng = np.random.default_rng(0)
    centres = np.zeros((3, dim))
    centres[1, 0], centres[2, 0] = 10.0, 60.0
    models = [
        fitted(
            centres[rng.choice(3, 500)] + rng.normal(size=(500, dim)), 3, covariance_type=covariance
        )
        for _ in range(3)
    ]
    fusion = kf.fuse(models)
    assert fusion.n_merged_within_silos == 0
    means = fusion.posterior.params()["mean"][:, 0]
    np.testing.assert_allclose(np.sort(means), [0.0, 10.0, 60.0], atol=0.5)


@pytest.mark.slow
def test_chips_of_clusters_in_many_dimensions_are_put_back():
    """Thirty observations tell no covariance of twenty columns, but they do tell where they are."""
    rng = np.random.default_rng(0)
    centres = np.zeros((3, 20))
    centres[1, 0] = centres[2, 1] = 15.0
    models = [
        fitted(centres[rng.choice(3, 1000)] + rng.normal(size=(1000, 20)), 6, seed=j)
        for j in range(3)
    ]
    fusion = kf.fuse(models)
    assert fusion.n_components == 3
    assert fusion.n_merged_within_silos > 0


@pytest.mark.parametrize("dim", [1, 3])
def test_halves_of_clusters_of_thousands_are_put_together(dim):
    """An over-fitted GaussianMixture cuts clusters in two of different width."""
    rng = np.random.default_rng(0)
    centres = 12.0 * np.arange(3)[:, None] * np.ones(dim)
    silos = []
    for j in range(4):
        x = centres[rng.integers(3, size=2_000)] + rng.normal(size=(2_000, dim))
        model = GaussianMixture(n_components=5, n_init=2, max_iter=300, random_state=j).fit(x)
        silos.append(kf.extract(model, name=f"s{j}", n_observations=2_000))
    assert kf.fuse(silos).n_components == 3


def test_a_narrow_cluster_inside_a_wide_one_stays():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(2_000, 2)), 0.1 * rng.normal(size=(2_000, 2))])
    model = GaussianMixture(n_components=2, n_init=3, random_state=0).fit(x)
    fusion = kf.fuse([kf.extract(model, name=name, n_observations=4_000) for name in "abc"])
    assert fusion.n_components == 2


def test_a_merge_recomputes_only_its_own_pairs(monkeypatch):
    """One silo with many overlapping components takes quadratic time, not cubic."""
    rng, n = np.random.default_rng(0), 60
    family = kf.families.NormalWishart(2)
    kappa = np.full(n, 100.0)
    scatter = (kappa + 2.0)[:, None, None] * np.eye(2)
    natural = family.natural(0.3 * rng.normal(size=(n, 2)), kappa, scatter, kappa + 2.0)
    prior = family.natural([[0.0, 0.0]], [1.0], 2.0 * np.eye(2)[None], [2.0])[0]
    silo = kf.Posterior(family, natural, prior=prior, counts=kappa - 1.0)
    compared, gain_of_one = [], cleaning.gain_of_one

    def counted(family, prior, natural, counts, a, *rest):
        compared.append(len(a))
        return gain_of_one(family, prior, natural, counts, a, *rest)

    monkeypatch.setattr(cleaning, "gain_of_one", counted)
    groups = cleaning.merge_splits(silo, np.arange(n))
    assert len(groups) < n / 2
    assert sum(compared) <= n * (n - 1)


def test_priors_that_follow_the_data_do_not_split_components():
    """Six kinds of rows, of which each of a hundred small silos has two."""
    rng = np.random.default_rng(2)
    kinds, models = 8.0 * rng.normal(size=(6, 3)), {}
    for j in range(100):
        own = np.repeat(rng.choice(6, 2, replace=False), 20)
        mixture = BayesianGaussianMixture(n_components=2, covariance_type="diag", random_state=0)
        models[f"{j}"] = mixture.fit(kinds[own] + rng.normal(size=(40, 3)))
    assert kf.fuse(models).n_components == 6


@pytest.mark.parametrize("entries", [1, 30, 1 << 20])
def test_silos_that_have_splits_are_those_whose_components_merge(entries, monkeypatch):
    monkeypatch.setattr(cleaning, "BLOCK_ENTRIES", entries)
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(90, 2)), rng.normal([9.0, 0.0], size=(80, 2))
    silos = [
        from_data(x[:40], x[40:], y),
        from_data(x, y),
        replace(from_data(x[:40], x[40:]), prior=None),
        from_data(x),
        from_data(y[:30], x, y[30:]),
    ]
    rows = [np.arange(silo.n_components) for silo in silos]
    found = split_silos(silos, rows)
    fewer = [len(groups_of(silo)) < silo.n_components for silo in silos]
    assert fewer == [True, False, False, False, True]
    assert found.tolist() == (fewer if entries > 1 else [True, True, False, False, True])


@pytest.mark.parametrize("kind", ["normal-wishart", "normal-gamma", "isotropic-normal-gamma"])
def test_priors_that_say_more_than_posteriors_are_no_error(kind):
    case = next(case for case in CASES if case.family.name == kind)
    natural = case.draw(np.random.default_rng(0), 4)
    prior = 3.0 * natural[:1]
    found, new = case.family.with_empirical_prior(
        natural, prior, np.zeros(4, dtype=np.intp), np.array([False])
    )
    assert case.family.inside(found).all()
    assert case.family.inside(new).all()


def test_components_that_would_leave_the_family_stay_two():
    """Their prior says more than they do, so that both without one of it are no distribution."""
    natural = NW.natural(
        np.array([[0.0, 0.0], [0.1, 0.0]]), [100.0] * 2, [30.0 * np.eye(2)] * 2, [102.0] * 2
    )
    prior = NW.natural([[0.0, 0.0]], [1.0], [100.0 * np.eye(2)], [2.0])[0]
    silo = kf.Posterior(NW, natural, prior=prior, counts=np.array([99.0, 99.0]))
    assert not NW.in_domain(merged(silo, [np.arange(2)]))
    assert grouped(silo) == [[0], [1]]


def test_empty_components_are_left_out_without_counts_too():
    """Means known by two observations among hundreds are those of empty components."""
    family, rng = kf.families.NormalWishart(5), np.random.default_rng(0)
    centres = 5.0 * rng.normal(size=(3, 5))
    silos = []
    for j in range(8):
        n = np.array([150.0, 100.0, 120.0, 2.0])
        mean = np.vstack([centres + 0.1 * rng.normal(size=(3, 5)), centres.mean(axis=0)])
        natural = family.natural(mean, n, n[:, None, None] * np.eye(5), n + 5.0)
        silos.append(kf.Posterior(family, natural, name=f"{j}"))
    fusion = kf.fuse(silos)
    assert fusion.n_components == 3
    assert {k for found in fusion.unmatched.values() for k in found} == {3}
    assert set(fusion.unmatched["0"].values()) == {EMPTY}
    assert with_data(silos[0]).tolist() == [0, 1, 2]
