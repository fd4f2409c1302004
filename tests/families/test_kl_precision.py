"""KL is never negative, zero on equal arguments, and exact for near and badly scaled ones."""

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.special import digamma, gammaln, polygamma

from klfusion.families import (
    Beta,
    Categorical,
    DiagonalNormal,
    Dirichlet,
    Gamma,
    InverseGamma,
    Normal,
    NormalGamma,
    NormalWishart,
    Wishart,
)
from tests.families.cases import case_for, every_case
from tests.helpers.loops import for_each

# Closed forms, written so that nothing large cancels ----------------------------------------------


def stein(ratio):
    """``r - 1 - log r``, also near one."""
    excess = np.asarray(ratio) - 1.0
    series = excess**2 * (0.5 - excess / 3 + excess**2 / 4)
    return np.where(np.abs(excess) < 1e-4, series, excess - np.log1p(excess))


def kl_normal(q, p):
    shift = q["mean"] - p["mean"]
    ratios = eigh(q["covariance"], p["covariance"], eigvals_only=True)
    return 0.5 * (stein(ratios).sum() + shift @ cho_solve(cho_factor(p["covariance"]), shift))


def kl_wishart(q, p):
    dim = len(q["scale_inv"])
    halves = 0.5 * np.arange(dim)
    ratios = eigh(p["scale_inv"], q["scale_inv"], eigvals_only=True)
    a, b = 0.5 * q["dof"], 0.5 * p["dof"]
    gammas = gammaln(b - halves) - gammaln(a - halves) + (a - b) * digamma(a - halves)
    return a * stein(ratios).sum() + (a - b) * np.log(ratios).sum() + gammas.sum()


def kl_normal_wishart(q, p):
    shift, dim = q["mean"] - p["mean"], len(q["mean"])
    square = shift @ cho_solve(cho_factor(q["scale_inv"]), shift)
    of_mean = dim * stein(p["kappa"] / q["kappa"]) + p["kappa"] * q["dof"] * square
    return 0.5 * of_mean + kl_wishart(q, p)


def kl_diagonal_normal(q, p):
    square = (q["mean"] - p["mean"]) ** 2 / p["variance"]
    return 0.5 * (stein(q["variance"] / p["variance"]) + square).sum()


def kl_gamma(q, p, rate="rate"):
    a, b, ratio = q["shape"], p["shape"], p[rate] / q[rate]
    gammas = gammaln(b) - gammaln(a) + (a - b) * digamma(a)
    return (gammas + a * stein(ratio) + (a - b) * np.log(ratio)).sum()


def kl_inverse_gamma(q, p):
    return kl_gamma(q, p, "scale")


def kl_normal_gamma(q, p):
    square = p["kappa"] * q["shape"] / q["rate"] * (q["mean"] - p["mean"]) ** 2
    return 0.5 * (stein(p["kappa"] / q["kappa"]) + square).sum() + kl_gamma(q, p)


def worst_error(family, params, closed_form):
    """Largest relative error of ``family.kl`` over all pairs of distinct rows."""
    natural = family.natural(**params)
    family.check(natural)
    kl, n = family.kl(natural, natural), len(natural)
    rows = [{key: value[i] for key, value in params.items()} for i in range(n)]
    exact = np.array([[closed_form(q, p) for p in rows] for q in rows])
    assert np.all(np.diag(kl) == 0.0)
    apart = ~np.eye(n, dtype=bool)
    return np.abs(kl / np.where(apart, exact, 1.0) - 1.0)[apart].max()


# Equal and nearly equal -----------------------------------------------------------------------


@every_case
@for_each("spread", [0.05, 1.0, 2.0])
def test_never_negative_and_zero_on_the_diagonal(case, spread):
    natural = case.draw(np.random.default_rng(0), 40, spread)
    kl = case.family.kl(natural, natural.copy())
    assert np.all(kl >= 0.0)
    assert np.all(np.diag(kl) == 0.0)


def curvature(family, row, direction, step):
    """``d' H d / 2``, by fourth-order differences of the mean along the direction."""
    at = row + step * np.array([[-2.0], [-1.0], [1.0], [2.0]]) * direction
    return 0.5 * (np.array([1, -8, 8, -1]) @ family.mean(at) / (12 * step)) @ direction


@every_case
@for_each("size", [1e-4, 1e-6, 1e-8, 1e-10, 1e-12])
def test_nearly_equal(case, size):
    """Second order in the perturbation; what remains is the rounding of the mean parameters."""
    family, rng = case.family, np.random.default_rng(1)
    natural = case.draw(rng, 5)
    moved = natural * (1.0 + size * rng.uniform(-1, 1, natural.shape))
    kl = np.diag(family.kl(natural, moved))
    for i, row in enumerate(natural):
        d = moved[i] - row
        expected = curvature(family, row, d / size, 1e-4) * size**2
        noise = 1e-15 * np.abs(family.mean(row[None])[0]) @ np.abs(d)
        assert abs(kl[i] - expected) <= 20 * size * expected + 1e-6 * expected + 10 * noise


