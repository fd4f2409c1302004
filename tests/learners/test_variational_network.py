"""Bayesian networks of our own: what they learn, what they switch off, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes

import klfusion as kf
from klfusion.errors import IncompatibleSilosError, KLFusionError
from tests.helpers.networks import digits

torch = pytest.importorskip("torch")
learners = pytest.importorskip("klfusion.learners")
layers = pytest.importorskip("klfusion.learners._layers")
HorseshoeBNN, MeanFieldBNN = learners.HorseshoeBNN, learners.MeanFieldBNN

torch.set_num_threads(1)
SMALL = {"hidden": (30,), "epochs": 30, "batch_size": 30}


def inputs(classes=range(10), test=False):
    x, y = digits(classes, test)
    return 0.5 * (x + 1.0), y


@pytest.fixture(scope="module")
def silos():
    nets = {}
    for name, classes in {"a": range(6), "b": range(4, 10)}.items():
        nets[name] = MeanFieldBNN(**SMALL, tempering=0.1).fit(*inputs(classes))
    return nets


@pytest.mark.parametrize(
    "learner", [pytest.param(HorseshoeBNN, marks=pytest.mark.slow), MeanFieldBNN]
)
def test_it_learns_and_keeps_scikit_learns_manners(learner):
    net = learner(**SMALL, random_state=3)
    assert clone(net).get_params() == net.get_params()
    x, y = inputs()
    net.fit(x, y)
    test_x, test_y = inputs(test=True)
    assert net.score(test_x, test_y) > 0.85
    p = net.predict_proba(test_x)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert isinstance(net.network_, torch.nn.Module)
    assert net.bounds_[-1] > net.bounds_[0]
    few = {**SMALL, "epochs": 3}
    one, other = (learner(**few, random_state=3).fit(x[:200], y[:200]) for _ in range(2))
    np.testing.assert_array_equal(one.predict_proba(test_x), other.predict_proba(test_x))


def test_the_horseshoe_switches_units_off():
    x, y = inputs([0, 1])
    net = HorseshoeBNN(**{**SMALL, "epochs": 60}).fit(x, y)
    live = net.live_units_[0]
    assert live.shape == (30,)
    assert 1 <= live.sum() <= 15
    norms = np.linalg.norm(net.network_.layers[0].weight_mean, axis=1)
    assert norms[~live].max() < norms[live].max()
    fusion = kf.fuse({"a": net, "b": HorseshoeBNN(**SMALL, random_state=1).fit(x, y)})
    assert fusion.n_unmatched >= 15


def test_weights_are_those_of_appendix_d():
    generator = torch.Generator().manual_seed(0)
    layer = layers.HorseshoeLinear("h", (3, 4), (1.0, 0.1), (2.0, 6.0), generator)
    with torch.no_grad():
        layer.unit_mean += torch.tensor([0.5, -1.0, 2.0])
    sd2 = np.exp(2 * -3.0)
    unit = np.exp(layer.unit_mean.detach().numpy() + sd2 / 2)
    whole = np.exp(layer.layer_mean.item() + sd2 / 2)
    c = np.exp(0.5 * layer.slab_mean.item() + sd2 / 8)
    scale = np.sqrt(c**2 * unit**2 / (c**2 + unit**2 * whole**2)) * whole
    found, beta = layer.layer(), layer.beta.layer()
    np.testing.assert_allclose(found.weight_mean, scale[:, None] * beta.weight_mean, rtol=1e-4)
    expected = scale[:, None] ** 2 * beta.weight_variance
    np.testing.assert_allclose(found.weight_variance, expected, rtol=1e-4)
    np.testing.assert_allclose(found.bias_variance, scale**2 * beta.bias_variance, rtol=1e-4)


def test_divergences_of_scales_are_right():
    rng = np.random.default_rng(0)
    mean, sd = 0.4, 0.7
    t = mean + sd * rng.standard_normal(400_000)
    entropy = 0.5 * np.log(2 * np.pi * np.e * sd**2)
    cauchy = np.log(2 / (np.pi * 0.5)) - np.log1p(np.exp(2 * t) / 0.25) + t
    as_tensors = torch.tensor(mean), torch.tensor(np.log(sd))
    assert abs(float(layers._from_half_cauchy(*as_tensors, 0.5)) + cauchy.mean() + entropy) < 5e-3
    gamma = 2 * np.log(6) - 2 * t - 6 * np.exp(-t)  # the log of Gamma(2) is 0
    assert (
        abs(float(layers._from_inverse_gamma(*as_tensors, 2.0, 6.0)) + gamma.mean() + entropy)
        < 2e-2
    )


class TestFusion:
    def test_silos_with_different_classes(self, silos):
        """Outputs become the union of the classes, without any setting."""
        fusion = kf.fuse(silos)
        x, y = inputs(test=True)
        model = fusion.model()
        assert model.head.classes == tuple(range(10))
        fused = model.log_likelihood(x, y).mean()
        for net in silos.values():
            assert np.mean(model.predict(x) == y) > net.score(x, y) + 0.1
        assert fused > -0.8
        both = {"a": silos["a"], "c": kf.extract(silos["b"], name="c", class_counts=False)}
        with pytest.raises(IncompatibleSilosError, match="silo 'c': expected class_counts"):
            kf.fuse(both)

    def test_entropy_splits(self, silos):
        x, _ = inputs(test=True)
        for how in ("moments", "monte-carlo"):
            entropy = kf.fuse(silos).model().entropy(x, how=how)
            np.testing.assert_allclose(entropy.total, entropy.aleatoric + entropy.epistemic)
            assert entropy.epistemic.min() > -1e-9
        known, unknown = np.isin(inputs(test=True)[1], range(6)), silos["a"].entropy(x)
        assert unknown.total[~known].mean() > unknown.total[known].mean()

    def test_files(self, silos, tmp_path):
        kf.save(tmp_path / "f.safetensors", kf.fuse(silos))
        x, _ = inputs(test=True)
        np.testing.assert_array_equal(
            kf.load(tmp_path / "f.safetensors").model().predict_proba(x),
            kf.fuse(silos).model().predict_proba(x),
        )


def test_regression_beats_every_silo():
    x, y = load_diabetes(return_X_y=True)
    x = 21.0 * x  # to deviations of one
    rng = np.random.default_rng(0)
    order = rng.permutation(len(x))
    test, train = order[:142], order[142:]
    settings = {**SMALL, "hidden": (20,), "head": "regression", "epochs": 80}
    parts = np.array_split(train, 4)
    nets = {f"s{j}": MeanFieldBNN(**settings).fit(x[p], y[p]) for j, p in enumerate(parts)}
    model = kf.fuse(nets).model()
    fused = model.log_likelihood(x[test], y[test]).mean()
    local = [net.network_.log_likelihood(x[test], y[test]).mean() for net in nets.values()]
    print("regression", round(fused, 3), np.round(local, 3))  # noqa: T201 (the docs quote it)
    assert fused > max(local)
    found = model.predict_distribution(x[test])
    assert (found.variance > found.epistemic).all()
    assert nets["s0"].predict(x[test]).shape == (142,)
    assert nets["s0"].score(x[parts[0]], y[parts[0]]) > 0.1
    with pytest.raises(KLFusionError, match="predict_proba is for classification"):
        model.predict_proba(x)


class TestWrongInput:
    def test_data(self):
        x, y = inputs()
        net = MeanFieldBNN(**SMALL)
        with pytest.raises(KLFusionError, match="two classes, got class 3 alone"):
            net.fit(x[y == 3], y[y == 3])
        with pytest.raises(KLFusionError, match=r"among the classes \[0, 1\], got \[2"):
            clone(net).set_params(classes=[0, 1]).fit(x, y)
        with pytest.raises(KLFusionError, match="expected X to hold finite numbers"):
            net.fit(np.where(x > 0.9, np.nan, x), y)
        with pytest.raises(KLFusionError, match="expected 1197 values of y"):
            net.fit(x, y[:-1])
        for labels in (3, np.eye(10)[y]):
            with pytest.raises(KLFusionError, match="expected 1197 values of y"):
                net.fit(x, labels)
        with pytest.raises(KLFusionError, match="labels of one type"):
            net.fit(x[:3], [0, "a", 1])
        with pytest.raises(KLFusionError, match="expected X of shape"):
            net.fit(x[:, 0], y)
        with pytest.raises(KLFusionError, match="silo 'a': expected a fitted MeanFieldBNN"):
            kf.extract(net, name="a")

    @pytest.mark.parametrize(
        "bad",
        [{"hidden": ()}, {"hidden": (0,)}, {"hidden": 3}, {"activation": "step"}, {"head": "x"},
         {"epochs": 0}, {"tempering": -1.0}, {"balanced": "no"}, {"class_statistics": 1},
         {"class_statistics": True, "head": "regression"}, {"filters": 4},
         {"image": "abc", "filters": (4,)}, {"classes": [*range(10), 9]}],
    )  # fmt: skip
    def test_settings(self, bad):
        with pytest.raises(KLFusionError, match=next(iter(bad))):
            MeanFieldBNN(**{**SMALL, **bad}).fit(*inputs())

    def test_different_inputs(self, silos):
        x, y = inputs()
        other = MeanFieldBNN(**{**SMALL, "epochs": 1}).fit(x[:, :30], y)
        with pytest.raises(IncompatibleSilosError, match="'b': expected a network with 64 inputs"):
            kf.fuse({"a": silos["a"], "b": other})

    def test_training_that_diverges(self):
        x, y = inputs()
        with pytest.raises(KLFusionError, match="training diverged in epoch"):
            MeanFieldBNN(**{**SMALL, "learning_rate": 1e6}).fit(1e15 * x, y)


def test_importing_learners_is_light():
    import subprocess
    import sys

    code = "import sys, klfusion.learners; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_columns_of_a_data_frame_have_names():
    pandas = pytest.importorskip("pandas")
    x = np.random.default_rng(0).normal(size=(60, 3))
    y = (x[:, 0] > 0).astype(int)
    table = pandas.DataFrame(x, columns=["age", "dose", "sex"])
    other = table[["sex", "dose", "age"]]
    nets = [MeanFieldBNN((4,), epochs=2).fit(rows, y) for rows in (table, other)]
    fused = kf.fuse({"a": nets[0]}).model()
    for network in (nets[0], fused):
        with pytest.raises(kf.KLFusionError, match="in this order, got"):
            network.predict(other)
        np.testing.assert_array_equal(network.predict(table), network.predict(x))
    with pytest.raises(kf.KLFusionError, match="silo 'b': expected the features"):
        kf.fuse({"a": nets[0], "b": nets[1]})


def test_labels_are_of_one_kind():
    x = np.random.default_rng(0).normal(size=(60, 3))
    y = (x[:, 0] > 0).astype(int)
    nets = {f"{t.__name__}": MeanFieldBNN((4,), epochs=2).fit(x, y.astype(t)) for t in (int, str)}
    with pytest.raises(kf.KLFusionError, match="silo 'str': expected classes with labels of kind"):
        kf.fuse(nets)
    with pytest.raises(
        kf.KLFusionError, match="of one type, got some of type int and some of type str"
    ):
        MeanFieldBNN((4,), epochs=2).fit(x, np.array([0, "1"] * 30, dtype=object))
    with pytest.raises(kf.KLFusionError, match="got none for row 1"):
        MeanFieldBNN((4,), epochs=2).fit(x, np.array([0, None] * 30))
