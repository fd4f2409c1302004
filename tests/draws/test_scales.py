"""Coefficients in units of the noise: linear regressions of sites that differ in noise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import klfusion as kf
from klfusion.draws.fused import joint_normal
from tests.helpers.draws import conjugate
from tests.helpers.loops import for_each


def test_the_fusion_is_nearer_to_the_pooled_posterior():
    errors = {True: [], False: []}
    for seed in range(3):
        rng, sites = np.random.default_rng(seed), []
        for sd in (0.8, 1.0, 1.4):  # the noise differs, the model has one
            x = np.column_stack([np.ones(40), rng.normal(size=40)])
            sites.append((x, x @ [1.0, 0.5] + sd * rng.normal(size=40)))
        pooled = conjugate(*(np.concatenate(part) for part in zip(*sites, strict=True)), rng)
        draws = [conjugate(x, y, rng) for x, y in sites]
        for scales in (None, {"beta": "sigma"}):
            silos = [kf.from_draws(own, name=f"s{k}", scales=scales) for k, own in enumerate(draws)]
            found = joint_normal(kf.fuse(silos).posterior).sample(1, 20_000, 0)["beta"][0]
            away = found.mean(axis=0) - pooled["beta"].mean(axis=(0, 1))
            errors[scales is None].append(np.abs(away / pooled["beta"].std(axis=(0, 1))).max())
    assert max(errors[False]) < 0.1
    assert np.mean(errors[True]) > 2 * np.mean(errors[False])


def fused_in_units(sites, draws, weights=None, **options):
    """Coefficients in units of the noise, with and without the number of observations."""
    out = []
    for known in (True, False):
        silos = [
            kf.from_draws(own, name=f"s{k}", scales={"beta": "sigma"},
                          n_observations=len(y) if known else None, **options)
            for k, (own, (_, y)) in enumerate(zip(draws, sites, strict=True))
        ]  # fmt: skip
        out.append(kf.fuse(silos, weights=weights))
    return out


def test_the_number_of_observations_gives_the_noise_of_the_pooled_data():
    """Sites agree within themselves, and differ in the intercept: pooled data have more noise."""
    rng, sites = np.random.default_rng(5), []
    for intercept in (-1.0, 0.0, 1.0):
        x = np.column_stack([np.ones(25), rng.normal(size=25)])
        sites.append((x, x @ [intercept, 0.5] + rng.normal(size=25)))
    pooled = conjugate(*(np.concatenate(part) for part in zip(*sites, strict=True)), rng)
    draws = [conjugate(x, y, rng) for x, y in sites]
    errors = []
    for fusion in fused_in_units(sites, draws, prior="flat"):
        found = joint_normal(fusion.posterior).sample(1, 50_000, 0)
        sigma, true = found["sigma"][0], pooled["sigma"]
        errors.append(abs(sigma.mean() - true.mean()) / true.std())
    assert errors[0] < 0.05
    assert errors[1] > 0.3


def test_the_number_of_observations_changes_no_single_silo():
    rng = np.random.default_rng(6)
    x = np.column_stack([np.ones(30), rng.normal(size=30)])
    site = (x, x @ [1.0, 0.5] + rng.normal(size=30))
    options = {
        "prior": {"beta": 3.0, "sigma": stats.halfcauchy(0, 2.5)},
        "local": ["beta[0]/sigma"],
    }
    known, plain = fused_in_units([site], [conjugate(*site, rng)], **options)
    one, two = (fusion.posterior.params() for fusion in (known, plain))
    np.testing.assert_allclose(one["mean"], two["mean"], rtol=1e-6)
    np.testing.assert_allclose(one["covariance"], two["covariance"], rtol=1e-6)
    np.testing.assert_allclose(known.site("s0").params()["mean"], plain.site("s0").params()["mean"])


def test_observations_that_cannot_be_are_left_out():
    """Noise known less well than one observation in four would give: no power of it fits."""
    rng = np.random.default_rng(7)
    x = np.column_stack([np.ones(30), rng.normal(size=30)])
    draws = conjugate(x, x @ [1.0, 0.5] + rng.normal(size=30), rng)
    many = [
        kf.from_draws(draws, name=n, scales={"beta": "sigma"}, n_observations=900) for n in "ab"
    ]
    none = [kf.from_draws(draws, name=n, scales={"beta": "sigma"}) for n in "ab"]
    both = [kf.fuse(silos).posterior.natural for silos in (many, none)]
    np.testing.assert_array_equal(*both)
    assert any("observations" in text for text in many[0].provenance["findings"])


def test_components_in_units_of_their_deviations():
    """Sites know a component by 40 rows each: nearer to the pooled posterior than by its mean."""
    rng = np.random.default_rng(8)
    dims = {"mu": ["component", "column"], "sd": ["component"]}
    centres = np.array([[0.0, 0.0], [9.0, 0.0]])
    rows = [[c + sd * rng.normal(size=(40, 2)) for c in centres] for sd in (0.8, 1.0, 1.4)]

    mu, sd = [], []
    for own in rows:
        spread = [np.square(y - y.mean(axis=0)).sum() for y in own]
        sd.append(np.stack([np.sqrt(s / rng.chisquare(77, (4, 2000))) for s in spread], axis=2))
        noise = rng.normal(size=(4, 2000, 2, 2)) * (sd[-1] / np.sqrt(40.0))[..., None]
        mu.append(np.stack([y.mean(axis=0) for y in own]) + noise)
    every = np.stack([np.concatenate([own[k] for own in rows]).mean(axis=0) for k in range(2)])
    errors = []
    for scales in (None, {"mu": "sd"}):
        silos = [
            kf.from_draws({"mu": m, "sd": s}, name=f"s{k}", dims=dims, components="component",
                          scales=scales, prior="flat")
            for k, (m, s) in enumerate(zip(mu, sd, strict=True))
        ]  # fmt: skip
        fusion = kf.fuse(silos, pooling="product")
        assert fusion.n_components == 2
        found = joint_normal(fusion.posterior).sample(1, 20_000, 0)["mu"][0]
        order = np.argsort(found.mean(axis=0)[:, 0])
        errors.append(np.abs((found.mean(axis=0)[order] - every) / found.std(axis=0)[order]).max())
    assert errors[1] < 0.1 < errors[0]
    code = fusion.as_prior("stan")
    assert "mu[2, 1] = fused[3] * sd[2];" in code


def test_priors_are_those_of_the_variables():
    rng = np.random.default_rng(1)
    x = np.column_stack([np.ones(50), rng.normal(size=50)])
    own = conjugate(x, x @ [1.0, 0.5] + rng.normal(size=50), rng)
    posterior = kf.from_draws(own, name="a", scales={"beta": "sigma"},
                              prior={"beta": 10.0, "sigma": stats.halfcauchy(0, 2.5)})  # fmt: skip
    assert posterior.structure.info["coordinates"] == ["beta[0]/sigma", "beta[1]/sigma", "1/sigma"]
    # At one silo the prior changes nothing: draws come back as they were.
    found = joint_normal(kf.fuse([posterior]).posterior).sample(4, 5000, 0)
    for key, values in own.items():
        np.testing.assert_allclose(found[key].mean((0, 1)), values.mean((0, 1)), atol=0.02)


def test_priors_as_draws_are_those_of_their_moments():
    rng = np.random.default_rng(2)
    x = np.column_stack([np.ones(50), rng.normal(size=50)])
    own = conjugate(x, x @ [1.0, 0.5] + rng.normal(size=50), rng)
    drawn = {"beta": rng.normal(0, 3.0, (50_000, 2)), "sigma": rng.lognormal(0.0, 1.0, 50_000)}
    density = {"beta": 3.0, "sigma": stats.lognorm(1.0)}
    first, second = (
        kf.from_draws(own, name="a", scales={"beta": "sigma"}, prior=prior).prior
        for prior in (drawn, density)
    )
    np.testing.assert_allclose(first, second, rtol=0.1, atol=0.05)


@for_each("options, message", [
    ({"scales": {"beta": "tau"}}, "scales: expected names of 'beta', 'sigma', got 'tau'"),
    ({"scales": {"sigma": "beta"}}, "scales: expected a real variable and a positive number"),
    ({"scales": {"beta": "sigma"}, "local": ["sigma"]}, "local: expected no scale of others"),
])  # fmt: skip
def test_bad_scales(options, message):
    rng = np.random.default_rng(0)
    own = {"beta": rng.normal(size=(2, 99, 2)), "sigma": rng.lognormal(size=(2, 99))}
    with pytest.raises(kf.KLFusionError, match=f"silo 'a': {message}"):
        kf.from_draws(own, name="a", **options)


def test_silos_agree_on_scales():
    rng = np.random.default_rng(0)
    own = {"beta": rng.normal(size=(4, 300, 2)), "sigma": rng.lognormal(0.0, 0.1, (4, 300))}
    silos = [kf.from_draws(own, name="a", scales={"beta": "sigma"}), kf.from_draws(own, name="b")]
    with pytest.raises(kf.KLFusionError, match=r"silo 'b': expected 'sigma' with support"):
        kf.fuse(silos)
