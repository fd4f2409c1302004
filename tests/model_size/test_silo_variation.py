"""Silos that vary: what of a component can be relied on is learned with the matching."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import wishart
from sklearn.metrics import adjusted_rand_score

import klfusion as kf


def varying_silos(rng, *, noise, own_shapes, n_silos=20, size=5, dim=10, apart=2.0):
    """Silos with most components; means vary by ``noise``, and shapes are told apart or not."""
    family = kf.families.NormalWishart(dim)
    means, unit = apart * rng.normal(size=(size, dim)), np.eye(dim)
    shapes = [unit] * size
    if own_shapes:
        shapes = list(wishart.rvs(dim + 3, unit / (dim + 3), size=size, random_state=rng))
        shapes = [shape + 0.05 * unit for shape in shapes]
    silos, truth = [], []
    for j in range(n_silos):
        chosen = rng.permutation(size)[: rng.integers(2, size)]
        count = rng.integers(50, 200, size=len(chosen))
        scatter = np.stack(
            [
                wishart.rvs(n, shapes[k], random_state=rng)
                for n, k in zip(count, chosen, strict=True)
            ]
        )
        mean = rng.normal(means[chosen], noise)
        natural = family.natural(mean, count + 1.0, scatter, count + float(dim))
        silos.append(kf.Posterior(family, natural, name=f"silo-{j}"))
        truth.append(chosen)
    return silos, np.concatenate(truth)


@pytest.mark.parametrize(("noise", "own_shapes"), [(0.1, True), (2.0, True), (0.5, False)])
def test_components_are_found_though_their_means_vary(noise, own_shapes):
    rng = np.random.default_rng([2026, int(10 * noise)])
    silos, truth = varying_silos(rng, noise=noise, own_shapes=own_shapes)
    fusion = kf.fuse(silos)
    assert fusion.n_components == len(np.unique(truth))
    assert adjusted_rand_score(truth, np.concatenate(fusion.labels)) > 0.95


def test_a_change_of_silos_compares_as_the_fusion_did(tmp_path):
    rng = np.random.default_rng(2027)
    silos, truth = varying_silos(rng, noise=2.0, own_shapes=True)
    *most, last = silos
    fusion = kf.fuse(most)
    kf.save(tmp_path / "most.safetensors", fusion)
    for known in (fusion, kf.load(tmp_path / "most.safetensors")):
        whole = known.add(last)
        assert whole.n_components == len(np.unique(truth))
        assert adjusted_rand_score(truth, np.concatenate(whole.labels)) == 1.0
        assert whole.settings.variation == fusion.settings.variation


def test_files_are_compared_as_in_memory(tmp_path):
    rng = np.random.default_rng(2028)
    silos, truth = varying_silos(rng, noise=2.0, own_shapes=True)
    paths = [tmp_path / f"{silo.name}.safetensors" for silo in silos]
    for silo, path in zip(silos, paths, strict=True):
        kf.save(path, silo)
    fusion = kf.fuse_files(paths, memory_limit="100MB")
    assert fusion.n_components == len(np.unique(truth))
    assert adjusted_rand_score(truth, np.concatenate(fusion.labels)) == 1.0


def test_one_shape_for_all_is_no_reason_to_forget_the_means():
    rng = np.random.default_rng(2029)
    silos, truth = varying_silos(rng, noise=0.5, own_shapes=False, n_silos=5)
    fusion = kf.fuse(silos)
    assert adjusted_rand_score(truth, np.concatenate(fusion.labels)) == 1.0
