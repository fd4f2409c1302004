"""Random-effects pooling: between the precision-weighted and the plain average, as silos vary."""

from __future__ import annotations

import numpy as np
import pytest

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
    for seed in range(20):
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
        kf.fuse(posteriors, pooling="product")
    family = kf.families.Gamma()
    rates = [kf.Posterior(family, family.natural([2.0], [1.0]), name=n) for n in "ab"]
    with pytest.raises(kf.KLFusionError, match="does not say how uncertain its location is"):
        kf.fuse(rates, pooling="random-effects")
