"""laplace-torch: a diagonal Laplace approximation of a network."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from klfusion.adapters import rebuild
from klfusion.errors import KLFusionError
from tests.helpers.networks import N_HIDDEN, class_counts, digits, log_likelihood, masked, train

pytestmark = [pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")]

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def laplace():
    torch.set_num_threads(1)
    return pytest.importorskip(
        "laplace", reason="pip install --no-deps laplace-torch", exc_type=ImportError
    )


class Silo(torch.nn.Module):
    """A network that gives no probability to classes its silo has not seen."""

    def __init__(self, seen):
        super().__init__()
        self.fc1, self.fc2 = torch.nn.Linear(64, N_HIDDEN), torch.nn.Linear(N_HIDDEN, 10)
        self.activation, self.seen = torch.nn.ReLU(), torch.tensor(sorted(seen))

    def forward(self, x):
        return masked(self.fc2(self.activation(self.fc1(x))), self.seen)


def fitted(laplace, classes=range(10), seed=0, **settings):
    torch.manual_seed(seed)
    x, y = (torch.tensor(a) for a in digits(classes))
    net = Silo(classes)

    def loss(_):
        decay = 0.5 * sum((p**2).sum() for p in net.parameters()) / len(x)
        return torch.nn.functional.cross_entropy(net(x.float()), y) + decay

    train(loss, net.parameters(), 150)
    settings = {"subset_of_weights": "all", "hessian_structure": "diag"} | settings
    approximation = laplace.Laplace(net, "classification", **settings)
    data = torch.utils.data.TensorDataset(x.float(), y)
    approximation.fit(torch.utils.data.DataLoader(data, batch_size=200))
    return approximation, class_counts(y.numpy())


def test_a_rebuilt_network_is_the_same(laplace, tmp_path):
    approximation, _ = fitted(laplace)
    kf.save(tmp_path / "a.safetensors", kf.extract(approximation, name="a"))
    again = rebuild(kf.load(tmp_path / "a.safetensors"))
    flat = [np.concatenate([p[i].ravel() for p in again.mapping().values()]) for i in (0, 1)]
    np.testing.assert_allclose(flat[0], approximation.mean.numpy(), atol=1e-8)
    np.testing.assert_allclose(flat[1], approximation.posterior_variance.numpy(), atol=1e-8)
    x = digits(test=True)[0]
    theirs = approximation(
        torch.tensor(x).float(), pred_type="nn", link_approx="mc", n_samples=2000
    )
    # Two of our own seeds differ by 0.005 on average.
    assert np.abs(again.predict_proba(x, 2000, how="monte-carlo") - theirs.numpy()).mean() < 0.01


def test_fused_silos_have_all_classes(laplace):
    silos = []
    for name, classes in {"a": range(6), "b": range(4, 10)}.items():
        approximation, counts = fitted(laplace, classes, seed=len(silos))
        silos.append(kf.extract(approximation, name=name, class_counts=counts))
    local = [log_likelihood(rebuild(silo)) for silo in silos]
    assert log_likelihood(kf.fuse(silos).model()) > max(local)


def test_wrong_input(laplace):
    net = Silo(range(10))
    raw = laplace.Laplace(net, "classification", subset_of_weights="all", hessian_structure="diag")
    with pytest.raises(KLFusionError, match="call fit first"):
        kf.extract(raw, name="a")
    with pytest.raises(KLFusionError, match=r"over all weights.*got DiagLLLaplace"):
        last, _ = fitted(laplace, range(2), subset_of_weights="last_layer")
        kf.extract(last, name="a")
    with pytest.raises(KLFusionError, match="cannot read a posterior from KronLaplace"):
        kron, _ = fitted(laplace, range(2), hessian_structure="kron")
        kf.extract(kron, name="a")
