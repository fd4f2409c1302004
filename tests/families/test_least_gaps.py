"""Lower bounds of Jensen gaps are below them, and near where precisions are alike."""

import numpy as np

from klfusion.families import DiagonalNormal
from klfusion.objective.problem import FusionProblem
from tests.families.cases import every_case
from tests.helpers.loops import for_each


@every_case
@for_each("spread", [0.0, 1.0, 4.0])
def test_bounds_are_below_the_gaps(case, spread):
    rng = np.random.default_rng(0)
    natural, weights = case.draw(rng, 12, spread), rng.uniform(0.3, 3.0, size=12)
    least = case.family.least_gaps(natural, weights)
    if least is not None:
        gaps = FusionProblem(case.family, natural, np.arange(12), weights).pair_increases
        assert (least >= 0.0).all()
        assert (least <= gaps * (1.0 + 1e-9) + 1e-9).all()


def test_bounds_are_the_gaps_of_equal_precisions():
    rng, family = np.random.default_rng(1), DiagonalNormal(30)
    natural = family.natural(rng.normal(size=(9, 30)), np.tile(rng.uniform(0.1, 5.0, 30), (9, 1)))
    problem = FusionProblem(family, natural, np.arange(9), np.ones(9))
    a, b = np.triu_indices(9, k=1)
    least = family.least_gaps(natural, problem.weights)
    np.testing.assert_allclose(least[a, b], problem.pair_increases[a, b], rtol=1e-7)
