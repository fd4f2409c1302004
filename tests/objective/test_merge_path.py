"""A merge path replays its merges: sizes, objectives and labels agree."""

from __future__ import annotations

import numpy as np
import pytest

from klfusion._utils.running import silent
from klfusion.families import DiagonalNormal
from klfusion.merging.agglomeration import penalty_path
from klfusion.merging.neighbours import neighbour_path
from klfusion.objective.clusters import Clusters
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import MergePath


def problem(seed=0, n_silos=4, size=5):
    rng = np.random.default_rng(seed)
    family = DiagonalNormal(2)
    mean = np.concatenate(
        [3.0 * rng.permutation(8)[:size, None] + rng.normal(size=(size, 2)) for _ in range(n_silos)]
    )
    natural = family.natural(mean, np.full(mean.shape, 0.3))
    silo = np.repeat(np.arange(n_silos), size)
    return FusionProblem(family, natural, silo, np.ones(len(silo)))


PATHS = {
    "all pairs": lambda own: penalty_path(own, silent),
    "neighbours": lambda own: neighbour_path(own, silent),
}


@pytest.mark.parametrize("walk", PATHS)
def test_objectives_are_those_of_the_clusters_at_each_step(walk):
    own = problem()
    path = PATHS[walk](own)
    penalties = [0.0, *path.penalties]
    for steps, penalty in enumerate(penalties):
        value = Clusters(own, path.labels(steps)).objective(penalty)
        assert path.objectives[steps] == pytest.approx(value)


def test_sizes_are_those_of_the_clusters_that_merge():
    own = problem()
    path = penalty_path(own, silent)
    for step, (a, b) in enumerate(path.merges):
        labels = path.labels(step)
        expected = [(labels == labels[row]).sum() for row in (a, b)]
        assert path.sizes[step].tolist() == expected


def test_ratios_are_increases_over_savings():
    path = MergePath.of_merges(3, np.array([[0, 1], [0, 2]]), np.array([1.0, 2.0]))
    saved = [2 - np.sqrt(2), np.sqrt(2) + 1 - np.sqrt(3)]
    np.testing.assert_allclose(path.ratios, np.array([1.0, 2.0]) / saved)
    assert path.divergences.tolist() == [0.0, 1.0, 3.0]
    assert path.n_components.tolist() == [3, 2, 1]


def test_a_path_of_no_merges_has_one_size():
    path = MergePath.of_merges(4, np.empty((0, 2), dtype=int), np.empty(0))
    assert path.n_components.tolist() == [4]
    assert path.objectives.tolist() == [0.0]
    assert path.labels(0).tolist() == [0, 1, 2, 3]