@for_each("size", [1e-2, 1e-4, 1e-6, 1e-8])
@for_each("scale", [1.0, 1e3, 1e6])
def test_nearly_equal_dirichlets_against_trigamma(size, scale):
    rng = np.random.default_rng(2)
    a = scale * rng.uniform(0.5, 2.0, (4, 20))
    b = a * (1.0 + size * rng.uniform(-1, 1, a.shape))
    d = b - a
    exact = 0.5 * (polygamma(1, a) * d**2).sum(1) - 0.5 * polygamma(1, a.sum(1)) * d.sum(1) ** 2
    # Measured: size itself (the third order) at 1e-2, below 1e-6 at 1e-8.
    np.testing.assert_allclose(np.diag(Dirichlet(20).kl(a, b)), exact, rtol=2 * size + 2e-6)


# Badly scaled ---------------------------------------------------------------------------------


def ill_conditioned(rng, n, dim, condition):
    """Rotated matrices with eigenvalues from ``1 / sqrt(condition)`` to ``sqrt(condition)``."""
    basis = np.linalg.qr(rng.normal(size=(n, dim, dim)))[0]
    values = np.geomspace(condition**-0.5, condition**0.5, dim)
    values = values * np.exp(0.1 * rng.normal(size=(n, dim)))
    out = (basis * values[:, None, :]) @ basis.swapaxes(1, 2)
    return 0.5 * (out + out.swapaxes(1, 2))


def badly_scaled(rng, n, dim, condition):
    """Harmless correlations, but units that differ by ``sqrt(condition)``."""
    units = np.geomspace(condition**-0.25, condition**0.25, dim)
    return units[:, None] * units * ill_conditioned(rng, n, dim, 5.0)


# Worst measured: 1.5e-8 rotated (the condition times the rounding), 3e-14 for units.
KINDS = pytest.mark.parametrize(
    ("kind", "tolerance"), [(ill_conditioned, 5e-8), (badly_scaled, 1e-12)]
)


@KINDS
@pytest.mark.parametrize("dim", [20, 200])
def test_full_families_at_condition_1e8(kind, tolerance, dim):
    rng, n = np.random.default_rng(dim), 3
    covariance = kind(rng, n, dim, 1e8)
    deviation = np.sqrt(np.einsum("nii->ni", covariance))
    mean = deviation * rng.normal(size=(n, dim))
    dof = dim + rng.gamma(3.0, 10.0, n)
    wishart = {"scale_inv": dof[:, None, None] * covariance, "dof": dof}
    both = {"mean": mean, "kappa": rng.gamma(3.0, 10.0, n), **wishart}
    normal = {"mean": mean, "covariance": covariance}
    assert worst_error(Normal(dim), normal, kl_normal) < tolerance
    assert worst_error(Wishart(dim), wishart, kl_wishart) < tolerance
    assert worst_error(NormalWishart(dim), both, kl_normal_wishart) < tolerance


@pytest.mark.parametrize("dim", [1, 20, 200])
@pytest.mark.parametrize("offset", [1e2, 1e3])
def test_normal_wishart_far_from_the_origin(dim, offset):
    """All means ``offset`` deviations away: the moments hold ``offset^2`` times the scatter.

    Many digits cancel, but pairs that differ are not near ones: a rule for near pairs that is
    applied to them is wrong by 1e-3 here. Worst measured: 5e-10 and 2e-8 of the KL.
    """
    rng, n = np.random.default_rng(dim), 4
    scatter = ill_conditioned(rng, n, dim, 1e2)
    dof = dim + rng.gamma(3.0, 10.0, n)
    params = {
        "mean": offset * np.sqrt(scatter[0].diagonal()) + rng.normal(size=(n, dim)),
        "kappa": rng.gamma(3.0, 10.0, n),
        "scale_inv": dof[:, None, None] * scatter,
        "dof": dof,
    }
    error = worst_error(NormalWishart(dim), params, kl_normal_wishart)
    assert error < 1e-13 * offset**2


def test_one_large_posterior_does_not_spoil_the_others():
    """The cancellation threshold is each pair's own."""
    family = Gamma()
    shape, rate = np.array([1e-3, 1.0, 0.5, 1e12]), np.array([1.0, 1.0, 2.0, 1e12])
    natural = family.natural(shape=shape, rate=rate)
    together = family.kl(natural, natural)[:3, :3]
    np.testing.assert_allclose(together, family.kl(natural[:3], natural[:3]), rtol=1e-12)


WIDE = np.geomspace(1e-8, 1e8, 200)


def wide(rng, n=4):
    """Numbers from 1e-8 to 1e8, alike across rows but for a factor of about two."""
    return WIDE * np.exp(0.5 * rng.normal(size=(n, 200)))


