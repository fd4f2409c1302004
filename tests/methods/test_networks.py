"""Matching hidden units: the path through neighbours, and where it is cut."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import klfusion as kf
from klfusion._utils.running import silent
from klfusion.merging.agglomeration import penalty_path
from klfusion.merging.neighbours import neighbour_path
from klfusion.methods import Networks
from klfusion.model_size.preparation import prepare


def silos(n_silos=5, n_true=40, own=25, dim=30, noise=0.3, seed=0):
    rng = np.random.default_rng(seed)
    true = rng.normal(size=(n_true, dim))
    normal = kf.families.DiagonalNormal(dim)
    chosen = [rng.choice(n_true, own, replace=False) for _ in range(n_silos)]
    posteriors = [
        kf.Posterior(
            normal,
            normal.natural(
                true[c] + noise * rng.normal(size=(own, dim)), np.full((own, dim), 0.05)
            ),
            name=f"silo-{j}",
        )
        for j, c in enumerate(chosen)
    ]
    return posteriors, chosen


def test_the_path_is_that_of_all_pairs():
    posteriors, _ = silos()
    problem = prepare(posteriors, np.ones(5), clean=False).problem.centred()
    near, whole = neighbour_path(problem, silent), penalty_path(problem, silent)
    assert near.n_components[-1] <= whole.n_components[-1] + 2
    steps = 125 - 40
    np.testing.assert_allclose(near.divergences[steps], whole.divergences[steps], rtol=0.02)


def test_the_same_units_are_found():
    posteriors, chosen = silos()
    size = len(np.unique(np.concatenate(chosen)))
    assert abs(kf.fuse(posteriors, method=Networks()).n_components - size) <= 2
    fusion = kf.fuse(posteriors, method=Networks(), n_components=size)
    for labels, true in zip(fusion.labels, chosen, strict=True):
        for other, others in zip(fusion.labels, chosen, strict=True):
            same = true[:, None] == others[None]
            np.testing.assert_array_equal(labels[:, None] == other[None], same)


@pytest.mark.parametrize("setting", [{"penalty": 1e-3}, {"penalty": 1e9}, {"n_components": 60}])
def test_settings_are_followed(setting):
    posteriors, _ = silos(n_silos=3)
    penalty = setting.get("penalty", "auto")
    fusion = kf.fuse(
        posteriors, method=Networks(penalty=penalty), n_components=setting.get("n_components")
    )
    size = {1e-3: 75, 1e9: 25}.get(setting.get("penalty"), 60)
    assert abs(fusion.n_components - size) <= (3 if size == 25 else 0)
    assert fusion.lower_bound <= fusion.objective


def test_without_loss_only_equal_units_merge():
    posteriors, _ = silos(n_silos=3)
    assert kf.fuse(posteriors, method=Networks(loss=0)).n_components == 75
    twins = [*posteriors, replace(posteriors[0], name="twin")]
    assert kf.fuse(twins, method=Networks(loss=0)).n_components == 75
    for loss in (-0.1, np.nan, "much"):
        with pytest.raises(kf.KLFusionError, match="loss"):
            Networks(loss=loss)


def test_one_unit_a_silo():
    posteriors, _ = silos(n_silos=3, own=1)
    assert kf.fuse(posteriors, method=Networks()).n_components >= 1


def networks(n_silos=3, n_units=12, seed=0):
    """The same incoming weights in another order; outgoing ones are large and unlike."""
    rng = np.random.default_rng(seed)
    incoming = rng.normal(size=(n_units, 21))
    orders = [rng.permutation(n_units) for _ in range(n_silos)]
    out = {}
    for j, order in enumerate(orders):
        means = {
            "fc1.weight": incoming[order, :20] + 0.05 * rng.normal(size=(n_units, 20)),
            "fc1.bias": incoming[order, 20],
            "fc2.weight": 30.0 * rng.normal(size=(4, n_units)),
            "fc2.bias": np.zeros(4),
        }
        out[f"silo {j}"] = {key: (mean, np.full_like(mean, 0.01)) for key, mean in means.items()}
    return out, orders


@pytest.mark.parametrize("method", ["auto", Networks(within=0.2)])
def test_large_outgoing_weights_do_not_decide(method):
    models, orders = networks()
    fusion = kf.fuse(models, method=method, n_components=12)
    assert "outgoing=4" in fusion.method
    for labels, order in zip(fusion.labels, orders, strict=True):
        np.testing.assert_array_equal(labels[np.argsort(order)], np.argsort(orders[0]))


def test_outgoing_weights_count_as_much_as_incoming_at_most():
    normal, rng = kf.families.DiagonalNormal(6), np.random.default_rng(0)
    mean = rng.normal(size=(40, 6))

    def compared(scale, *like):
        natural = normal.natural(mean * [1, 1, 1, 1, scale, scale], np.full((40, 6), 0.1))
        posterior = kf.Posterior(normal, natural, name="a")
        problem = prepare([posterior], np.ones(1), clean=False).problem
        found = Networks(outgoing=2).compared(problem, *like).natural
        return natural, normal.params(found)["mean"].var(axis=0)

    small, (*coming, a, b) = compared(0.1)
    np.testing.assert_allclose([a, b], 0.01 * mean.var(axis=0)[4:])
    _, (*coming, a, b) = compared(50.0)
    np.testing.assert_allclose(a + b, sum(coming))
    _, (*coming, a, b) = compared(50.0, small)  # as others are
    np.testing.assert_allclose([a, b], 2500.0 * mean.var(axis=0)[4:])
