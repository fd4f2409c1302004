"""The baselines: the arguments of `fuse`, correct clusters, clear errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import klfusion as kf
from klfusion.errors import IncompatibleSilosError
from tests.helpers.silos import normal_wishart_silos, rate_silos


def spread_silos(seed=0, n_silos=12):
    """Normal posteriors with means far apart relative to their noise."""
    rng = np.random.default_rng(seed)
    family = kf.families.DiagonalNormal(6)
    centres = rng.normal(scale=5.0, size=(5, 6))
    silos, truth = [], []
    for j in range(n_silos):
        chosen = rng.permutation(5)[: rng.integers(2, 6)]
        mean = centres[chosen] + rng.normal(scale=0.2, size=(len(chosen), 6))
        natural = family.natural(mean=mean, variance=np.full(mean.shape, 0.01))
        silos.append(kf.Posterior(family, natural, name=f"silo-{j}"))
        truth.append(chosen)
    return silos, truth, centres


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("method", [kf.baselines.spahm, kf.baselines.dp_clustering])
def test_separated_points_are_found(method, seed):
    silos, truth, centres = spread_silos(seed)
    fusion = method(silos)
    assert adjusted_rand_score(np.concatenate(truth), np.concatenate(fusion.labels)) > 0.99
    distance = np.linalg.norm(fusion.posterior.params()["mean"][:, None] - centres[None], axis=2)
    assert distance.min(axis=0).max() < 0.5


def test_spahm_atoms_follow_the_numbering_of_components():
    silos, _, _ = spread_silos()
    fusion = kf.baselines.spahm(silos)
    means = np.concatenate([s.params()["mean"] for s in silos])
    labels = np.concatenate(fusion.labels)
    for g, atom in enumerate(fusion.posterior.params()["mean"]):
        np.testing.assert_allclose(atom, means[labels == g].mean(axis=0), atol=0.05)


def test_spahm_keeps_components_of_a_silo_apart():
    silos, _ = normal_wishart_silos(noise=1.0)
    assert (kf.baselines.spahm(silos).contributions <= 1).all()


def test_amps_agrees_with_homogeneous_fusion_where_silos_agree():
    silo = rate_silos()[0][0]
    rng = np.random.default_rng(0)
    copies = {}
    for j in range(5):
        order = rng.permutation(silo.n_components)
        noisy = silo.natural[order] * np.exp(rng.normal(scale=0.01, size=silo.natural.shape))
        copies[f"copy-{j}"] = replace(silo, natural=noisy, counts=None)
    ours = kf.fuse(copies, method="homogeneous")
    theirs = kf.baselines.amps(copies)
    a, b = np.concatenate(ours.labels), np.concatenate(theirs.labels)
    assert adjusted_rand_score(a, b) == 1.0


def test_amps_needs_equal_sizes():
    with pytest.raises(IncompatibleSilosError, match="method 'amps': expected silos of one size"):
        kf.baselines.amps(rate_silos()[0])


@pytest.mark.parametrize("name", ["spahm", "dp_clustering"])
def test_results_are_fusions(name, tmp_path):
    silos, _ = normal_wishart_silos()
    fusion = getattr(kf.baselines, name)(silos)
    assert fusion.lower_bound <= fusion.objective
    assert fusion.posterior.family.in_domain(fusion.posterior.natural)
    kf.save(tmp_path / "baseline.safetensors", fusion)
    assert kf.load(tmp_path / "baseline.safetensors").n_components == fusion.n_components


def test_families_without_a_location_say_so():
    with pytest.raises(kf.KLFusionError, match="spahm: expected a family with location, relocated"):
        kf.baselines.spahm(rate_silos()[0])
