"""Heads as posteriors: files, silos that come and go, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

import klfusion as kf
from klfusion.learners import BayesianHead, ConvolutionalFeatures, FourierFeatures

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4))
Y = np.array(["low", "mid", "high"])[np.digitize(X[:, 0] + X[:, 1] ** 2, [0.3, 1.5])]
PARTS = {"a": Y == "low", "b": Y == "mid", "c": Y == "high"}


def fusion(features=None):
    heads = {name: BayesianHead(features).fit(X[own], Y[own]) for name, own in PARTS.items()}
    return kf.fuse(heads)


def test_files_hold_the_head_and_its_map(tmp_path):
    head = BayesianHead(FourierFeatures(30, length_scale=3.0)).fit(X, Y)
    posterior = kf.extract(head, name="a")
    kf.save(tmp_path / "a.safetensors", posterior)
    found = kf.adapters.rebuild(kf.load(tmp_path / "a.safetensors"))
    np.testing.assert_allclose(found.predict_proba(X), head.predict_proba(X), atol=1e-10)
    assert found.features.get_params() == head.features.get_params()
    kf.save(tmp_path / "all.safetensors", fusion())
    loaded = kf.load(tmp_path / "all.safetensors").model()
    np.testing.assert_array_equal(loaded.predict_proba(X), fusion().model().predict_proba(X))


def test_a_file_is_fused_with_a_head(tmp_path):
    agreed = ConvolutionalFeatures(np.int64(2), sides=(5,), cells=1)
    x = RNG.uniform(size=(30, 25))
    head = BayesianHead(agreed).fit(x, Y[:30])
    kf.save(tmp_path / "a.safetensors", kf.extract(head, name="a"))
    both = kf.fuse([kf.load(tmp_path / "a.safetensors"), kf.extract(head, name="b")])
    assert both.model().predict(x).shape == (30,)


def test_a_file_has_the_sums_once(tmp_path):
    x = RNG.normal(size=(50, 200))
    kf.save(tmp_path / "a.safetensors", kf.extract(BayesianHead().fit(x, Y[:50]), name="a"))
    assert (tmp_path / "a.safetensors").stat().st_size < 8 * (200 * 201 / 2 + 5 * 203 + 200) + 4000


def test_calibrated_heads_are_stored_and_fused_without_calibration():
    head = fusion().model()
    better = head.calibrated(kf.fuse([head.calibration(X, Y, name="a")]))
    posterior = kf.extract(better, name="a")
    again = kf.adapters.rebuild(posterior)
    np.testing.assert_array_equal(again.predict_proba(X), better.predict_proba(X))
    np.testing.assert_allclose(
        kf.fuse([posterior]).model().predict_proba(X), head.predict_proba(X), atol=1e-10
    )


def test_silos_come_and_go():
    found = fusion()
    assert found.settings.pooled == "product"
    less = found.remove("b")
    two = BayesianHead().fit(X[Y != "mid"], Y[Y != "mid"])
    np.testing.assert_allclose(less.model().predict_proba(X), two.predict_proba(X), atol=1e-8)
    more = less.add(BayesianHead().fit(X[Y == "mid"], Y[Y == "mid"]), name="b")
    expected = found.model().predict_proba(X)
    np.testing.assert_allclose(more.model().predict_proba(X), expected, atol=1e-8)


def test_files_are_fused_in_little_memory(tmp_path):
    paths = []
    for name, own in PARTS.items():
        paths.append(str(tmp_path / f"{name}.safetensors"))
        kf.save(paths[-1], kf.extract(BayesianHead().fit(X[own], Y[own]), name=name))
    found = kf.fuse_files(paths, memory_limit="64MB").model()
    np.testing.assert_allclose(
        found.predict_proba(X), fusion().model().predict_proba(X), atol=1e-10
    )


def test_columns_of_another_order_are_refused():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["age", "dose", "sex", "time"])
    head = BayesianHead().fit(frame, Y)
    other = BayesianHead().fit(frame[["dose", "age", "sex", "time"]], Y)
    with pytest.raises(kf.KLFusionError, match="in this order"):
        kf.fuse({"a": head, "b": other})
    again = kf.fuse({"a": head}).model()
    with pytest.raises(kf.KLFusionError, match="in this order"):
        again.predict(frame[["dose", "age", "sex", "time"]])
    assert (again.predict(frame) == head.predict(X)).all()


def test_a_map_that_is_not_ours_has_to_be_set():
    scaler = StandardScaler().fit(X)
    head = fusion(scaler).model()
    with pytest.raises(kf.KLFusionError, match="a StandardScaler: set it as features"):
        head.predict(X)
    head.features = scaler
    np.testing.assert_allclose(
        head.predict_proba(X), BayesianHead(scaler).fit(X, Y).predict_proba(X), atol=1e-8
    )


def test_other_poolings_and_weights_give_no_head():
    halves = {"a": BayesianHead().fit(X[:150], Y[:150]), "b": BayesianHead().fit(X[150:], Y[150:])}
    for settings in ({"pooling": "average"}, {"weights": {"a": 2.0, "b": 1.0}}):
        with pytest.raises(kf.KLFusionError, match="heads are fused with pooling 'product'"):
            kf.fuse(halves, **settings).model()


def test_a_report_is_written(tmp_path):
    fusion().report(str(tmp_path / "fusion.html"))
    assert (tmp_path / "fusion.html").stat().st_size > 1000
