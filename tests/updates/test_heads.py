"""A new last layer for a fused network."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

import klfusion as kf
from tests.helpers.loops import for_each


def networks(n_hidden=40):
    """Two networks with random weights, as a mapping."""
    out = {}
    for j, name in enumerate("ab"):
        rng = np.random.default_rng(j)
        shapes = {
            "fc1.weight": (n_hidden, 64), "fc1.bias": (n_hidden,),
            "fc2.weight": (10, n_hidden), "fc2.bias": (10,),
        }  # fmt: skip
        out[name] = {key: (rng.normal(size=s), np.full(s, 0.01)) for key, s in shapes.items()}
    return out


@for_each("inputs", [True, False])
def test_a_head_of_all_sites_predicts(inputs):
    x, y = load_digits(return_X_y=True)
    x = x / 16.0
    fusion = kf.fuse(networks())
    rows = [np.flatnonzero(y[:1200] // 2 == k) for k in range(5)]
    sent = [
        kf.head_statistics(fusion, x[own], y[own], name=f"{j}", inputs=inputs)
        for j, own in enumerate(rows)
    ]
    head = kf.refit_head(fusion, sent)
    before = (fusion.model().predict(x[1200:]) == y[1200:]).mean()
    assert head.score(x[1200:], y[1200:]) > max(0.85, before)
    whole = kf.head_statistics(fusion, x[:1200], y[:1200], name="all", inputs=inputs)
    expected = kf.refit_head(fusion, kf.fuse([whole])).predict_proba(x[1200:])
    np.testing.assert_allclose(head.predict_proba(x[1200:]), expected, atol=1e-8)


@for_each("activation", ["relu", "tanh"])
def test_features_are_moments_of_the_last_hidden_layer(activation):
    net, x = networks(6)["a"], np.random.default_rng(3).normal(size=(5, 64)) / 8
    net = {key: (mean, np.full(mean.shape, 0.05)) for key, (mean, _) in net.items()}
    silo = kf.extract(net, name="a", activation=activation)
    model = kf.fuse([silo]).model()
    rng, first = np.random.default_rng(0), model.layers[0]
    function = {"relu": lambda h: np.maximum(h, 0.0), "tanh": np.tanh}[activation]
    samples = []
    for _ in range(20_000):
        weight, bias = first.sample(rng)
        samples.append(function(x @ weight.T + bias))
    expected = np.hstack([np.mean(samples, axis=0), np.std(samples, axis=0)])
    np.testing.assert_allclose(model.features(x), expected, atol=0.05)


def test_other_fusions_are_refused():
    rates = kf.families.Gamma()
    fusion = kf.fuse([kf.Posterior(rates, rates.natural([3.0], [1.0]), name="a")])
    with pytest.raises(kf.KLFusionError, match="expected a fusion of networks"):
        kf.head_statistics(fusion, np.zeros((2, 2)), [0, 1], name="a")
    with pytest.raises(kf.KLFusionError, match="expected a fusion of networks"):
        kf.refit_head(3, [])
    with pytest.raises(kf.KLFusionError, match="what head_statistics returned"):
        kf.refit_head(kf.fuse(networks()), networks())


@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        (np.full((2, 64), np.nan), [0, 1], "expected x to hold finite numbers"),
        (np.zeros((2, 5)), [0, 1], r"expected x of shape \(n, 64\)"),
        (np.zeros((0, 64)), [], "expected rows X and one label per row"),
        (np.zeros((2, 64)), [0], "expected rows X and one label per row"),
    ],
)
def test_errors_name_the_silo(x, y, reason):
    with pytest.raises(kf.KLFusionError, match=f"silo 'site 3': {reason}"):
        kf.head_statistics(kf.fuse(networks(6)), x, y, name="site 3")


def test_statistics_of_another_network_are_refused():
    nets, x = networks(6), np.random.default_rng(0).normal(size=(20, 64))
    one, other = kf.fuse({"a": nets["a"]}), kf.fuse({"b": nets["b"]})
    sent = kf.head_statistics(one, x, np.arange(20) % 2, name="a")
    with pytest.raises(kf.KLFusionError, match="expected the same feature map"):
        kf.refit_head(other, [sent])
    with pytest.raises(kf.KLFusionError, match="silo 'b': expected the same feature map as in"):
        kf.fuse([sent, kf.head_statistics(other, x, np.arange(20) % 2, name="b")])
    with pytest.raises(kf.KLFusionError, match=r"kf.refit_head\(fusion, posterior\)"):
        kf.fuse([sent]).model().predict(x)
    with pytest.raises(kf.KLFusionError, match="inputs to be True or False"):
        kf.head_statistics(one, x, np.arange(20) % 2, name="a", inputs="no")
