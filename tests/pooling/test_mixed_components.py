"""Observations of mixed components count in the weights of the global mixture."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import klfusion as kf
from klfusion.families import Gamma, IsotropicNormalGamma, NormalGamma, NormalWishart
from klfusion.pooling.mixed_components import observations_of_mixed
from klfusion.posteriors.structure import Structure

MEANS = np.array([[-6.0, 0.0, 0.0], [6.0, 0.0, 0.0], [0.0, 8.0, 0.0]])
FAMILIES = [NormalWishart(3), NormalGamma(3), IsotropicNormalGamma(3)]


def natural(family, mean, covariance, n):
    """Of so many observations of these moments, under a weak prior."""
    if not isinstance(family, NormalWishart):
        covariance = np.stack([np.diag(own) for own in covariance])
    if isinstance(family, IsotropicNormalGamma):
        covariance = np.repeat(covariance.mean(axis=1, keepdims=True), 3, axis=1)
    prior = family.observed(np.zeros((1, 3)), np.ones_like(covariance[:1]), np.full(1, 6.0))
    return prior + family.observed(mean, covariance, n)


def of_shares(family, share):
    """A component with the moments of a mixture of the global ones."""
    mean = share @ MEANS
    apart = MEANS - mean
    covariance = np.eye(3) + (apart.T * share) @ apart
    return natural(family, mean[None], covariance[None], np.array([1e4]))


def global_components(family):
    return natural(family, MEANS, np.stack([np.eye(3)] * 3), np.full(3, 1e4))


def silo(family, rows, counts, name="a"):
    arrays = {"counts": np.asarray(counts, dtype=float), "weight_prior": np.asarray(0.1)}
    structure = Structure("mixture", arrays, {})
    return kf.Posterior(family, rows, name=name, counts=arrays["counts"], structure=structure)


@pytest.mark.parametrize("family", FAMILIES, ids=str)
@pytest.mark.parametrize(
    "share", [[0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [0.0, 0.0, 1.0], [0.7, 0.0, 0.3]]
)
def test_shares_are_those_of_which_a_component_is_a_mixture(family, share):
    share = np.array(share)
    own = silo(family, of_shares(family, share), [200.0])
    found = observations_of_mixed([own], [np.array([0])], global_components(family))
    np.testing.assert_allclose(found, 200.0 * share, atol=6.0)


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_all_observations_of_mixed_components_count_and_no_others(family):
    rows = np.concatenate([global_components(family), of_shares(family, np.array([0.7, 0.3, 0.0]))])
    silos = [silo(family, rows, [10, 20, 30, 40], name) for name in "ab"]
    mixed = [np.array([3]), np.array([], dtype=int)]
    found = observations_of_mixed(silos, mixed, global_components(family))
    assert found.sum() == pytest.approx(40.0)
    none = observations_of_mixed(silos, mixed[1:] * 2, global_components(family))
    assert (none == 0).all()


def test_shares_of_three():
    family, share = NormalWishart(3), np.array([0.1, 0.6, 0.3])
    own = silo(family, of_shares(family, share), [200.0])
    found = observations_of_mixed([own], [np.array([0])], global_components(family))
    np.testing.assert_allclose(found, 200.0 * share, atol=1.0)


def test_units_do_not_matter():
    family, share = NormalWishart(3), np.array([0.25, 0.5, 0.25])
    own = silo(family, of_shares(family, share), [100.0])
    found = observations_of_mixed([own], [np.array([0])], global_components(family))
    scale, params = np.array([1e-3, 1.0, 1e4]), dict

    def rescaled(eta):
        given = params(family.params(eta))
        given["mean"] = given["mean"] * scale + 7.0
        given["scale_inv"] = given["scale_inv"] * np.outer(scale, scale)
        return family.natural(**given)

    moved = replace(own, natural=rescaled(own.natural))
    again = observations_of_mixed([moved], [np.array([0])], rescaled(global_components(family)))
    np.testing.assert_allclose(again, found, atol=0.1)


def test_other_models_have_none():
    rates = Gamma()
    eta = rates.natural([30.0, 900.0], [10.0, 10.0])
    silos = [kf.Posterior(rates, eta, name="a"), silo(rates, eta, [5, 5], "b")]
    assert (observations_of_mixed(silos, [np.array([1])] * 2, eta) == 0).all()


def silos_of_which_some_mix(n_silos=12):
    """Three clusters in each silo; every third describes the first two by one component."""
    rng, family = np.random.default_rng(0), NormalWishart(3)
    silos = []
    for j in range(n_silos):
        mean = MEANS + 0.05 * rng.normal(size=MEANS.shape)
        own = natural(family, mean, np.stack([np.eye(3)] * 3), np.full(3, 200.0))
        counts = [200.0, 200.0, 200.0]
        if j % 3 == 0:
            both = of_shares(family, np.array([0.75, 0.25, 0.0])) * 0.04
            own, counts = np.concatenate([both, own[2:]]), [400.0, 200.0]
        silos.append(silo(family, own, counts, f"silo-{j}"))
    return silos


def counts_of(fusion):
    """Observations of each global component, in the order of the clusters."""
    mean = fusion.posterior.params()["mean"]
    order = np.linalg.norm(mean[None] - MEANS[:, None], axis=2).argmin(axis=1)
    return fusion.posterior.structure.arrays["counts"][order]


def test_weights_of_a_fused_mixture_have_all_observations():
    fusion = kf.fuse(silos_of_which_some_mix())
    assert fusion.n_components == 3
    assert fusion.n_unmatched == 4
    expected = [8 * 200 + 4 * 300, 8 * 200 + 4 * 100, 12 * 200]
    np.testing.assert_allclose(counts_of(fusion), expected, rtol=0.02)
    assert fusion.posterior.counts.sum() == 8 * 600 + 4 * 200  # behind the parameters


def test_robust_weights_are_those_of_matched_components():
    fusion = kf.fuse(silos_of_which_some_mix(), pooling="robust")
    assert fusion.n_unmatched == 4
    np.testing.assert_allclose(counts_of(fusion), [1600, 1600, 2400], rtol=0.02)


def test_removing_and_adding_a_silo_with_a_mixed_component():
    silos = silos_of_which_some_mix()
    fusion = kf.fuse(silos)
    without = fusion.remove("silo-0")
    np.testing.assert_allclose(counts_of(without), counts_of(fusion) - [300, 100, 200], rtol=0.02)


def test_components_without_support_count_for_nothing():
    silos = silos_of_which_some_mix()
    family = silos[1].family
    far = natural(family, np.full((1, 3), 40.0), np.eye(3)[None], np.array([200.0]))
    silos[1] = silo(family, np.concatenate([silos[1].natural, far]), [200] * 4, "silo-1")
    fusion = kf.fuse(silos)
    kept = fusion.with_min_support(2)
    assert (fusion.n_components, kept.n_components) == (4, 3)
    np.testing.assert_allclose(counts_of(kept), counts_of(kf.fuse(silos_of_which_some_mix())))


def test_from_files_as_in_memory(tmp_path):
    silos, paths = silos_of_which_some_mix(), {}
    for one in silos:
        paths[one.name] = tmp_path / f"{one.name}.safetensors"
        kf.save(paths[one.name], one)
    here = kf.fuse(silos, pooling="average")
    for support in (1, 2):
        there = kf.fuse_files(paths, memory_limit="64MB", min_support=support)
        np.testing.assert_allclose(counts_of(there), counts_of(here), rtol=1e-6)
        assert there.unmatched == here.unmatched
