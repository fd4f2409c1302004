"""Baselines for networks: their units and their predictions."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from klfusion.adapters import rebuild
from klfusion.errors import IncompatibleSilosError

X = np.random.default_rng(9).normal(size=(40, 4))


def mapping(n_hidden=8, seed=0):
    rng = np.random.default_rng(seed)
    shapes = {
        "fc1.weight": (n_hidden, 4), "fc1.bias": (n_hidden,),
        "fc2.weight": (3, n_hidden), "fc2.bias": (3,),
    }  # fmt: skip
    return {k: (rng.normal(size=s), np.full(s, 0.01)) for k, s in shapes.items()}


def permuted(m, order):
    rows = {k: tuple(a[order] for a in m[k]) for k in ("fc1.weight", "fc1.bias")}
    return m | rows | {"fc2.weight": tuple(a[:, order] for a in m["fc2.weight"])}


def test_pfnm_finds_copies():
    m = mapping()
    order = np.random.default_rng(0).permutation(8)
    fusion = kf.baselines.pfnm({"a": m, "b": permuted(m, order)}, prior_variance=1e3, variance=0.1)
    assert fusion.n_components == 8
    np.testing.assert_array_equal(fusion.labels[0][order], fusion.labels[1])
    alone = rebuild(kf.extract(m, name="a"))
    np.testing.assert_allclose(fusion.model().predict_proba(X), alone.predict_proba(X), atol=0.01)


def test_pfnm_keeps_different_units_apart():
    silos = {str(s): mapping(seed=s) for s in range(3)}
    assert kf.baselines.pfnm(silos, variance=1e-3, prior_variance=1.0).n_components == 24


def test_plain_average_ignores_the_share_of_silos():
    silos = {"a": mapping(seed=0), "b": mapping(seed=1)}
    fusion = kf.fuse(silos, n_components=16)
    plain = rebuild(kf.baselines.plain_average(silos, fusion)).layers[1].weight_mean
    np.testing.assert_allclose(plain, 2.0 * fusion.model().layers[1].weight_mean, rtol=1e-5)


def test_coordinate_average():
    silos = [kf.extract(mapping(seed=s), name=str(s), class_counts=[9, 1, 2]) for s in range(2)]
    average = rebuild(kf.baselines.coordinate_average(silos))
    expected = np.mean([mapping(seed=s)["fc1.weight"][0] for s in range(2)], axis=0)
    np.testing.assert_allclose(average.layers[0].weight_mean, expected, rtol=1e-5)
    with pytest.raises(IncompatibleSilosError, match=r"one width, got \[5, 8\]"):
        kf.baselines.coordinate_average({"a": mapping(), "b": mapping(5)})


def test_transport_finds_copies_in_another_order():
    m, order = mapping(), np.random.default_rng(0).permutation(8)
    average = rebuild(kf.baselines.ot_average({"a": m, "b": permuted(m, order)}))
    np.testing.assert_allclose(average.layers[0].weight_mean, m["fc1.weight"][0], rtol=1e-5)
    np.testing.assert_allclose(average.layers[1].weight_mean, m["fc2.weight"][0], rtol=1e-5)


def test_fisher_average_weighs_by_precision():
    one, other = mapping(seed=0), mapping(seed=1)
    other = {key: (mean, variance / 3.0) for key, (mean, variance) in other.items()}
    average = rebuild(kf.baselines.fisher_average({"a": one, "b": other}))
    expected = 0.25 * one["fc1.weight"][0] + 0.75 * other["fc1.weight"][0]
    np.testing.assert_allclose(average.layers[0].weight_mean, expected, rtol=1e-5)


def test_ensembles():
    a = kf.extract(mapping(seed=0), name="a", class_counts=[10, 0, 5])
    b = kf.extract(mapping(seed=1), name="b", class_counts=[0, 10, 5])
    p = [rebuild(s).predict_proba(X) for s in (a, b)]
    np.testing.assert_allclose(kf.baselines.Ensemble([a, b]).predict_proba(X), np.mean(p, axis=0))
    weighted = np.array([1, 0, 0.5]) * p[0] + np.array([0, 1, 0.5]) * p[1]
    np.testing.assert_allclose(
        kf.baselines.Ensemble([a, b], class_weighted=True).predict_proba(X),
        weighted / weighted.sum(axis=1, keepdims=True),
    )


def test_only_one_hidden_layer():
    deep = mapping() | {"fc3.weight": (np.ones((2, 3)),) * 2, "fc3.bias": (np.ones(2),) * 2}
    with pytest.raises(IncompatibleSilosError, match="silo 'a': expected a network with one hidd"):
        kf.baselines.pfnm({"a": deep})
