"""One more round corrects the Normals of the silos."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from tests.helpers.loops import for_each


def rates(prior=None):
    """Poisson counts at two sites; Gamma posteriors of few observations are skewed."""
    rng, data = np.random.default_rng(0), {"a": np.array([2, 0, 1]), "b": np.array([5, 3])}
    silos = [
        kf.from_draws({"rate": rng.gamma(y.sum() + 1, 1 / len(y), (4, 5000))}, name=name)
        for name, y in data.items()
    ]
    return data, kf.fuse(silos)


def asked(data, points):
    return {n: y.sum() * np.log(points) - len(y) * points for n, y in data.items()}


def test_moments_are_exact():
    data, fusion = rates()
    points = fusion.proposals(20_000)["rate"]
    again = fusion.reweighted(asked(data, points), draws=20_000)
    exact = np.random.default_rng(1).gamma(12.0, 1 / 5, 200_000)
    assert fusion.posterior.structure.info["coordinates"] == ["log(rate)"]
    found = [f.posterior.params()["mean"][0, 0] for f in (fusion, again)]
    errors = np.abs(np.array(found) - np.log(exact).mean())
    assert errors[1] < 0.01 < errors[0]
    assert again.provenance == fusion.provenance
    assert 1000 < again.posterior.provenance["effective"] <= 20_000


def test_the_prior_counts_once():
    data, fusion = rates()
    points = fusion.proposals(20_000)["rate"]
    flat = fusion.reweighted(asked(data, points), draws=20_000)
    narrow = fusion.reweighted(asked(data, points), draws=20_000, prior=(1.0, 0.3))
    means = [np.exp(f.posterior.params()["mean"][0, 0]) for f in (flat, narrow)]
    assert means[1] < means[0] - 0.2


@for_each("change, message", [
    (lambda given: given.pop("a"), "expected log-likelihoods of 'a', 'b', got 'b'"),
    (lambda given: given.update(a=np.zeros(3)), "silo 'a': expected 2000 log-likelihoods, one per"),
    (lambda given: given.update(a=np.full(2000, np.nan)), "silo 'a': expected 2000 log-likelih"),
    (lambda given: given.update(a=1e6 * np.arange(2000.0)), "expected an effective sample size"),
])  # fmt: skip
def test_bad_answers(change, message):
    data, fusion = rates()
    given = asked(data, fusion.proposals()["rate"])
    change(given)
    with pytest.raises(kf.KLFusionError, match=message):
        fusion.reweighted(given)


def test_local_variables_are_refused():
    rng = np.random.default_rng(0)
    silos = [
        kf.from_draws({"a": rng.normal(size=(4, 99)), "b": rng.normal(size=(4, 99))}, name=n,
                      local=["b"])
        for n in "xy"
    ]  # fmt: skip
    with pytest.raises(kf.KLFusionError, match="expected a fusion of draws without components"):
        kf.fuse(silos).proposals()
