"""A new last layer for a fused network."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

import klfusion as kf


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


def test_a_head_of_all_sites_predicts():
    x, y = load_digits(return_X_y=True)
    x = x / 16.0
    fusion = kf.fuse(networks())
    rows = [np.flatnonzero(y[:1200] // 2 == k) for k in range(5)]
    sent = [kf.head_statistics(fusion, x[own], y[own], name=f"{j}") for j, own in enumerate(rows)]
    head = kf.refit_head(fusion, sent)
    before = (fusion.model().predict(x[1200:]) == y[1200:]).mean()
    assert head.score(x[1200:], y[1200:]) > max(0.85, before)
    whole = kf.head_statistics(fusion, x[:1200], y[:1200], name="all")
    expected = kf.refit_head(fusion, kf.fuse([whole])).predict_proba(x[1200:])
    np.testing.assert_allclose(head.predict_proba(x[1200:]), expected, atol=1e-8)


def test_features_are_the_last_hidden_layer():
    net, x = networks()["a"], np.random.default_rng(3).normal(size=(5, 64))
    found = kf.fuse({"a": net}).model().features(x)
    (weight, _), (bias, _) = net["fc1.weight"], net["fc1.bias"]
    expected = np.maximum(x @ weight.T + bias, 0.0)
    np.testing.assert_allclose(np.sort(found, axis=1), np.sort(expected, axis=1), rtol=1e-4)


def test_other_fusions_are_refused():
    rates = kf.families.Gamma()
    fusion = kf.fuse([kf.Posterior(rates, rates.natural([3.0], [1.0]), name="a")])
    with pytest.raises(kf.KLFusionError, match="expected a fusion of networks"):
        kf.head_statistics(fusion, np.zeros((2, 2)), [0, 1], name="a")
    with pytest.raises(kf.KLFusionError, match="expected a fusion of networks"):
        kf.refit_head(3, [])
    with pytest.raises(kf.KLFusionError, match="what head_statistics returned"):
        kf.refit_head(kf.fuse(networks()), networks())
