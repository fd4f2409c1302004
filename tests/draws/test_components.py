"""Components from draws: matched, weights and transitions added, label switching undone."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from tests.helpers.loops import for_each

DIMS = {
    "dims": {"mu": ["component", "column"], "sd": ["component"], "w": ["component"]},
    "coords": {"column": ["x", "y"]},
}
MEANS = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])


def draws(seed=0, which=(0, 1, 2), chains=2, n=400, weight=300.0):
    rng = np.random.default_rng(seed)
    size = len(which)
    centre = MEANS[[*which]] + 0.05 * rng.normal(size=(size, 2))
    return {
        "mu": rng.normal(centre, 0.1, (chains, n, size, 2)),
        "sd": np.exp(rng.normal(0.0, 0.05, (chains, n, size))),
        "w": rng.dirichlet(np.full(size, weight), (chains, n)),
        "nu": np.exp(rng.normal(1.0, 0.2, (chains, n))),
    }


def switched(own, seed=0):
    """Labels permuted at random per draw."""
    rng = np.random.default_rng(seed)
    chains, n, size = own["sd"].shape
    order = rng.permuted(np.tile(np.arange(size), (chains, n, 1)), axis=2)
    out = dict(own)
    for key in ("mu", "sd", "w"):
        shape = (chains, n, size, *[1] * (own[key].ndim - 3))
        out[key] = np.take_along_axis(own[key], order.reshape(shape), axis=2)
    return out


def silo(own, name, **options):
    given = {**DIMS, "supports": {"sd": "positive", "nu": "positive"}, **options}
    return kf.from_draws(own, name=name, components="component", **given)


def test_components_are_matched_and_counts_added():
    silos = [silo(draws(0), "a"), silo(draws(1, (2, 0)), "b"), silo(draws(2, (1, 2)), "c")]
    fusion = kf.fuse(silos)
    assert fusion.n_components == 3
    truth = np.concatenate([[0, 1, 2], [2, 0], [1, 2]])
    labels = np.concatenate(fusion.labels)
    assert len({*zip(truth.tolist(), labels.tolist(), strict=True)}) == 3
    counts = fusion.posterior.structure.arrays["counts"]
    expected = 300.0 * np.bincount(labels) - np.bincount(labels)
    np.testing.assert_allclose(counts, expected, rtol=0.15)
    # What silos say about a shared variable is multiplied.
    shared = fusion.posterior.structure.arrays["shared.precision"]
    assert shared[0, 0] == pytest.approx(3 / 0.2**2, rel=0.2)


def test_label_switching_is_undone():
    plain = silo(draws(0), "a")
    mixed = silo(switched(draws(0)), "a")
    one, two = (np.sort(p.params()["mean"], axis=0) for p in (plain, mixed))
    np.testing.assert_allclose(one, two, atol=1e-9)
    assert any("label switching was undone" in text for text in mixed.provenance["findings"])


def test_components_in_a_file(tmp_path):
    own = silo(draws(0), "a")
    kf.save(tmp_path / "a.safetensors", own)
    again = kf.load(tmp_path / "a.safetensors")
    assert again.structure.info == own.structure.info
    np.testing.assert_array_equal(again.structure.arrays["counts"], own.structure.arrays["counts"])


def test_the_prior_of_a_component_is_that_of_all():
    own = silo(draws(0), "a", prior={"mu": 3.0, "w": 2.0})
    assert own.structure.arrays["weight_prior"] == 2.0
    found = own.prior[2:4]  # shifts of means, of the deviation, then precisions
    assert found[0] == pytest.approx(1.0)  # flat in the deviation, linear in its logarithm
    assert own.family.dim == 3


def test_a_prior_that_is_not_stated_is_unknown():
    fusion = kf.fuse([silo(draws(0), "a"), silo(draws(1), "b")])
    assert fusion.settings.pooled == "hierarchical, prior unknown"
    stated = [silo(draws(k), name, prior="flat") for k, name in enumerate("ab")]
    assert kf.fuse(stated).settings.pooled == "hierarchical, prior counted once"


def test_priors_as_draws():
    rng = np.random.default_rng(1)
    given = {
        "mu": rng.normal(0.0, 3.0, (1, 4000, 3, 2)),
        "sd": rng.lognormal(0.0, 1.0, (1, 4000, 3)),
        "w": rng.dirichlet([2.0, 2.0, 2.0], (1, 4000)),
        "nu": rng.lognormal(0.0, 1.0, (1, 4000)),
    }
    own = silo(draws(0), "a", prior=given)
    assert own.structure.arrays["weight_prior"] == pytest.approx(2.0, rel=0.1)
    assert own.prior[3] == pytest.approx(1 / 9, rel=0.1)
    assert own.structure.arrays["shared.prior_precision"][0, 0] == pytest.approx(1.0, rel=0.1)


@for_each("options, message", [
    ({"components": "kind"}, "components: expected a dim of 'column', 'component', got 'kind'"),
    ({"components": "component", "prior": {"w": "flat"}}, "prior of 'w': expected the concentr"),
    ({"components": "component", "local": ["nu"]}, "local and units: expected draws"),
    ({"components": "component", "scales": {"mu": "w"}}, "scales: .* positive number per comp"),
    ({"components": "component", "variables": ["w", "nu"]}, "expected a variable per component"),
])  # fmt: skip
def test_bad_components(options, message):
    own = draws()
    dims = {
        key: v for key, v in DIMS["dims"].items() if key in options.get("variables", DIMS["dims"])
    }
    with pytest.raises(kf.KLFusionError, match=f"silo 'a': {message}"):
        kf.from_draws(own, name="a", dims=dims, **options)
