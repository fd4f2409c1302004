"""Class statistics: networks of sites with few classes each."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.datasets import load_digits

import klfusion as kf
from klfusion.networks.densities import ClassDensities
from klfusion.networks.layer import MeanFieldNetwork
from klfusion.posteriors.structure import class_densities as layout

torch = pytest.importorskip("torch")

from klfusion.learners import MeanFieldBNN  # noqa: E402 (PyTorch is an extra)

PAIRS = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]


@pytest.fixture(scope="module")
def digits():
    x, y = load_digits(return_X_y=True)
    return x[:-600] / 16.0, y[:-600], x[-600:] / 16.0, y[-600:]


@pytest.fixture(scope="module")
def nets(digits):
    x, y, _, _ = digits
    out = {}
    for j, pair in enumerate(PAIRS):
        own = np.isin(y, pair)
        net = MeanFieldBNN(
            (20,), epochs=15, batch_size=30, class_statistics=True, random_state=j, progress=False
        )
        out[f"site {j}"] = net.fit(x[own], y[own])
    return out


def test_sites_with_two_classes(digits, nets):
    x, y = digits[2:]
    fused = kf.fuse(nets).model()
    with_statistics = (fused.predict(x) == y).mean()
    densities, fused.densities = fused.densities, None
    without = (fused.predict(x) == y).mean()
    fused.densities = densities
    assert with_statistics > max(0.85, without + 0.1)
    entropy = fused.entropy(x[:50])
    assert np.allclose(entropy.total, entropy.aleatoric + entropy.epistemic)
    sampled = fused.predict_proba(x, how="monte-carlo", n_samples=20)
    assert (sampled.argmax(axis=1) == y).mean() > 0.85
    alone = MeanFieldNetwork(fused.layers, fused.activation, fused.head, densities)
    assert (alone.predict(x, n_samples=20) == y).mean() > 0.85


def test_files_and_fusions_of_fusions_keep_the_statistics(tmp_path, digits, nets):
    x = digits[2]
    sent = {name: kf.extract(net, name=name) for name, net in nets.items()}
    for name, posterior in sent.items():
        kf.save(tmp_path / f"{name}.safetensors", posterior)
    read = {name: kf.load(tmp_path / f"{name}.safetensors") for name in sent}
    expected = kf.fuse(sent).model().predict_proba(x)
    assert np.array_equal(kf.fuse(read).model().predict_proba(x), expected)
    names = list(sent)
    parts = {"few": names[:2], "more": names[2:]}
    nested = kf.fuse({key: kf.fuse([sent[n] for n in own]) for key, own in parts.items()}).model()
    whole = kf.fuse(sent).model()
    assert np.allclose(nested.densities.log_ratios(x), whole.densities.log_ratios(x))


def test_one_silo_without_statistics_leaves_the_network(digits, nets):
    x, y = digits[:2]
    plain = MeanFieldBNN((20,), epochs=1, random_state=9, progress=False).fit(x, y)
    fusion = kf.fuse({**nets, "plain": plain})
    assert fusion.model().densities is None
    (found,) = [own for own in kf.diagnose(fusion).findings if "class statistics" in own.reason]
    assert found.silo == "plain"


class TestCombined:
    @staticmethod
    def of_sites(counts, rng):
        sites = []
        for n in counts:
            index = np.repeat(np.arange(len(n)), n)
            x = rng.normal(size=(len(index), 3)) + 3.0 * np.eye(3)[index]
            sites.append(ClassDensities.of_site(rng.normal(size=(2, 3)), x, index, len(n)).arrays)
        return ClassDensities(layout.fuse(sites))

    def test_equal_shares_leave_the_network_alone(self):
        rng = np.random.default_rng(0)
        densities = self.of_sites([(20, 20, 20), (40, 40, 40)], rng)
        logits = rng.normal(size=(4, 5, 3))
        found = densities.combined(rng.normal(size=(5, 3)), logits)
        assert np.allclose(softmax(found, axis=-1), softmax(logits, axis=-1))

    def test_classes_at_different_sites_are_compared_by_densities_alone(self):
        rng = np.random.default_rng(0)
        densities = self.of_sites([(30, 0, 0), (0, 30, 0), (0, 0, 30)], rng)
        x, logits = rng.normal(size=(5, 3)), rng.normal(size=(4, 5, 3))
        found = softmax(densities.combined(x, logits), axis=-1)
        assert np.allclose(found, softmax(densities.log_ratios(x), axis=-1))

    def test_moments_of_all_inputs_are_those_of_the_pooled_rows(self):
        rng = np.random.default_rng(0)
        rows = [rng.normal(size=(n, 3)) + n for n in (10, 25)]
        weight = rng.normal(size=(2, 3))
        sites = [ClassDensities.of_site(weight, x, np.arange(len(x)) % 2, 2) for x in rows]
        fused, everything = layout.fuse([s.arrays for s in sites]), np.concatenate(rows)
        assert np.allclose(fused[layout.INPUT_MEAN], everything.mean(axis=0))
        assert np.allclose(fused[layout.INPUT_COVARIANCE], np.cov(everything.T, bias=True))

    def test_covariances_that_are_none(self):
        densities = self.of_sites([(30, 30, 0)], np.random.default_rng(0))
        key = layout.key(0, "covariance")
        bad = {**densities.arrays, key: -100.0 * densities.arrays[key]}
        with pytest.raises(kf.KLFusionError, match="positive definite"):
            ClassDensities(bad)


def test_structures_are_checked(nets):
    posterior = kf.extract(nets["site 0"], name="a")
    arrays = dict(posterior.structure.arrays)
    del arrays[layout.key(0, "mean")]
    with pytest.raises(kf.KLFusionError, match=r"site\.0\.mean"):
        type(posterior)(
            posterior.family, posterior.natural, "a",
            structure=type(posterior.structure)("layers", arrays, posterior.structure.info),
        )  # fmt: skip
