"""Every divergence: its barycenter is the minimum, and fusing by it descends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

import klfusion as kf
from klfusion.objective.divergences import DIVERGENCES, problem_with_divergence
from klfusion.objective.mean_parameters import natural_from_mean
from tests.families.cases import CASES, every_case
from tests.helpers.loops import for_each
from tests.helpers.silos import normal_wishart_silos, rate_silos

GAUSSIANS = [kf.families.DiagonalNormal(2), kf.families.Normal(2)]


@every_case
@for_each("spread", [0.3, 3.0])
def test_the_mean_map_is_undone(case, spread):
    rng = np.random.default_rng(1)
    natural = case.draw(rng, 4, spread)
    start = case.family.barycenter(natural)
    for row in natural:
        found = natural_from_mean(case.family, case.family.mean(row[None])[0], start)
        assert case.family.in_domain(found[None])
        assert case.family.kl(found[None], row[None])[0, 0] < 1e-12
        np.testing.assert_allclose(
            case.family.mean(found[None]), case.family.mean(row[None]), rtol=1e-5, atol=1e-6
        )


@every_case
@for_each("name", [n for n in DIVERGENCES if n != "wasserstein"])
def test_barycenters_are_minima(case, name):
    rng = np.random.default_rng(2)
    natural, weights = case.draw(rng, 5), rng.uniform(0.5, 2.0, size=5)
    divergence = DIVERGENCES[name]
    centre = divergence.barycenter(case.family, natural, weights)

    def total(eta):
        return float(weights @ divergence.costs(case.family, eta[None], natural)[:, 0])

    least = total(centre)
    for _ in range(20):
        other = centre * (1.0 + 1e-3 * rng.normal(size=len(centre)))
        assert total(other) >= least - 1e-9 * (1.0 + abs(least))
    # Towards each member, too.
    for row in natural:
        assert total(centre + 1e-3 * (row - centre)) >= least - 1e-9 * (1.0 + abs(least))


@pytest.mark.parametrize("family", GAUSSIANS, ids=str)
def test_wasserstein(family):
    case = next(c for c in CASES if type(c.family) is type(family))
    rng = np.random.default_rng(3)
    natural = type(case)(family, case.make).draw(rng, 4)
    weights = rng.uniform(0.5, 2.0, size=4)
    w2 = DIVERGENCES["wasserstein"]
    np.testing.assert_allclose(np.diag(w2.costs(family, natural, natural)), 0.0, atol=1e-7)
    centre = w2.barycenter(family, natural, weights)
    p = family.params(centre[None])
    lower = np.linalg.cholesky(
        p["covariance"][0] if "covariance" in p else np.diag(p["variance"][0])
    )

    def total(x):
        low = np.array([[x[2], 0.0], [x[3], x[4]]])
        if "covariance" in p:
            eta = family.natural(x[None, :2], (low @ low.T)[None])
        else:
            eta = family.natural(x[None, :2], np.array([[x[2] ** 2, x[4] ** 2]]))
        return float(weights @ w2.costs(family, eta, natural)[:, 0])

    start = np.array([*p["mean"][0], lower[0, 0], lower[1, 0], lower[1, 1]])
    best = minimize(
        total,
        start + 0.1,
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 8000},
    )
    assert total(start) <= best.fun + 1e-6


def test_wasserstein_of_commuting_gaussians_is_known():
    family = kf.families.Normal(2)
    a, b = np.diag([1.0, 4.0]), np.diag([9.0, 16.0])
    natural = family.natural([[0.0, 0.0], [3.0, 4.0]], [a, b])
    w2 = DIVERGENCES["wasserstein"]
    assert w2.costs(family, natural[:1], natural[1:])[0, 0] == pytest.approx(25.0 + 4.0 + 4.0)
    centre = family.params(w2.barycenter(family, natural, np.ones(2))[None])
    np.testing.assert_allclose(centre["covariance"][0], np.diag([4.0, 9.0]), atol=1e-9)


@pytest.mark.parametrize("name", [n for n in DIVERGENCES if n != "wasserstein"])
@pytest.mark.parametrize("make", [rate_silos, normal_wishart_silos])
def test_fusing_by_every_divergence(make, name):
    silos, truth = make()
    by_average = {"method": kf.Auto(divergence=name), "pooling": "average"}
    fusion = kf.fuse(silos, **by_average)
    assert fusion.n_components == len(np.unique(np.concatenate(truth)))
    assert (np.diff(fusion.trace) <= 1e-9 * np.abs(fusion.trace[:-1])).all()
    assert fusion.lower_bound <= fusion.objective
    assert fusion.settings.method.divergence == name
    rows = [s.natural[fusion.labels[j] == 0] for j, s in enumerate(silos)]
    members = np.concatenate(rows)
    centre = DIVERGENCES[name].barycenter(silos[0].family, members, np.ones(len(members)))
    np.testing.assert_allclose(fusion.posterior.natural[0], centre, rtol=1e-5, atol=1e-7)
    others = [s for s in silos if s.name != "silo-1"]
    left, never = fusion.remove("silo-1"), kf.fuse(others, **by_average)
    one, two = (np.sort(f.posterior.natural, axis=0) for f in (left, never))
    np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-7)
    if name != "kl":
        with pytest.raises(kf.KLFusionError, match="expected rematch=True"):
            left.add(silos[1])
    assert left.add(silos[1], rematch=True).n_silos == len(silos)


@pytest.mark.parametrize("name", ["kl-reverse", "wasserstein"])
def test_gaussians_with_a_penalty(name):
    rng = np.random.default_rng(0)
    family = kf.families.DiagonalNormal(2)
    centres = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    silos = [
        kf.Posterior(
            family,
            family.natural(centres + rng.normal(scale=0.2, size=(3, 2)), np.full((3, 2), 0.5)),
            name=f"s{j}",
        )
        for j in range(8)
    ]
    assert kf.fuse(silos, method=kf.Penalised(4.0, divergence=name)).n_components == 3
    assert kf.fuse(silos, method=kf.Auto(divergence=name), n_components=4).n_components == 4


def test_kl_is_untouched_and_wrong_words_are_told():
    silos, _ = rate_silos()
    problem = object()
    assert problem_with_divergence(problem, "kl") is problem
    with pytest.raises(kf.KLFusionError, match="expected divergence to be one of"):
        kf.fuse(silos, method=kf.Auto(divergence="euclid"))
    with pytest.raises(kf.KLFusionError, match="expected Normal or DiagonalNormal"):
        kf.fuse(silos, method=kf.Auto(divergence="wasserstein"))
    priors = [replace(s, prior=0.01 * s.natural[0]) for s in silos]
    with pytest.raises(kf.KLFusionError, match="expected pooling 'average'"):
        kf.fuse(priors, method=kf.Auto(divergence="jeffreys"), pooling="product")
    large = kf.families.Dirichlet(2000)
    topics = [kf.Posterior(large, large.natural(np.full((1, 2000), 2.0)), name=n) for n in "ab"]
    with pytest.raises(kf.KLFusionError, match="expected at most 1500 parameters"):
        kf.fuse(topics, method=kf.Auto(divergence="kl-reverse"))
