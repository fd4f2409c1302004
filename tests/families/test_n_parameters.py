"""Two samples of one distribution differ by half a nat per parameter, on average."""

from __future__ import annotations

import numpy as np
import pytest

from klfusion.families import (
    Beta,
    Categorical,
    Dirichlet,
    Gamma,
    InverseGamma,
    IsotropicNormalGamma,
    NormalGamma,
    NormalWishart,
    Product,
    Wishart,
)
from klfusion.objective.problem import FusionProblem

N = 400  # observations of a sample
PAIRS = 400


def normal_wishart(rng):
    x = rng.normal(size=(N, 2))
    away = x - x.mean(axis=0)
    return NormalWishart(2).natural([x.mean(axis=0)], [N], [away.T @ away], [N])


def normal_gamma(rng):
    x = rng.normal(size=(N, 2))
    return NormalGamma(2).natural([x.mean(axis=0)], [N], [N / 2], [N * x.var(axis=0) / 2])


def isotropic(rng):
    x = rng.normal(size=(N, 3))
    rate = N * x.var(axis=0).sum() / 2
    return IsotropicNormalGamma(3).natural([x.mean(axis=0)], [N], [3 * N / 2], [rate])


def wishart(rng):
    x = rng.normal(size=(N, 3))
    return Wishart(3).natural([x.T @ x], [N])


def gamma(rng):
    return Gamma(2).natural([rng.poisson(4.0, size=(N, 2)).sum(axis=0)], [[N, N]])


def inverse_gamma(rng):
    return InverseGamma().natural([N / 2], [np.square(rng.normal(size=N)).sum() / 2])


def beta(rng):
    heads = rng.binomial(N, 0.3, size=2)
    return Beta(2).natural([heads], [N - heads])


def dirichlet(rng):
    return Dirichlet(4).natural([rng.multinomial(N, [0.4, 0.3, 0.2, 0.1]) + 1e-6])


SAMPLES = {
    NormalWishart(2): (normal_wishart, 5),
    NormalGamma(2): (normal_gamma, 4),
    IsotropicNormalGamma(3): (isotropic, 4),
    Wishart(3): (wishart, 6),
    Gamma(2): (gamma, 2),
    InverseGamma(): (inverse_gamma, 1),
    Beta(2): (beta, 2),
    Dirichlet(4): (dirichlet, 3),
}


@pytest.mark.parametrize("family", SAMPLES, ids=str)
def test_chance_is_half_a_nat_per_parameter(family):
    draw, expected = SAMPLES[family]
    rng = np.random.default_rng(0)
    found, chance = [], []
    for _ in range(PAIRS):
        natural = np.concatenate([draw(rng), draw(rng)])
        problem = FusionProblem(family, natural, np.arange(2), np.ones(2))
        total = family.effective_size(natural).sum()
        gap = problem.per_observation().divergence(np.zeros(2, dtype=np.intp), 1)
        found.append(total * gap)
        chance.append(total * problem.chance_per_observation().min())
    error = np.std(found) / np.sqrt(PAIRS)
    assert np.mean(chance) == pytest.approx(0.5 * expected, rel=0.02)
    if not isinstance(family, Dirichlet):  # the rarest outcome is taken for what the prior adds
        assert abs(np.mean(found) - 0.5 * expected) < 4.0 * error


def test_products_and_plain_distributions():
    assert Categorical(4).n_parameters(np.zeros((2, 4))).tolist() == [3.0, 3.0]
    family = Product(rate=Gamma(2), shape=Wishart(2))
    assert family.n_parameters(np.ones((1, family.size))).tolist() == [5.0]
