"""Convolutional layers: filters are units, fused layer by layer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_digits

import klfusion as kf
from klfusion.adapters._networks import Network, network, posterior_of
from klfusion.networks.layer import MeanFieldNetwork
from klfusion.posteriors.structure.convolution import stacked

torch = pytest.importorskip("torch")

from klfusion.learners import HorseshoeBNN, MeanFieldBNN  # noqa: E402 (PyTorch is an extra)
from klfusion.networks.bayesian import (  # noqa: E402
    BayesianNetwork,
    activation_moments,
    pooled,
)

IMAGE = (2, 9, 8)


def silo(rng, order=None, name="a"):
    """A network of two convolutional layers, the filters of the first in another order."""
    shapes = {"c1": (4, 2, 3, 3), "c2": (5, 4, 2, 2), "fc": (6, 5 * 1 * 1), "out": (3, 6)}
    moments = {}
    for key, shape in shapes.items():
        moments[f"{key}.weight"] = rng.normal(size=shape), rng.uniform(0.01, 0.02, size=shape)
        bias = rng.normal(size=shape[:1]), rng.uniform(0.01, 0.02, size=shape[:1])
        moments[f"{key}.bias"] = bias
    if order is not None:
        moments["c1.weight"] = tuple(v[order] for v in moments["c1.weight"])
        moments["c1.bias"] = tuple(v[order] for v in moments["c1.bias"])
        moments["c2.weight"] = tuple(v[:, order] for v in moments["c2.weight"])
    geometry = stacked(IMAGE, (4, 5), (3, 2), (2, 2))
    return posterior_of(Network(moments, convolutions=geometry), name, "builtins", "dict")


def test_numpy_and_pytorch_agree():
    rng = np.random.default_rng(0)
    built = network(silo(rng))
    x = rng.normal(size=(7, 144))
    small = [  # variances under which a sample is the mean
        replace(
            one,
            weight_variance=1e-12 * one.weight_variance,
            bias_variance=1e-12 * one.bias_variance,
        )
        for one in built.layers
    ]
    alone = MeanFieldNetwork(tuple(small), "relu").outputs(x, 1)
    assert np.allclose(alone, BayesianNetwork(small).outputs(x, 1, how="monte-carlo"), atol=1e-3)
    rows = torch.as_tensor(x, dtype=torch.float32)
    mean, variance = rows, torch.zeros_like(rows)
    for linear in built.linears[:-1]:
        mean, variance = pooled(linear, *activation_moments(*linear.linear(mean, variance), "relu"))
    features = torch.cat([mean, torch.sqrt(variance)], dim=1).detach().numpy()
    assert np.allclose(built.features(x), features, atol=0.02)


def test_filters_in_another_order_fuse_back():
    order = np.array([2, 0, 3, 1])
    one = silo(np.random.default_rng(0))
    two = silo(np.random.default_rng(0), order, "b")
    fusion = kf.fuse([one, two], n_components=(4, 5, 6))
    x = np.random.default_rng(1).normal(size=(6, 144))
    assert np.allclose(fusion.model().predict_proba(x), network(one).predict_proba(x), atol=1e-4)
    both = kf.fuse([one, silo(np.random.default_rng(5), name="b")], n_components=(8, 10, 12))
    each = [network(one), network(silo(np.random.default_rng(5)))]
    chosen = kf.fuse([one, silo(np.random.default_rng(5), name="b")])
    assert [layer.shape[0] for layer in chosen.model().layers[:2]] == [8, 10]  # filters stay apart
    assert kf.fuse([one, two]).n_components == 4  # unless they are equal
    logits = np.mean([net.outputs(x, 2000).mean(axis=0) for net in each], axis=0)
    assert np.allclose(both.model().outputs(x, 2000).mean(axis=0), logits, atol=0.1)


def test_it_learns_and_fuses(tmp_path):
    x, y = load_digits(return_X_y=True)
    x, test = x / 16.0, np.arange(len(y)) >= 1197
    nets = {}
    for j, classes in enumerate([range(6), range(4, 10)]):
        own = ~test & np.isin(y, classes)
        net = MeanFieldBNN(
            (20,), filters=(6,), kernel=3, pool=2, classes=range(10), epochs=8, batch_size=30,
            tempering=0.05, random_state=j, progress=False,
        )  # fmt: skip
        nets[f"site {j}"] = net.fit(x[own], y[own])
        assert [len(live) for live in net.live_units_] == [6, 20]
    fusion = kf.fuse(nets)
    kf.save(tmp_path / "fusion.safetensors", fusion)
    fused = kf.load(tmp_path / "fusion.safetensors").model()
    best = max(net.score(x[test], y[test]) for net in nets.values())
    assert (fused.predict(x[test]) == y[test]).mean() > best + 0.1
    fusion.report(tmp_path / "report.html")


class TestLibraries:
    @staticmethod
    def net():
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
            torch.nn.Linear(36, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3),
        )  # fmt: skip

    def test_ivon(self):
        ivon = pytest.importorskip("ivon")
        net, x = self.net(), torch.randn(30, 1, 8, 8)
        optimizer = ivon.IVON(net.parameters(), lr=0.01, ess=1e6, hess_init=10.0)
        with optimizer.sampled_params(train=True):
            net(x).square().mean().backward()
        optimizer.step()
        posterior = kf.extract(optimizer, name="a", model=net, image=(1, 8, 8))
        self.assert_same(posterior, net, x)
        with pytest.raises(kf.KLFusionError, match="expected image="):
            kf.extract(optimizer, name="a", model=net)

    def test_laplace(self):
        laplace = pytest.importorskip("laplace")
        net, x = self.net(), torch.randn(30, 1, 8, 8)
        data = torch.utils.data.TensorDataset(x, torch.arange(30) % 3)
        la = laplace.Laplace(net, "classification", "all", "diag", prior_precision=1e8)
        la.fit(torch.utils.data.DataLoader(data, batch_size=10))
        self.assert_same(kf.extract(la, name="a", image=(1, 8, 8)), net, x)

    def test_bayesian_torch(self):
        layers = pytest.importorskip("bayesian_torch.layers")
        conv = layers.Conv2dReparameterization(1, 4, 3, posterior_rho_init=-12.0)
        first = layers.LinearReparameterization(36, 8, posterior_rho_init=-12.0)
        last = layers.LinearReparameterization(8, 3, posterior_rho_init=-12.0)
        for layer in (conv, first, last):
            layer.dnn_to_bnn_flag = True
        net = torch.nn.Sequential(
            conv, torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
            first, torch.nn.ReLU(), last,
        )  # fmt: skip
        self.assert_same(kf.extract(net, name="a", image=(1, 8, 8)), net, torch.randn(9, 1, 8, 8))

    @staticmethod
    def assert_same(posterior, net, x):
        found = kf.fuse([posterior]).model().outputs(x.flatten(1).numpy(), 50).mean(axis=0)
        assert np.allclose(found, net(x).detach().numpy(), atol=0.05)


class TestWrongInput:
    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            ({"image": (1, 4, 5)}, "image="),
            ({"kernel": 9}, "fit into images"),
            ({"kernel": 0}, "kernel"),
            ({"class_statistics": True}, "class_statistics"),
        ],
    )
    def test_settings(self, settings, said):
        x, y = np.zeros((4, 16)), [0, 1, 0, 1]
        net = MeanFieldBNN((3,), filters=(2,), **{"kernel": 3, **settings})
        with pytest.raises(kf.KLFusionError, match=said):
            net.fit(x, y)

    def test_other_geometry(self):
        rng = np.random.default_rng(0)
        one, two = silo(rng), silo(rng, name="b")
        info = {**two.structure.info, "convolutions": [[9, 8, 3, 1], [7, 6, 2, 4]]}
        with pytest.raises(kf.KLFusionError):
            kf.fuse([one, type(two)(
                two.family, two.natural, "b",
                structure=type(two.structure)("layers", two.structure.arrays, info),
            )])  # fmt: skip

    def test_horseshoe_has_no_filters(self):
        with pytest.raises(TypeError):
            HorseshoeBNN(filters=(3,))
