"""Rounds: the pooled posterior where models are conjugate, and nothing is counted twice."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from experiments import rounds
from experiments.conjugate import fit, site
from experiments.rounds import gaussian_statistics as statistics

FAMILY = kf.families.NormalWishart(2)
PRIOR = FAMILY.natural(np.zeros((1, 2)), [0.1], np.eye(2)[None], [3.0])


def test_conjugate_models_give_the_pooled_posterior():
    rng = np.random.default_rng(0)
    data = {name: rng.normal(size=(n, 2)) for name, n in {"a": 30, "b": 400, "c": 7}.items()}

    def silo(x):
        def local_fit(start, prior):
            own = PRIOR if prior is None else prior
            return kf.Posterior(FAMILY, own + statistics(x).sum(axis=0), prior=PRIOR[0])

        return local_fit

    pooled = PRIOR + statistics(np.concatenate(list(data.values()))).sum(axis=0)
    for number in (1, 2, 5):
        found = kf.refine_rounds(
            {n: silo(x) for n, x in data.items()}, rounds=number, n_components=1
        )
        np.testing.assert_allclose(found.posterior.natural, pooled, rtol=1e-10)
        assert len(found.rounds) == number
        assert (found.changes < 1e-12).all()


def test_mixtures_converge_to_the_pooled_fit():
    rng = np.random.default_rng(1)
    centres = np.array([[-6.0, 0.0], [6.0, 0.0], [0.0, 9.0]])
    data = [centres[rng.integers(3, size=150)] + rng.normal(size=(150, 2)) for _ in range(5)]
    sites = {f"s{j}": site(FAMILY, PRIOR[0], statistics(x), 3, seed=j) for j, x in enumerate(data)}
    found = kf.refine_rounds(sites, rounds=4, n_components=3)
    everything = statistics(np.concatenate(data))
    pooled, _ = fit(FAMILY, np.repeat(PRIOR, 3, axis=0), everything, found.posterior.natural)
    np.testing.assert_allclose(found.posterior.natural, pooled, rtol=1e-6)


@pytest.mark.parametrize("problem", ["mixture, 6 deviations apart", "topics, distinct"])
def test_later_rounds_come_nearer(problem, tmp_path):
    (row,) = rounds.run(tmp_path, seeds=3, n_jobs=1, problems=[problem])
    assert row["mean"][1] < 0.7 * row["mean"][0]
    assert row["mean"][2] <= row["mean"][1] + 1e-6
    assert (tmp_path / "results.json").exists()
    assert len(rounds.shown([row]).columns) == 6


def test_what_goes_wrong_is_told():
    rates = kf.families.Gamma()
    prior = rates.natural([1.0], [1.0])

    def good(start, given):
        return kf.Posterior(rates, (prior if given is None else given) + 5.0, prior=prior[0])

    def forgets(start, given):
        return kf.Posterior(rates, np.repeat(prior + 5.0, 1 if start is None else 2, axis=0),
                            prior=prior[0])  # fmt: skip

    def shrinks(start, given):
        return good(start, given) if start is None else kf.Posterior(rates, given * 1e-9)

    with pytest.raises(kf.KLFusionError, match="silo 'b': expected 1 components"):
        kf.refine_rounds({"a": good, "b": forgets}, rounds=2, n_components=1)
    with pytest.raises(kf.KLFusionError, match="expected rounds"):
        kf.refine_rounds({"a": good}, rounds=0)
    with pytest.raises(kf.KLFusionError, match="expected damping"):
        kf.refine_rounds({"a": good}, damping=0.0)
    found = kf.refine_rounds({"a": good, "b": shrinks}, rounds=2, n_components=1)
    assert rates.in_domain(found.posterior.natural)
    half = kf.refine_rounds({"a": good, "b": shrinks}, rounds=2, n_components=1, damping=0.5)
    assert half.changes[0] < found.changes[0]
