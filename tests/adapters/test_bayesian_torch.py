"""bayesian-torch's networks: out, fused, and back again."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from klfusion.adapters import _networks, rebuild
from klfusion.adapters import bayesian_torch as adapter
from klfusion.adapters._networks import network
from klfusion.errors import IncompatibleSilosError, KLFusionError
from klfusion.networks.layer import MeanFieldNetwork
from tests.helpers.networks import N_HIDDEN, class_counts, digits, log_likelihood, masked, train

torch = pytest.importorskip("torch")
layers = pytest.importorskip(
    "bayesian_torch.layers", reason="pip install --no-deps bayesian-torch", exc_type=ImportError
)
torch.set_num_threads(1)


def module(n_in=64, n_out=10, seed=0, kind="LinearReparameterization", activation=None):
    torch.manual_seed(seed)
    first, last = (getattr(layers, kind)(*s) for s in ((n_in, N_HIDDEN), (N_HIDDEN, n_out)))
    first.dnn_to_bnn_flag = last.dnn_to_bnn_flag = True
    return torch.nn.Sequential(first, activation or torch.nn.ReLU(), last)


def nats(net):
    """KL to a standard Normal prior; bayesian-torch's own averages over the weights."""
    total = 0.0
    for layer in (net[0], net[2]):
        for mu, rho in ((layer.mu_weight, layer.rho_weight), (layer.mu_bias, layer.rho_bias)):
            sigma = torch.nn.functional.softplus(rho)
            total = total + (0.5 * (sigma**2 + mu**2 - 1) - sigma.log()).sum()
    return total


def fitted(classes, seed):
    x, y = (torch.tensor(a) for a in digits(classes))
    net = module(seed=seed)

    def loss(progress):
        fit = torch.nn.functional.cross_entropy(masked(net(x.float()), y), y)
        return fit + min(1.0, 2.0 * progress) * nats(net) / len(x)

    train(loss, net.parameters(), 300)
    return net, class_counts(y.numpy())


def permuted(net, order):
    out = module()
    out.load_state_dict(net.state_dict())
    with torch.no_grad():
        for p in (out[0].mu_weight, out[0].rho_weight, out[0].mu_bias, out[0].rho_bias):
            p.copy_(p[order].clone())
        for p in (out[2].mu_weight, out[2].rho_weight):
            p.copy_(p[:, order].clone())
    return out


@pytest.mark.parametrize("kind", ["LinearReparameterization", "LinearFlipout"])
def test_a_rebuilt_network_is_the_same(kind, tmp_path):
    net = module(kind=kind, activation=torch.nn.Tanh())
    kf.save(tmp_path / "a.safetensors", kf.extract(net, name="a"))
    loaded = kf.load(tmp_path / "a.safetensors")
    again = adapter.as_layers(loaded)
    assert isinstance(again[1], torch.nn.Tanh)
    for key, value in net.state_dict().items():
        new = again.state_dict()[key].numpy()
        np.testing.assert_allclose(new, value.numpy(), atol=1e-8)
    np.testing.assert_allclose(
        kf.extract(again, name="a").natural, loaded.natural, rtol=1e-8, atol=1e-8
    )
    x = torch.tensor(digits(test=True)[0])
    torch.manual_seed(0)
    mine = np.mean([again(x).softmax(-1).detach().numpy() for _ in range(300)], axis=0)
    assert np.abs(mine - rebuild(loaded).predict_proba(x, 300)).mean() < 0.01


def test_without_the_library_numpy_predicts(monkeypatch):
    posterior = kf.extract(module(), name="a")
    monkeypatch.setattr(_networks, "find_spec", lambda _: None)
    assert isinstance(rebuild(posterior), MeanFieldNetwork)


def test_a_permuted_network_fuses_back_to_itself():
    net, _ = fitted(range(10), seed=0)
    order = np.random.default_rng(0).permutation(N_HIDDEN)
    fusion = kf.fuse({"a": net, "b": permuted(net, order)})
    assert fusion.n_components + fusion.n_unmatched // 2 == N_HIDDEN  # without dead units
    x = digits(test=True)[0]
    alone = network(kf.extract(net, name="a"))
    np.testing.assert_allclose(
        network(fusion.posterior).predict_proba(x, 20), alone.predict_proba(x, 20), atol=0.02
    )


def test_fused_silos_have_all_classes():
    silos, nets = [], {}
    for name, classes in {"a": range(6), "b": range(4, 10)}.items():
        nets[name], counts = fitted(classes, seed=len(silos))
        silos.append(kf.extract(nets[name], name=name, class_counts=counts))
    local = [log_likelihood(network(silo)) for silo in silos]
    fused = log_likelihood(network(kf.fuse(silos).posterior))
    assert fused > max(local) + 0.5
    plain = [kf.extract(net, name=name) for name, net in nets.items()]
    assert log_likelihood(network(kf.fuse(plain).posterior)) > max(local)


class TestWrongInput:
    def test_no_bayesian_layers(self):
        with pytest.raises(KLFusionError, match="got Linear '0', whose parameters have no var"):
            kf.extract(torch.nn.Sequential(torch.nn.Linear(2, 2)), name="a")
        with pytest.raises(KLFusionError, match="got ReLU without any"):
            kf.extract(torch.nn.ReLU(), name="a")

    def test_no_bias(self):
        net = torch.nn.Sequential(*(layers.LinearFlipout(3, 3, bias=False) for _ in range(2)))
        with pytest.raises(KLFusionError, match=r"expected a bias of shape \(3,\), got none"):
            kf.extract(net, name="a")

    def test_other_activations(self):
        with pytest.raises(KLFusionError, match=r"expected one kind of activation.*got GELU"):
            kf.extract(module(activation=torch.nn.GELU()), name="a")

    def test_not_finite(self):
        net = module()
        with torch.no_grad():
            net[2].mu_weight[0, 0] = np.nan
        with pytest.raises(KLFusionError, match=r"silo 'a', 2.weight: expected finite"):
            kf.extract(net, name="a")

    def test_different_inputs(self):
        with pytest.raises(IncompatibleSilosError, match="silo 'b'"):
            kf.fuse({"a": module(), "b": module(n_in=30)})
