"""The default on simulated mixtures (appendix A of the paper) and units, on seeds of their own."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import klfusion as kf
from benchmarks.silos import mixture_silos
from experiments import sizes
from experiments.simulation import Simulation, fit_mixture, hausdorff, simulate


@pytest.mark.slow
@pytest.mark.parametrize("separation", [0.25, 2.0])
def test_right_size_and_place(separation):
    rng = np.random.default_rng([2024, int(100 * separation)])
    silos = simulate(Simulation(separation=separation, n_silos=25), rng)
    models = {
        f"silo-{j}": fit_mixture(x, len(components), seed=0, n_init=8)
        for j, (x, components) in enumerate(zip(silos.data, silos.components, strict=True))
    }
    fusion = kf.fuse(models)
    assert fusion.n_components == len(silos.means)
    assert hausdorff(fusion.posterior.params()["mean"], silos.means) < 1.5
    predicted = fusion.model().predict(np.concatenate(silos.data))
    assert adjusted_rand_score(np.concatenate(silos.points), predicted) > 0.6


@pytest.mark.parametrize(("n_silos", "n_true"), [(20, 60), (50, 100)])
def test_many_components_that_seldom_meet(n_silos, n_true):
    rng = np.random.default_rng([2025, n_silos])
    silos, truth = mixture_silos(n_silos, rng, n_true=n_true)
    fusion = kf.fuse(silos)
    size = len(np.unique(truth))
    assert abs(fusion.n_components - size) <= 0.05 * size
    assert adjusted_rand_score(truth, np.concatenate(fusion.labels)) > 0.95


def test_two_silos_that_vary_much_share_units():
    scores = []
    for seed in range(6):
        silos, truth = sizes.neurons(np.random.default_rng([2026, seed]), n_silos=2, noise=1.6)
        scores.append(adjusted_rand_score(truth, np.concatenate(kf.fuse(silos).labels)))
    assert np.mean(scores) > 0.8


@pytest.mark.parametrize("n_silos", [2, 3, 20])
def test_silos_that_share_nothing_stay_apart(n_silos):
    family = kf.families.DiagonalNormal(100)
    kept = []
    for seed in range(4):
        rng = np.random.default_rng([2027, seed])
        means = rng.normal(size=(n_silos, 8, 100))
        silos = [
            kf.Posterior(family, family.natural(mean, np.full_like(mean, 0.1)), name=f"silo-{j}")
            for j, mean in enumerate(means)
        ]
        kept.append(kf.fuse(silos).n_components / (8 * n_silos))
    assert np.mean(kept) > 0.75


@pytest.mark.parametrize("n_silos", [2, 3, 5])
def test_few_silos_that_share_one_cluster_of_four(n_silos):
    family, right = kf.families.NormalWishart(2), []
    for seed in range(8):
        rng = np.random.default_rng([2028, n_silos, seed])
        grid = np.stack(np.meshgrid(np.arange(5), np.arange(5)), axis=-1).reshape(-1, 2)
        centres = 12.0 * rng.permutation(grid) + rng.uniform(-3.0, 3.0, size=grid.shape)
        silos = []
        for j in range(n_silos):
            own = centres[[0, *range(1 + 3 * j, 4 + 3 * j)]] + 0.1 * rng.normal(size=(4, 2))
            spread = np.tile(75.0 * np.eye(2), (4, 1, 1))
            natural = family.natural(own, np.full(4, 75.0), spread, np.full(4, 77.0))
            silos.append(kf.Posterior(family, natural, name=f"silo-{j}"))
        right.append(kf.fuse(silos).n_components == 1 + 3 * n_silos)
    assert np.mean(right) > 0.8
