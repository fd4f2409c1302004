"""IVON: the posterior an optimiser holds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import klfusion as kf
from klfusion.adapters import rebuild
from klfusion.errors import KLFusionError
from tests.helpers.networks import N_HIDDEN, class_counts, digits, log_likelihood, masked

torch = pytest.importorskip("torch")
ivon = pytest.importorskip("ivon", reason="pip install ivon-opt")
torch.set_num_threads(1)


def network(sizes=(64, N_HIDDEN, 10)):
    first, *rest = (torch.nn.Linear(a, b) for a, b in pairwise(sizes))
    return torch.nn.Sequential(first, *(m for layer in rest for m in (torch.nn.ReLU(), layer)))


def fitted(classes=range(10), seed=0, steps=150):
    torch.manual_seed(seed)
    x, y = (torch.tensor(a) for a in digits(classes))
    net = network()
    optimizer = ivon.IVON(
        net.parameters(), lr=0.1, ess=len(x), hess_init=0.1, beta2=0.999, weight_decay=1e-3
    )
    for _ in range(steps):
        with optimizer.sampled_params(train=True):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(masked(net(x.float()), y), y).backward()
        optimizer.step()
    return net, optimizer, class_counts(y.numpy())


def test_variances_are_those_ivon_samples_with(tmp_path):
    net, optimizer, _ = fitted(steps=20)
    kf.save(tmp_path / "a.safetensors", kf.extract(optimizer, name="a", model=net))
    again = rebuild(kf.load(tmp_path / "a.safetensors"))
    draws = []
    for _ in range(500):
        with optimizer.sampled_params():
            draws.append(net[0].weight.detach().numpy().copy())
    mean, variance = again.mapping()["0.weight"]
    np.testing.assert_allclose(mean, net[0].weight.detach().numpy(), atol=1e-8)
    assert np.abs(np.mean(np.var(draws, axis=0) / variance) - 1) < 0.02
    group = optimizer.param_groups[0]
    expected = 1 / (group["ess"] * (group["hess"].double().numpy() + group["weight_decay"]))
    flat = np.concatenate([v.ravel() for _, v in again.mapping().values()])
    np.testing.assert_allclose(flat, expected, rtol=1e-5)  # single precision


def test_fused_silos_have_all_classes():
    silos = []
    for name, classes in {"a": range(6), "b": range(4, 10)}.items():
        net, optimizer, counts = fitted(classes, seed=len(silos))
        silos.append(kf.extract(optimizer, name=name, model=net, class_counts=counts))
    local = [log_likelihood(rebuild(silo)) for silo in silos]
    assert log_likelihood(kf.fuse(silos).model()) > max(local) + 0.5


def test_wrong_input():
    net = network()
    optimizer = ivon.IVON(net.parameters(), lr=0.1, ess=10)
    with pytest.raises(KLFusionError, match="expected model="):
        kf.extract(optimizer, name="a")
    with pytest.raises(KLFusionError, match="IVON has made no step"):
        kf.extract(optimizer, name="a", model=net)
    optimizer.current_step = 1
    with pytest.raises(KLFusionError, match=r"0.weight: expected every parameter of the model"):
        kf.extract(optimizer, name="a", model=network())
