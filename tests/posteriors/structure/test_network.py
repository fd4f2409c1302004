"""Networks with several hidden layers: matched layer by layer, zero where a silo has no unit."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import klfusion as kf
from klfusion.adapters import rebuild
from klfusion.errors import IncompatibleSilosError, KLFusionError

X = np.random.default_rng(9).normal(size=(40, 4))


def mapping(sizes=(4, 8, 6, 3), seed=0, variance=0.01):
    rng = np.random.default_rng(seed)
    out = {}
    for i, (n_in, n_out) in enumerate(pairwise(sizes), start=1):
        for key, shape in ((f"fc{i}.weight", (n_out, n_in)), (f"fc{i}.bias", (n_out,))):
            out[key] = (rng.normal(size=shape) + 0.5, np.full(shape, variance))
    return out


def permuted(m, layer, order):
    rows = {k: tuple(a[order] for a in m[k]) for k in (f"fc{layer}.weight", f"fc{layer}.bias")}
    after = f"fc{layer + 1}.weight"
    return m | rows | {after: tuple(a[:, order] for a in m[after])}


def outputs(net):
    """Without noise: what the mean weights give."""
    x = X
    *hidden, last = net.layers
    for layer in hidden:
        x = np.maximum(x @ layer.weight_mean.T + layer.bias_mean, 0.0)
    return x @ last.weight_mean.T + last.bias_mean


@pytest.mark.parametrize("sizes", [(4, 8, 6, 3), (4, 8, 7, 6, 2)])
def test_a_permuted_network_fuses_back_to_itself(sizes):
    m = other = mapping(sizes)
    rng = np.random.default_rng(1)
    for layer, width in enumerate(sizes[1:-1], start=1):
        other = permuted(other, layer, rng.permutation(width))
    fusion = kf.fuse({"a": m, "b": other})
    found = [layer.shape[0] for layer in fusion.model().layers]
    assert found == list(sizes[1:])
    alone = rebuild(kf.extract(m, name="a"))
    np.testing.assert_allclose(outputs(fusion.model()), outputs(alone), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(fusion.model().predict_proba(X), alone.predict_proba(X), atol=0.02)


def test_networks_side_by_side_give_the_average():
    """Nothing merged: what a silo does not have is zero, so outputs are the silos' average."""
    a, b = mapping(seed=0), mapping((4, 5, 9, 3), seed=1)
    fused = kf.fuse({"a": a, "b": b}, n_components=(13, 15)).model()
    assert [layer.shape for layer in fused.layers] == [(13, 4), (15, 13), (3, 15)]
    silos = [outputs(rebuild(kf.extract(m, name="x"))) for m in (a, b)]
    np.testing.assert_allclose(outputs(fused), np.mean(silos, axis=0), rtol=1e-4, atol=1e-4)
    absent = fused.layers[1].weight_mean == 0.0
    assert absent.sum() == 6 * 5 + 9 * 8
    assert fused.layers[1].weight_variance[absent].max() < 1e-10


def test_sizes_are_as_asked_for():
    silos = {str(s): mapping(seed=s) for s in range(3)}
    fused = kf.fuse(silos, n_components=(10, 8)).model()
    assert [layer.shape[0] for layer in fused.layers] == [10, 8, 3]
    assert kf.fuse(silos, n_components=10).n_components == 10
    with pytest.raises(KLFusionError, match="for each of 2 hidden layers"):
        kf.fuse(silos, n_components=(10, 8, 3))
    with pytest.raises(IncompatibleSilosError, match="expected n_components >= 6"):
        kf.fuse(silos, n_components=(10, 2))


def test_the_scale_of_the_outputs_does_not_decide_what_is_matched():
    """A network and the same with its outputs in other units match alike in every layer."""

    def fused(factor):
        silos = {}
        for seed, name in enumerate("abc"):
            m = mapping(seed=seed)
            mean, variance = m["fc3.weight"]
            silos[name] = m | {"fc3.weight": (factor * mean, factor**2 * variance)}
        return kf.fuse(silos, n_components=(16, 10)).model().layers

    for small, large in zip(fused(0.01)[:-1], fused(100.0)[:-1], strict=True):
        np.testing.assert_allclose(small.weight_mean, large.weight_mean)


def test_files_hold_all_layers(tmp_path):
    fusion = kf.fuse({str(s): mapping(seed=s) for s in range(2)})
    kf.save(tmp_path / "f.safetensors", fusion)
    again = kf.load(tmp_path / "f.safetensors").model()
    np.testing.assert_array_equal(again.predict_proba(X), fusion.model().predict_proba(X))
    again = kf.fuse([fusion.posterior]).model()
    np.testing.assert_allclose(again.predict_proba(X), fusion.model().predict_proba(X), atol=1e-5)


def test_silos_of_different_depth():
    with pytest.raises(
        IncompatibleSilosError, match=r"'b': .* 2 hidden layers as in silo 'a', got 1"
    ):
        kf.fuse({"a": mapping(), "b": mapping((4, 8, 3))})
    with pytest.raises(IncompatibleSilosError, match="2 hidden layers as in silo 'a', got 3"):
        kf.fuse({"a": mapping(), "b": mapping((4, 8, 6, 6, 3))})


def test_a_dead_network_adds_next_to_nothing():
    """All units off: one of them stays, and the output bias, with the silo's share."""
    live, dead = mapping((4, 8, 3)), mapping((4, 8, 3), seed=1)
    dead["fc2.weight"] = (np.full((3, 8), 1e-6), np.full((3, 8), 1.0))
    fusion = kf.fuse({"live": live, "dead": dead})
    assert fusion.n_unmatched == 7
    alone = outputs(rebuild(kf.extract(live, name="x")))
    assert np.corrcoef(outputs(fusion.model()).ravel(), alone.ravel())[0, 1] > 0.98
