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
