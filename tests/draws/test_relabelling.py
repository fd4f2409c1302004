"""Label switching is undone within and between chains; a chain in another mode is reported."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from tests.helpers.loops import for_each


def draws(seed=0, chains=4, n=500, size=3, apart=3.0, spread=0.3):
    rng = np.random.default_rng(seed)
    centre = apart * np.arange(size)
    return {
        "mu": rng.normal(centre, spread, (chains, n, size)),
        "w": rng.dirichlet(np.arange(size) + 5.0, (chains, n)),
    }


def permuted(own, order):
    return {key: np.take_along_axis(values, order, axis=2) for key, values in own.items()}


def at_random(shape, seed=0):
    return np.random.default_rng(seed).permuted(
        np.tile(np.arange(shape[2]), (*shape[:2], 1)), axis=2
    )


DIMS = {"mu": ["component"], "w": ["component"]}


@for_each("size", [1, 2, 3, 5, 8])
def test_labels_switched_at_random_per_draw(size):
    own = draws(size=size)
    order = at_random(own["mu"].shape)
    found = kf.relabel(permuted(own, order), components="component", dims=DIMS)
    placed = np.take_along_axis(order, found.permutation, axis=2)
    assert (placed == placed[0, 0]).all()
    np.testing.assert_allclose(found.draws["mu"], own["mu"][..., placed[0, 0]])
    np.testing.assert_allclose(found.draws["w"], own["w"][..., placed[0, 0]])
    assert found.probability.min() > 0.99 and found.findings == ()


def test_chains_with_labels_of_their_own():
    own = draws()
    order = np.tile(np.arange(3), (4, 500, 1))
    order[2] = [1, 2, 0]
    found = kf.relabel(permuted(own, order), components="component", dims=DIMS)
    np.testing.assert_allclose(found.draws["mu"], own["mu"])  # most chains keep their labels
    assert found.n_switched == 500


def test_draws_in_order_stay():
    own = draws()
    found = kf.relabel(own, components="component", dims=DIMS)
    assert found.n_switched == 0


def test_both_axes_of_a_transition_matrix():
    rng = np.random.default_rng(0)
    theta = np.stack([rng.dirichlet([9, 1], (2, 300)), rng.dirichlet([4, 6], (2, 300))], axis=2)
    mu = rng.normal([0.0, 4.0], 0.3, (2, 300, 2))
    order = at_random(mu.shape)
    mixed = np.take_along_axis(theta, order[..., None], axis=2)
    mixed = np.take_along_axis(mixed, order[:, :, None, :], axis=3)
    given = {"mu": np.take_along_axis(mu, order, axis=2), "theta": mixed}
    dims = {"mu": ["state"], "theta": ["state", "to"]}
    found = kf.relabel(given, components=["state", "to"], dims=dims)
    first = int(np.take_along_axis(order, found.permutation, axis=2)[0, 0, 0])
    np.testing.assert_allclose(found.draws["theta"][..., 0, 0], theta[..., first, first])


def test_a_chain_in_another_mode():
    own = draws()
    own["mu"][1, :, 0] += 30.0
    found = kf.relabel(own, components="component", dims=DIMS)
    assert found.findings[0] == "chain 1 is stuck in another mode than the others"
    two = {key: values[:2] for key, values in own.items()}
    found = kf.relabel(two, components="component", dims=DIMS)
    assert "chains 0 and 1 are in different modes" in found.findings


def test_components_that_overlap():
    own = draws(size=2, apart=0.5, spread=0.4)
    own["w"] = np.random.default_rng(0).dirichlet([5, 5], (4, 500))
    found = kf.relabel(own, components="component", dims=DIMS)
    assert any("components overlap" in text for text in found.findings)
    assert found.probability.min() < 0.9


def test_bad_input():
    with pytest.raises(kf.KLFusionError, match="relabel: components: expected a dim of"):
        kf.relabel(draws(), components="kind", dims=DIMS)
    with pytest.raises(kf.KLFusionError, match="relabel: expected a mapping of names"):
        kf.relabel([1.0], components="component")
