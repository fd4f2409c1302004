"""Densities against SciPy's: the base measure cancels from ratios at the same point."""

import numpy as np
import pytest
from scipy import stats

from tests.families.cases import CASES, every_case

from .sampling import sample, statistics

POINTS = 5


def normal(x, mean, covariance):
    return stats.multivariate_normal.logpdf(x["value"], mean, covariance)


def diagonal_normal(x, mean, variance):
    return stats.norm.logpdf(x["value"], mean, np.sqrt(variance)).sum(axis=-1)


def wishart_at(precision, scale_inv, dof):
    scale = np.linalg.inv(scale_inv)
    return np.array([stats.wishart.logpdf(p, dof, 0.5 * (scale + scale.T)) for p in precision])


def wishart(x, scale_inv, dof):
    return wishart_at(x["precision"], scale_inv, dof)


def normal_wishart(x, mean, kappa, scale_inv, dof):
    of_mean = [
        stats.multivariate_normal.logpdf(mu, mean, np.linalg.inv(kappa * precision))
        for mu, precision in zip(x["mean"], x["precision"], strict=True)
    ]
    return np.array(of_mean) + wishart_at(x["precision"], scale_inv, dof)


def normal_gamma(x, mean, kappa, shape, rate):
    tau = x["precision"]
    of_mean = stats.norm.logpdf(x["mean"], mean, 1 / np.sqrt(kappa * tau))
    return (of_mean + stats.gamma.logpdf(tau, shape, scale=1 / rate)).sum(axis=-1)


def isotropic_normal_gamma(x, mean, kappa, shape, rate):
    tau = x["precision"]
    of_mean = stats.norm.logpdf(x["mean"], mean, 1 / np.sqrt(kappa * tau)[:, None]).sum(axis=-1)
    return of_mean + stats.gamma.logpdf(tau, shape, scale=1 / rate)


def dirichlet(x, concentration):
    # SciPy wants sums of exactly one, to its tolerance, and points in columns.
    return stats.dirichlet.logpdf(x["probability"].T, concentration)


def beta(x, a, b):
    return stats.beta.logpdf(x["probability"], a, b).sum(axis=-1)


def gamma(x, shape, rate):
    return stats.gamma.logpdf(x["rate"], shape, scale=1 / rate).sum(axis=-1)


def inverse_gamma(x, shape, scale):
    return stats.invgamma.logpdf(x["variance"], shape, scale=scale).sum(axis=-1)


def categorical(x, probability):
    values = np.arange(len(probability))
    return stats.rv_discrete(values=(values, probability)).logpmf(x["value"])


ORACLES = {
    "beta": beta,
    "categorical": categorical,
    "diagonal-normal": diagonal_normal,
    "dirichlet": dirichlet,
    "gamma": gamma,
    "inverse-gamma": inverse_gamma,
    "isotropic-normal-gamma": isotropic_normal_gamma,
    "normal": normal,
    "normal-gamma": normal_gamma,
    "normal-wishart": normal_wishart,
    "wishart": wishart,
}


def scipy_log_density(family, x, params):
    """SciPy's log-density at points ``x`` under one distribution; a Product's factors add up."""
    if family.name != "product":
        return ORACLES[family.name](x, **params)
    total = 0.0
    for name, factor in family.factors:
        at, given = (
            {k.removeprefix(f"{name}."): v for k, v in d.items() if k.startswith(f"{name}.")}
            for d in (x, params)
        )
        total = total + scipy_log_density(factor, at, given)
    return total


@every_case
def test_log_density_ratios(case):
    family, rng = case.family, np.random.default_rng(0)
    if family.name == "dirichlet" and family.dim == 1:
        pytest.skip("SciPy refuses a Dirichlet of one dimension; its density is constant")
    natural = case.draw(rng, 4)
    params = family.params(natural)
    log_partition = family.log_partition(natural)
    for i in range(4):
        draws = sample(family, natural[i : i + 1], POINTS, rng)
        ours = (statistics(family, draws)[:, 0] @ natural.T) - log_partition
        x = {key: value[:, 0] for key, value in draws.items()}
        theirs = np.stack(
            [
                scipy_log_density(family, x, {key: value[j] for key, value in params.items()})
                for j in range(4)
            ],
            axis=1,
        )
        np.testing.assert_allclose(ours - ours[:, :1], theirs - theirs[:, :1], rtol=1e-9, atol=1e-9)


def test_every_family_has_an_oracle():
    assert {case.family.name for case in CASES} - {"product"} == set(ORACLES), (
        "add SciPy's density of the new family, or say here that SciPy has none"
    )


@pytest.mark.parametrize("name", ["beta", "dirichlet", "gamma", "normal", "diagonal-normal"])
def test_entropy(name):
    """``-E[log q]`` also fixes the constant of the log-partition, where ``h`` is simple."""
    case = next(c for c in CASES if c.family.name == name and c.family.dim > 1)
    family = case.family
    natural = case.draw(np.random.default_rng(5), 1)
    p = {key: value[0] for key, value in family.params(natural).items()}
    mean = family.mean(natural)
    # E[log h]: the sum of -E[log x], and of -E[log(1 - x)], where densities have x^(a - 1).
    log_h = {
        "beta": -mean.sum(),
        "dirichlet": -mean.sum(),
        "gamma": -mean[0, : family.dim].sum() if name == "gamma" else 0.0,
    }.get(name, 0.0)
    entropy = family.log_partition(natural)[0] - (natural @ mean[0])[0] - log_h
    expected = {
        "beta": lambda: stats.beta(p["a"], p["b"]).entropy().sum(),
        "dirichlet": lambda: stats.dirichlet(p["concentration"]).entropy(),
        "gamma": lambda: stats.gamma(p["shape"], scale=1 / p["rate"]).entropy().sum(),
        "normal": lambda: stats.multivariate_normal(p["mean"], p["covariance"]).entropy(),
        "diagonal-normal": lambda: stats.norm(p["mean"], np.sqrt(p["variance"])).entropy().sum(),
    }[name]()
    assert entropy == pytest.approx(expected, rel=1e-9)
