"""The default on the paper's simulated mixtures (appendix A), on seeds kept for this test."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import klfusion as kf
from benchmarks.silos import mixture_silos
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
