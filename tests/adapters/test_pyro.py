"""Pyro's guides: the sites of a plate become components."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from klfusion.adapters import rebuild
from klfusion.errors import IncompatibleSilosError, KLFusionError
from tests.helpers.wine import compare, start

torch = pytest.importorskip("torch")
pyro = pytest.importorskip("pyro", reason="pip install pyro-ppl")
import pyro.distributions as dist  # noqa: E402
from pyro.infer import SVI, Trace_ELBO  # noqa: E402
from pyro.infer import autoguide as guides  # noqa: E402

torch.set_num_threads(1)

CENTRES = np.array([[-6.0, 0.0], [0.0, 6.0], [6.0, 0.0], [0.0, -6.0]])


def mixture(x, size):
    """Gaussian clusters with exchangeable weights, and a noise that all share."""
    noise = pyro.sample("noise", dist.LogNormal(0.0, 0.5))
    with pyro.plate("components", size):
        mass = pyro.sample("mass", dist.Gamma(2.0, 2.0))
        centre = pyro.sample("centre", dist.Normal(torch.zeros(2), 5.0).to_event(1))
    with pyro.plate("data", len(x)):
        parts = dist.Independent(dist.Normal(centre, noise), 1)
        weights = dist.Categorical(mass / mass.sum())
        pyro.sample("x", dist.MixtureSameFamily(weights, parts), obs=x)


def everything(x, size):
    """A site of every support, in and out of plates."""
    pyro.sample("weights", dist.Dirichlet(torch.ones(size)))
    pyro.sample("mix", dist.Dirichlet(torch.ones(size + 2)))
    with pyro.plate("components", size, dim=-2):
        pyro.sample("share", dist.Beta(2.0, 2.0))
        pyro.sample("topic", dist.Dirichlet(torch.ones(4)))
        pyro.sample("angle", dist.Uniform(-3.0, 2.0))
        pyro.sample("chol", dist.LKJCholesky(3))
        with pyro.plate("features", 3, dim=-1):
            pyro.sample("loading", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(x), dim=-1):
        z = pyro.sample("z", dist.Normal(0.0, 1.0))
        pyro.sample("x", dist.Normal(z, 1.0), obs=x)


def wine_mixture(x, size):
    """Components with a scale for each of five features."""
    with pyro.plate("components", size):
        mass = pyro.sample("mass", dist.Gamma(2.0, 2.0))
        centre = pyro.sample("centre", dist.Normal(torch.zeros(5), 5.0).to_event(1))
        scale = pyro.sample("scale", dist.LogNormal(torch.full((5,), -1.5), 1.0).to_event(1))
    with pyro.plate("data", len(x)):
        parts = dist.Independent(dist.Normal(centre, scale), 1)
        weights = dist.Categorical(mass / mass.sum())
        pyro.sample("x", dist.MixtureSameFamily(weights, parts), obs=x)


def sample(kinds, seed, n=200):
    rng = np.random.default_rng(seed)
    x = CENTRES[rng.choice(kinds, n)] + rng.normal(size=(n, 2))
    return torch.tensor(x, dtype=torch.float32)


def fitted(kinds=(0, 1, 2), seed=0, guide=guides.AutoNormal, steps=300):
    pyro.clear_param_store()
    pyro.set_rng_seed(seed)
    x = sample(list(kinds), seed)
    start = torch.tensor(CENTRES[list(kinds)] * 0.7, dtype=torch.float32)
    init = guides.initialization.init_to_value(values={"centre": start})
    fit = guide(mixture, init_loc_fn=init)
    svi = SVI(mixture, fit, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
    for _ in range(steps):
        svi.step(x, len(kinds))
    return fit


def traced(guide, size=3):
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    fit = guide(everything)
    fit(torch.zeros(5), size)
    with torch.no_grad():
        for p in fit.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return fit


@pytest.mark.parametrize("guide", [guides.AutoNormal, guides.AutoDiagonalNormal])
class TestRoundTrip:
    def test_sites_come_back(self, guide, tmp_path):
        fit = traced(guide)
        shared = ["weights", "mix", "z"]
        silo = kf.extract(fit, name="a", plate="components", shared=shared)
        kf.save(tmp_path / "a.safetensors", silo)
        sites = rebuild(kf.load(tmp_path / "a.safetensors"))
        medians = fit.median()
        assert set(sites) == set(medians)
        for name, median in medians.items():
            if name == "chol":
                assert sites[name]["median"] is None
                continue
            np.testing.assert_allclose(sites[name]["median"], median.numpy(), atol=1e-6)
        assert silo.n_components == 3
        assert silo.family.dim == 1 + 3 + 1 + 3 + 3

    def test_variances_are_the_guides(self, guide):
        fit = fitted(guide=guide, steps=5)
        sites = rebuild(kf.extract(fit, name="a", plate="components"))
        if guide is guides.AutoNormal:
            scale = {key: getattr(fit.scales, key) for key in sites}
            loc = {key: getattr(fit.locs, key) for key in sites}
        else:
            scale = {s["name"]: v for s, v in fit._unpack_latent(fit.scale)}
            loc = {s["name"]: v for s, v in fit._unpack_latent(fit.loc)}
        for key, site in sites.items():
            np.testing.assert_allclose(site["mean"], loc[key].detach().numpy(), atol=1e-8)
            variance = scale[key].detach().double().numpy() ** 2
            np.testing.assert_allclose(site["variance"], variance, atol=1e-8)


def test_a_guide_of_ones_own_class_comes_back():
    class Own(guides.AutoNormal):
        pass

    assert set(rebuild(kf.extract(traced(Own), name="a", plate="components"))) >= {"topic"}


def test_what_belongs_to_observations_stays_home():
    structure = kf.extract(traced(guides.AutoNormal), name="a", plate="components").structure
    assert structure.info["left_out"] == ["weights", "z"]
    assert [s["name"] for s in structure.info["shared"]] == ["mix"]


def test_silos_fuse_to_all_clusters():
    silos = [
        kf.extract(fitted(kinds, seed), name=name, plate="components")
        for seed, (name, kinds) in enumerate({"a": (0, 1, 2), "b": (3, 2, 1)}.items())
    ]
    fusion = kf.fuse(silos)
    assert fusion.n_components == 4
    sites = fusion.model()
    found = sites["centre"]["median"]
    order = [int(np.linalg.norm(CENTRES - row, axis=1).argmin()) for row in found]
    assert sorted(order) == [0, 1, 2, 3]
    np.testing.assert_allclose(found, CENTRES[order], atol=0.5)
    np.testing.assert_allclose(sites["noise"]["median"], 1.0, atol=0.2)
    assert sites["mass"]["median"].shape == (4,)


def fitted_to_wine(x, size, name):
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    begin = {k: torch.tensor(v, dtype=torch.float32) for k, v in start(x, size).items()}
    init = guides.initialization.init_to_value(values=begin)
    guide = guides.AutoNormal(wine_mixture, init_loc_fn=init)
    svi = SVI(wine_mixture, guide, pyro.optim.Adam({"lr": 0.03}), Trace_ELBO())
    for _ in range(300):
        svi.step(torch.tensor(x, dtype=torch.float32), size)
    return kf.extract(guide, name=name, plate="components"), guide.median()


@pytest.mark.slow
def test_fused_silos_have_all_wines():
    fusion, score = compare(fitted_to_wine)
    assert fusion.n_components == 3
    assert score["fused"] > max(score[name] for name in fusion.silo_names) + 1.0


def test_medians_start_a_model_of_the_fused_size():
    silos = [
        kf.extract(fitted(kinds, seed, steps=100), name=str(kinds), plate="components")
        for seed, kinds in enumerate([(0, 1), (1, 2)])
    ]
    fusion = kf.fuse(silos, n_components=3)
    values = {
        name: torch.tensor(site["median"], dtype=torch.float32)
        for name, site in fusion.model().items()
    }
    pyro.clear_param_store()
    start = guides.initialization.init_to_value(values=values)
    guide = guides.AutoNormal(mixture, init_loc_fn=start)
    guide(sample([0, 1, 2], 5), 3)
    for name, median in guide.median().items():
        np.testing.assert_allclose(median.numpy(), values[name], rtol=1e-5)


class TestWrongInput:
    def test_the_plate(self):
        fit = fitted(steps=1)
        with pytest.raises(KLFusionError, match="expected plate="):
            kf.extract(fit, name="a")
        message = "silo 'a': expected latent sites in a plate 'topics'.*are components"
        with pytest.raises(KLFusionError, match=message):
            kf.extract(fit, name="a", plate="topics")

    def test_not_trained(self):
        with pytest.raises(KLFusionError, match="expected a trained guide"):
            kf.extract(guides.AutoNormal(mixture), name="a", plate="components")

    def test_other_guides(self):
        with pytest.raises(KLFusionError, match="got AutoMultivariateNormal"):
            kf.extract(guides.AutoMultivariateNormal(mixture), name="a")

    def test_shared_sites(self):
        fit = fitted(steps=1)
        with pytest.raises(KLFusionError, match="shared sites outside the plate, noise, got mass"):
            kf.extract(fit, name="a", plate="components", shared=["mass"])
        both = kf.extract(fit, name="a", plate="components")
        none = kf.extract(fit, name="b", plate="components", shared=[])
        with pytest.raises(IncompatibleSilosError, match="the same shared, got noise"):
            kf.fuse([both, none])

    def test_not_finite(self):
        fit = fitted(steps=1)
        with torch.no_grad():
            next(p for p in fit.parameters() if p.shape == (3, 2)).fill_(np.nan)
        with pytest.raises(KLFusionError, match="silo 'a', component 0"):
            kf.extract(fit, name="a", plate="components")
