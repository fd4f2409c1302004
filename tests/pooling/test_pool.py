"""Pooling: the pooled data's posterior where silos agree, and random effects where they vary."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm
from scipy.stats import t as student

import klfusion as kf


def silos(variation, seed=0, n_silos=40, family=None):
    """One Normal component a silo, known to very different precision, around zero."""
    rng = np.random.default_rng(seed)
    family = family or kf.families.DiagonalNormal(3)
    variance = rng.choice([0.001, 1.0], size=(n_silos, 1)) * np.ones((n_silos, 3))
    mean = rng.normal(scale=np.sqrt(variance + variation**2))
    if isinstance(family, kf.families.Normal):
        variance = variance[:, :, None] * np.eye(3)
        naturals = [family.natural(m[None], v[None]) for m, v in zip(mean, variance, strict=True)]
    else:
        naturals = [family.natural(m[None], v[None]) for m, v in zip(mean, variance, strict=True)]
    return [kf.Posterior(family, eta, name=str(j)) for j, eta in enumerate(naturals)], mean


def error(pooling, variation):
    """Root mean square distance from the true centre over repetitions."""
    squares = []
    for seed in range(10):
        posteriors, _ = silos(variation, seed)
        fusion = kf.fuse(posteriors, n_components=1, pooling=pooling)
        squares.append(np.square(fusion.posterior.params()["mean"]).mean())
    return float(np.sqrt(np.mean(squares)))


def test_precision_decides_where_silos_agree():
    assert error("random-effects", 0.0) <= 1.1 * error("average", 0.0)


@pytest.mark.parametrize("variation", [0.5, 2.0])
def test_precision_misleads_where_silos_vary(variation):
    assert error("random-effects", variation) < 0.95 * error("average", variation)


def test_large_variation_gives_the_plain_mean():
    posteriors, mean = silos(50.0)
    fusion = kf.fuse(posteriors, n_components=1, pooling="random-effects")
    np.testing.assert_allclose(fusion.posterior.params()["mean"][0], mean.mean(axis=0), atol=0.1)


def test_full_and_diagonal_covariances_agree():
    full, _ = silos(0.5, family=kf.families.Normal(3))
    diagonal, _ = silos(0.5)
    np.testing.assert_allclose(
        *(
            kf.fuse(s, n_components=1, pooling="random-effects").posterior.params()["mean"]
            for s in (full, diagonal)
        ),
        atol=1e-8,
    )


def test_wrong_names_and_families_are_told():
    posteriors, _ = silos(0.5)
    with pytest.raises(kf.KLFusionError, match="expected pooling to be one of"):
        kf.fuse(posteriors, pooling="magic")
    family = kf.families.Gamma()
    rates = [kf.Posterior(family, family.natural([2.0], [1.0]), name=n) for n in "ab"]
    with pytest.raises(kf.KLFusionError, match=r"pooling 'random-effects' is for .* got Gamma"):
        kf.fuse(rates, pooling="random-effects")
    with pytest.raises(kf.KLFusionError, match="silo 'a': pooling 'product' counts the prior once"):
        kf.fuse(rates, pooling="product")


# The posterior of the pooled data ---------------------------------------------------------------


def conjugate(data, prior, name="silo"):
    """Normal-Wishart posterior of one Gaussian: prior plus statistics."""
    family = kf.families.NormalWishart(data.shape[1])
    n = len(data)
    scatter = (data - data.mean(axis=0)).T @ (data - data.mean(axis=0))
    # The statistics as if there were no prior; shifted degrees of freedom keep it in the domain.
    shift = family.natural(data.mean(axis=0)[None], [n], scatter[None], [n + family.dim])[0]
    shift[-1] = n
    return kf.Posterior(family, (prior + shift)[None], name=name, prior=prior, counts=[n])


def prior_at(mean, kappa=1.0, dim=2):
    family = kf.families.NormalWishart(dim)
    return family.natural(np.full((1, dim), mean), [kappa], np.eye(dim)[None], [dim + 2.0])[0]


def test_product_is_the_pooled_posterior():
    rng = np.random.default_rng(0)
    data = [rng.normal(size=(n, 2)) for n in (20, 300, 50)]
    prior = prior_at(0.5)
    posteriors = [conjugate(x, prior, str(j)) for j, x in enumerate(data)]
    fusion = kf.fuse(posteriors, n_components=1, pooling="product")
    pooled = conjugate(np.concatenate(data), prior)
    np.testing.assert_allclose(fusion.posterior.natural, pooled.natural, rtol=1e-10)


def test_each_silo_has_its_own_prior():
    rng = np.random.default_rng(1)
    data = [rng.normal(size=(n, 2)) for n in (40, 60)]
    priors = [prior_at(-1.0, 2.0), prior_at(3.0, 4.0)]
    posteriors = [conjugate(x, p, n) for x, p, n in zip(data, priors, "ab", strict=True)]
    fusion = kf.fuse(posteriors, n_components=1, pooling="product")
    pooled = conjugate(np.concatenate(data), np.mean(priors, axis=0))
    np.testing.assert_allclose(fusion.posterior.natural, pooled.natural, rtol=1e-10)
    # A weight of two is twice the data.
    twice = kf.fuse(posteriors, n_components=1, pooling="product", weights=[2.0, 1.0])
    assert twice.posterior.params()["kappa"][0] == pytest.approx(2 * 40 + 60 + (2 * 2 + 4) / 3)


def test_what_leaves_the_domain_is_named_or_keeps_some_of_the_prior():
    family = kf.families.Gamma()
    prior = family.natural([5.0], [5.0])[0]  # more than the posteriors of component 1 hold
    posteriors = [
        kf.Posterior(family, family.natural([900.0, 3.0], [10.0, 3.0]), name=name, prior=prior)
        for name in "abc"
    ]
    with pytest.raises(kf.KLFusionError, match=r"'product', component [01]: expected shape > 0"):
        kf.fuse(posteriors, n_components=2, pooling="product")
    fusion = kf.fuse(posteriors, n_components=2)
    assert fusion.settings.pooled == "product, prior counted once"
    shape = np.sort(fusion.posterior.params()["shape"].ravel())
    # Of component 1, as much of the repeated priors is taken out as leaves a distribution.
    assert 0 < shape[0] <= 10.0 / 1024
    assert shape[1] == 2700.0 - 10.0


# The default -----------------------------------------------------------------------------------


def gaussian_silos(het, n_silos=8, n_points=50, seed=0, prior=None, dim=2):
    rng = np.random.default_rng(seed)
    prior = prior_at(0.0, 0.01, dim) if prior is None else prior
    means = rng.normal(scale=het, size=(n_silos, dim))
    data = [m + rng.normal(size=(n_points, dim)) for m in means]
    return [conjugate(x, prior, str(j)) for j, x in enumerate(data)], data, prior


def test_where_silos_agree_the_default_is_the_pooled_posterior():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 2))
    silos = [conjugate(x, prior_at(0.5), name) for name in "abc"]  # they agree exactly
    fusion = kf.fuse(silos, n_components=1)
    assert fusion.settings.pooling == "auto"
    assert fusion.settings.pooled == "hierarchical, prior counted once"
    pooled = conjugate(np.concatenate([x] * 3), prior_at(0.5))
    np.testing.assert_allclose(fusion.posterior.natural, pooled.natural, rtol=1e-9)


def test_the_default_has_the_mean_of_the_pooled_data_and_less_certainty():
    silos, data, prior = gaussian_silos(1.0)
    found = kf.fuse(silos, n_components=1).posterior.params()
    pooled = conjugate(np.concatenate(data), prior).params()
    for key in ("mean", "scale_inv", "dof"):
        np.testing.assert_allclose(found[key], pooled[key], rtol=1e-8)
    # The means of eight silos vary by about one, like observations within them.
    covariance = np.trace(found["scale_inv"][0] / found["dof"][0]) / found["kappa"][0] / 2
    t_squared = (2.365 / 1.960) ** 2  # 95 % intervals of seven degrees of freedom
    assert 0.4 < covariance / (t_squared * 1.02 / 8) < 1.6
    assert found["kappa"][0] < 0.1 * pooled["kappa"][0]


@pytest.mark.parametrize("known", [True, False], ids=["prior", "no prior"])
def test_the_default_for_coefficients_is_generalised_least_squares(known):
    rng = np.random.default_rng(3)
    family = kf.families.Normal(2)
    variances = rng.uniform(0.05, 0.2, size=6)
    mean = rng.normal(scale=np.sqrt(variances + 1.0)[:, None], size=(6, 2))
    prior = family.natural(np.zeros((1, 2)), 100.0 * np.eye(2)[None])[0]
    silos = [
        kf.Posterior(
            family,
            family.natural(m[None], v * np.eye(2)[None]) + known * prior,
            name=str(j),
            prior=prior if known else None,
        )
        for j, (m, v) in enumerate(zip(mean, variances, strict=True))
    ]
    fusion = kf.fuse(silos, n_components=1)
    word = "counted once" if known else "unknown"
    assert fusion.settings.pooled == f"hierarchical, prior {word}"
    found = fusion.posterior.params()
    for k in range(2):

        def excess(t, k=k):
            w = 1.0 / (variances + t)
            centre = w @ mean[:, k] / w.sum()
            return w @ (mean[:, k] - centre) ** 2 - 5

        between = brentq(excess, 0.0, 100.0)
        precision = (1.0 / (variances + between)).sum() + 0.01 * known
        centre = (1.0 / (variances + between)) @ mean[:, k] / precision
        ratio = student.ppf(0.975, 5) / norm.ppf(0.975)
        due = between * np.square(1.0 / (variances + between)).sum() / precision**2
        wide = 1.0 / precision + (ratio**2 - 1.0) * due
        np.testing.assert_allclose(found["mean"][0, k], centre, rtol=1e-6)
        np.testing.assert_allclose(found["covariance"][0, k, k], wide, rtol=1e-6)


def test_factors_of_a_product_are_pooled_each_in_its_way():
    rng = np.random.default_rng(4)
    family = kf.families.Product(mean=kf.families.DiagonalNormal(2), rate=kf.families.Gamma(1))
    located, rates = (factor for _, factor in family.factors)
    priors = located.natural([[0.0, 0.0]], [[9.0, 9.0]]), rates.natural([1.0], [1.0])
    parts = [
        (
            located.natural(rng.normal(size=(1, 2)), [[0.1, 0.2]]),
            rates.natural([rng.uniform(20, 30)], [10.0]),
        )
        for _ in range(5)
    ]

    def fused(family, naturals, prior):
        silos = [
            kf.Posterior(family, eta, name=str(j), prior=prior[0]) for j, eta in enumerate(naturals)
        ]
        return kf.fuse(silos, n_components=1)

    both = fused(
        family, [np.concatenate(p, axis=1) for p in parts], [np.concatenate(priors, axis=1)[0]]
    )
    assert both.settings.pooled == "hierarchical and product, prior counted once"
    alone = [
        fused(f, [p[i] for p in parts], priors[i]).posterior.natural
        for i, f in enumerate((located, rates))
    ]
    np.testing.assert_allclose(both.posterior.natural, np.concatenate(alone, axis=1), rtol=1e-9)
    product = sum(p[1] for p in parts) - 4 * priors[1]
    np.testing.assert_allclose(alone[1], product)


def test_what_the_default_is_where_it_has_no_choice():
    rates = kf.families.Gamma()
    silos = [kf.Posterior(rates, rates.natural([s], [10.0]), name=str(s)) for s in (29, 30, 31)]
    fusion = kf.fuse(silos)
    assert fusion.settings.pooled == "average, prior unknown"
    np.testing.assert_allclose(fusion.posterior.natural, [[30.0, 10.0]])
    by_mean = kf.fuse(silos, method=kf.Auto(divergence="jeffreys"))
    assert by_mean.settings.pooled == "average"
    assert kf.fuse(silos, method="relaxed").settings.pooled == "average"


def test_hierarchical_is_as_uncertain_as_the_estimate():
    for variation in (0.0, 0.5, 2.0):
        within = []
        for seed in range(30):
            posteriors, _ = silos(variation, seed, n_silos=20)
            fusion = kf.fuse(posteriors, n_components=1, pooling="hierarchical")
            p = fusion.posterior.params()
            within.append(np.square(p["mean"] / np.sqrt(p["variance"])).mean())
        assert 0.6 < np.mean(within) < 1.4, variation


@pytest.mark.parametrize(
    "family",
    [
        kf.families.NormalWishart(2), kf.families.NormalGamma(2),
        kf.families.IsotropicNormalGamma(2), kf.families.Normal(2), kf.families.DiagonalNormal(2),
    ],
    ids=str,
)  # fmt: skip
def test_families_take_the_covariance_they_are_given(family):
    from tests.families.cases import case_for

    natural = case_for(family).draw(np.random.default_rng(0), 3)
    location = family.location(natural)
    own = family.location_covariance(natural)
    same = family.relocated(natural, location, own)
    np.testing.assert_allclose(same, natural, rtol=1e-8)
    wider = family.relocated(natural, location, 4.0 * own)
    np.testing.assert_allclose(family.location_covariance(wider), 4.0 * own, rtol=1e-8)
    np.testing.assert_allclose(family.location(wider), location, rtol=1e-8)
