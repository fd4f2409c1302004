"""Means and variances of a network in a plain mapping: out, fused, and back again."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from klfusion.adapters import rebuild
from klfusion.errors import IncompatibleSilosError, KLFusionError


def mapping(n_in=4, n_hidden=6, n_out=3, seed=0, scale=0.05):
    rng = np.random.default_rng(seed)
    shapes = {
        "fc1.weight": (n_hidden, n_in),
        "fc1.bias": (n_hidden,),
        "fc2.weight": (n_out, n_hidden),
        "fc2.bias": (n_out,),
    }
    return {
        key: (2.0 * rng.normal(size=shape), scale * rng.uniform(0.5, 1.5, size=shape))
        for key, shape in shapes.items()
    }


def permuted(m, order):
    rows = {key: tuple(a[order] for a in m[key]) for key in ("fc1.weight", "fc1.bias")}
    return m | rows | {"fc2.weight": tuple(a[:, order] for a in m["fc2.weight"])}


X = np.random.default_rng(9).normal(size=(40, 4))


class TestRoundTrip:
    def test_a_rebuilt_network_is_the_same(self, tmp_path):
        m = mapping()
        posterior = kf.extract(m, name="a", activation="tanh")
        kf.save(tmp_path / "a.safetensors", posterior)
        again = rebuild(kf.load(tmp_path / "a.safetensors"))
        for key, (mean, variance) in again.mapping().items():
            np.testing.assert_allclose(mean, m[key][0], rtol=0, atol=1e-6)  # single precision
            np.testing.assert_allclose(variance, m[key][1], rtol=0, atol=1e-6)
        p = again.predict_proba(X, random_state=3)
        np.testing.assert_array_equal(p, rebuild(posterior).predict_proba(X, random_state=3))
        np.testing.assert_allclose(p.sum(axis=1), 1.0)
        np.testing.assert_array_equal(again.predict(X, random_state=3), p.argmax(axis=1))

    def test_prediction_is_the_mean_over_draws(self):
        m = {key: (mean, np.full_like(mean, 1e-16)) for key, (mean, _) in mapping().items()}
        hidden = np.maximum(X @ m["fc1.weight"][0].T + m["fc1.bias"][0], 0)
        logits = hidden @ m["fc2.weight"][0].T + m["fc2.bias"][0]
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        p = rebuild(kf.extract(m, name="a")).predict_proba(X)
        np.testing.assert_allclose(p, odds / odds.sum(axis=1, keepdims=True), atol=1e-4)

    def test_one_pair_a_layer_has_the_bias_in_the_last_column(self):
        m = mapping()
        joined = {
            layer: tuple(
                np.column_stack([m[f"{layer}.weight"][i], m[f"{layer}.bias"][i]]) for i in (0, 1)
            )
            for layer in ("fc1", "fc2")
        }
        np.testing.assert_array_equal(
            kf.extract(joined, name="a").natural, kf.extract(m, name="a").natural
        )

    def test_tensors_are_read_like_arrays(self):
        torch = pytest.importorskip("torch")
        m = mapping()
        tensors = {
            key: tuple(torch.tensor(a, requires_grad=True) for a in pair) for key, pair in m.items()
        }
        a, b = kf.extract(tensors, name="a"), kf.extract(m, name="a")
        np.testing.assert_array_equal(a.natural, b.natural)


class TestFusion:
    def test_a_permuted_network_fuses_back_to_itself(self):
        m = mapping(n_hidden=12)
        order = np.random.default_rng(1).permutation(12)
        fusion = kf.fuse({"a": m, "b": permuted(m, order)})
        assert fusion.n_components == 12
        np.testing.assert_array_equal(fusion.labels[0][order], fusion.labels[1])
        alone = rebuild(kf.extract(m, name="a"))
        np.testing.assert_allclose(fusion.model().predict_proba(X), alone.predict_proba(X), 1e-3)

    def test_units_of_one_silo_count_by_its_share(self):
        m, other = mapping(seed=0), mapping(seed=7)
        two = kf.fuse({"a": m, "b": other}, n_components=12).model()
        outgoing = two.mapping()["fc2.weight"]
        both = np.concatenate([m["fc2.weight"][0], other["fc2.weight"][0]], axis=1)
        np.testing.assert_allclose(outgoing[0], 0.5 * both, rtol=1e-6)

    def test_class_counts_weigh_the_silos(self):
        m, other = mapping(seed=0), mapping(seed=7)
        silos = [
            kf.extract(m, name="a", class_counts=[30, 10, 0]),
            kf.extract(other, name="b", class_counts=[0, 10, 0]),
        ]
        fusion = kf.fuse(silos, n_components=12)
        mean, variance = fusion.model().mapping()["fc2.weight"]
        share = np.array([[1.0, 0.5, 0.5], [0.0, 0.5, 0.5]])  # no silo saw class 2: equal shares
        expected = [m["fc2.weight"], other["fc2.weight"]]
        for j, part in enumerate((slice(0, 6), slice(6, 12))):
            np.testing.assert_allclose(mean[:, part], share[j][:, None] * expected[j][0], 1e-6)
            wanted = share[j][:, None] ** 2 * expected[j][1]
            np.testing.assert_allclose(variance[:, part], wanted, rtol=1e-5, atol=1e-11)
        arrays = fusion.posterior.structure.arrays
        np.testing.assert_allclose(arrays["mean.1"][0, -1], m["fc2.bias"][0][0])
        np.testing.assert_array_equal(arrays["class_counts"], [30, 20, 0])

    def test_fusing_a_fusion_keeps_the_shares(self):
        m, other = mapping(seed=0), mapping(seed=7)
        first = kf.fuse({"a": m, "b": other}, n_components=12)
        again = kf.fuse([first.posterior])
        np.testing.assert_allclose(
            again.model().predict_proba(X), first.model().predict_proba(X), atol=1e-6
        )


class TestWrongInput:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"fc3.weight": (np.ones((2, 4)),) * 2, "fc3.bias": (np.ones(2),) * 2}, "the 3 out"),
            ({"fc1.weight": (np.full((6, 4), np.nan), np.ones((6, 4)))}, "fc1.weight.* finite"),
            ({"fc1.weight": (np.ones((6, 4)), np.zeros((6, 4)))}, "variances > 0"),
            ({"fc1.weight": (np.ones((6, 4)), np.ones((6, 5)))}, r"shapes \(6, 4\) and \(6, 5\)"),
            ({"fc1.weight": np.ones((6, 4))}, "expected a pair"),
            ({"fc1.weight": ("x", "y")}, "expected arrays of numbers"),
            ({"fc1.weight": (np.ones((5, 4)),) * 2}, r"expected a bias of shape \(5,\)"),
            ({"fc2.weight": (np.ones((3, 5)),) * 2}, "in order"),
            ({"conv.weight": (np.ones((3, 1, 2, 2)),) * 2}, "fully connected"),
            ({"scale": (np.ones(3),) * 2}, "expected a mapping of 'layer.weight'"),
        ],
    )
    def test_it_says_what_is_wrong(self, change, message):
        with pytest.raises(KLFusionError, match=f"silo 'a'.*{message}"):
            kf.extract(mapping() | change, name="a")

    def test_no_layers(self):
        with pytest.raises(KLFusionError, match="an empty one"):
            kf.extract({}, name="a")
        with pytest.raises(KLFusionError, match="at least two fully connected layers"):
            kf.extract({k: v for k, v in mapping().items() if "fc1" in k}, name="a")
        with pytest.raises(
            KLFusionError, match=r"expected means and variances \(n_out, n_in \+ 1\)"
        ):
            kf.extract({"fc1": (np.ones(3), np.ones(3))}, name="a")

    def test_settings(self):
        with pytest.raises(KLFusionError, match="expected activation to be one of relu"):
            kf.extract(mapping(), name="a", activation="step")
        for counts in ([1, 2], [1, 2, -1], [1, 2, np.inf]):
            with pytest.raises(KLFusionError, match="expected class_counts to be 3 finite"):
                kf.extract(mapping(), name="a", class_counts=counts)

    def test_prediction(self):
        network = rebuild(kf.extract(mapping(), name="a"))
        with pytest.raises(KLFusionError, match=r"expected x of shape \(n, 4\)"):
            network.predict(X[:, :3])
        with pytest.raises(KLFusionError, match="expected n_samples >= 1"):
            network.predict(X, n_samples=0)

    def test_silos_that_differ(self):
        with pytest.raises(
            IncompatibleSilosError, match="silo 'b': expected a network with 4 inputs"
        ):
            kf.fuse({"a": mapping(), "b": mapping(n_in=5)})
        with pytest.raises(IncompatibleSilosError, match="4 inputs as in silo 'a', got 5"):
            kf.fuse({"a": mapping(), "b": mapping(n_in=5, n_out=2)})
        with pytest.raises(IncompatibleSilosError, match="the same activation, got relu, tanh"):
            kf.fuse([mapping(), kf.extract(mapping(), name="b", activation="tanh")])
