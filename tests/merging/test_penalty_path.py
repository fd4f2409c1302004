"""The path, which puts off what bounds make needless, is that of plain agglomeration."""

from itertools import combinations

import numpy as np

from klfusion._utils.arrays import merge_saving
from klfusion.merging.agglomeration import penalty_path
from klfusion.objective.clusters import Clusters
from klfusion.objective.problem import FusionProblem
from tests.families.cases import every_case


def plain_ratios(problem):
    """Of the smallest merge at every step, all pairs looked at every time."""
    clusters, ratios = Clusters(problem, np.arange(problem.n)), []
    while True:
        holds = clusters.occupied()
        meet = (holds[:, None, :] & holds[None, :, :]).any(axis=2)
        pairs = [pair for pair in combinations(range(clusters.size), 2) if not meet[pair]]
        if not pairs:
            return np.array(ratios)
        a, b = np.array(pairs).T
        increases = clusters.merge_increases(a, b)
        each = increases / merge_saving(clusters.counts[a], clusters.counts[b])
        best = int(each.argmin())
        ratios.append(each[best])
        clusters.merge(int(a[best]), int(b[best]), float(increases[best]))
        clusters.compact()


@every_case
def test_always_the_smallest_merge(case):
    rng = np.random.default_rng(3)
    n_silos, each = 5, 3
    some = case.draw(rng, each)
    # Of each component one version a silo, nearer to each other than components are.
    natural = np.concatenate(
        [0.8 * some + 0.2 * case.draw(rng, each) for _ in range(n_silos)]  # domains are convex
    )
    weights = rng.uniform(0.5, 2.0, size=len(natural))
    problem = FusionProblem(case.family, natural, np.repeat(np.arange(n_silos), each), weights)
    path = penalty_path(problem, lambda *_: None)
    expected = plain_ratios(problem)
    assert len(path.ratios) == len(expected)
    np.testing.assert_allclose(path.ratios, expected, rtol=1e-6, atol=1e-9)