def test_diagonal_families_from_1e_8_to_1e8():
    """Worst measured 4e-15."""
    rng = np.random.default_rng(3)
    variance = wide(rng)
    mean = np.sqrt(variance) * rng.normal(size=variance.shape)
    shape, kappa = rng.gamma(3.0, 2.0, (2, *variance.shape)) + 0.1
    gamma = {"shape": shape, "rate": variance}
    checks = [
        (DiagonalNormal, {"mean": mean, "variance": variance}, kl_diagonal_normal),
        (Gamma, gamma, kl_gamma),
        (InverseGamma, {"shape": shape, "scale": variance}, kl_inverse_gamma),
        (NormalGamma, {"mean": mean, "kappa": kappa, **gamma}, kl_normal_gamma),
    ]
    for family, params, closed_form in checks:
        assert worst_error(family(200), params, closed_form) < 1e-13, family


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="needs extended precision")
@pytest.mark.parametrize("dim", [2, 200, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("low", "high"), [(1e-3, 1e6), (1e3, 1e6), (1e-3, 1.0)])
def test_dirichlet_concentrations_from_1e_3_to_1e6(dim, low, high):
    """Against extended precision: 2e-7 of KL, or the rounding of ``log Gamma`` of the sums.

    That rounding is 2e-9 at a sum of 1e6. It is all that is left of a KL of 1e-5 between
    concentrations such as (1e6, 1), whose log-partitions of about -14 hide terms of 1e7.
    """
    rng = np.random.default_rng(4)
    a = np.exp(rng.uniform(np.log(low), np.log(high), (5, dim)))
    sizes = np.array([1e-3, 1e-2, 0.1, 0.5, 1.0])[:, None]
    b = a * np.exp(sizes * rng.normal(size=a.shape))
    exact = np.array([[kl_dirichlet_extended(q, p) for p in b] for q in a], dtype=np.float64)
    hidden = np.abs(gammaln(a.sum(1)))[:, None] + np.abs(gammaln(b.sum(1)))
    for family in [Dirichlet(dim)] + [Beta()] * (dim == 2):
        error = np.abs(family.kl(a, b) - exact)
        assert np.all(error <= 2e-7 * exact + np.finfo(float).eps * hidden)


BERNOULLI = [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510]


def log_gamma_and_digamma_extended(x):
    """Stirling's series beyond 30, and the recurrence below, in extended precision."""
    y = np.asarray(x, dtype=np.longdouble).copy()
    products, sums = np.zeros_like(y), np.zeros_like(y)
    for _ in range(30):
        low = y < 30
        products[low] += np.log(y[low])
        sums[low] += 1 / y[low]
        y[low] += 1
    half_log_2pi = np.log(2 * np.arccos(np.longdouble(-1))) / 2
    log_gamma = (y - np.longdouble(0.5)) * np.log(y) - y + half_log_2pi - products
    psi = np.log(y) - 1 / (2 * y) - sums
    for k, number in enumerate(BERNOULLI, 1):
        log_gamma += number / (2 * k * (2 * k - 1)) / y ** (2 * k - 1)
        psi -= number / (2 * k) / y ** (2 * k)
    return log_gamma, psi


def kl_dirichlet_extended(a, b):
    a, b = a.astype(np.longdouble), b.astype(np.longdouble)
    (lga, psi_a), (lgb, _) = (log_gamma_and_digamma_extended(x) for x in (a, b))
    (lga0, psi_a0), (lgb0, _) = (log_gamma_and_digamma_extended(x.sum()[None]) for x in (a, b))
    constants = lga0[0] - lgb0[0] + (lgb - lga).sum()
    return constants + ((a - b) * (psi_a - psi_a0)).sum()


def test_categorical_of_tiny_probabilities():
    rng = np.random.default_rng(5)
    table = np.exp(rng.uniform(-600, 0, (5, 50)))
    table /= table.sum(axis=1, keepdims=True)
    family = Categorical(50)
    natural = family.natural(table)
    exact = [[(q * np.log(q / p)).sum() for p in table] for q in table]
    np.testing.assert_allclose(family.kl(natural, natural), exact, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("dim", [20, 200])
def test_larger_dimensions_of_every_sized_family(dim):
    """The bare definition, at moderate scale, in dimensions that the cases do not reach."""
    rng = np.random.default_rng(6)
    for kind in (Beta, Categorical, DiagonalNormal, Dirichlet, Gamma, InverseGamma, NormalGamma):
        family = kind(dim)
        natural = case_for(family).draw(rng, 4)
        log_partition, mean = family.log_partition(natural), family.mean(natural)
        bare = ((natural[:, None] - natural) * mean[:, None]).sum(-1)
        bare += log_partition - log_partition[:, None]
        np.testing.assert_allclose(family.kl(natural, natural), bare, rtol=1e-10, atol=1e-9)
