"""NumPyro's guides, with the parameters SVI found."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from klfusion.adapters import rebuild
from klfusion.errors import KLFusionError
from tests.helpers.wine import compare, start

numpyro = pytest.importorskip("numpyro", reason="pip install numpyro jax jaxlib")
import jax  # noqa: E402
import numpyro.distributions as dist  # noqa: E402
from numpyro import handlers  # noqa: E402
from numpyro.distributions import constraints  # noqa: E402
from numpyro.infer import SVI, Trace_ELBO, init_to_value  # noqa: E402
from numpyro.infer import autoguide as guides  # noqa: E402

CENTRES = np.array([[-6.0, 0.0], [0.0, 6.0], [6.0, 0.0], [0.0, -6.0]])


def mixture(x, size):
    noise = numpyro.sample("noise", dist.LogNormal(0.0, 0.5))
    with numpyro.plate("components", size):
        mass = numpyro.sample("mass", dist.Gamma(2.0, 2.0))
        centre = numpyro.sample("centre", dist.Normal(np.zeros(2), 5.0).to_event(1))
    with numpyro.plate("data", len(x)):
        parts = dist.Independent(dist.Normal(centre, noise), 1)
        weights = dist.Categorical(mass / mass.sum())
        numpyro.sample("x", dist.MixtureSameFamily(weights, parts), obs=x)


def wine_mixture(x, size):
    """Components with a scale for each of five features."""
    with numpyro.plate("components", size):
        mass = numpyro.sample("mass", dist.Gamma(2.0, 2.0))
        centre = numpyro.sample("centre", dist.Normal(np.zeros(5), 5.0).to_event(1))
        scale = numpyro.sample("scale", dist.LogNormal(np.full(5, -1.5), 1.0).to_event(1))
    with numpyro.plate("data", len(x)):
        parts = dist.Independent(dist.Normal(centre, scale), 1)
        weights = dist.Categorical(mass / mass.sum())
        numpyro.sample("x", dist.MixtureSameFamily(weights, parts), obs=x)


def everything(x, size):
    """A site of every support, in and out of plates; without densities, which compile slowly."""

    def sample(name, support, event_shape=()):
        numpyro.sample(name, dist.ImproperUniform(support, (), event_shape))

    sample("weights", constraints.simplex, (size,))
    sample("mix", constraints.simplex, (size + 2,))
    with numpyro.plate("components", size, dim=-2):
        sample("share", constraints.unit_interval)
        sample("topic", constraints.simplex, (4,))
        sample("angle", constraints.interval(-3.0, 2.0))
        sample("tail", constraints.greater_than(0.5))
        sample("debt", constraints.less_than(-1.0))
        sample("scale", constraints.softplus_positive)
        sample("order", constraints.ordered_vector, (3,))
        with numpyro.plate("features", 3, dim=-1):
            sample("loading", constraints.real)
    with numpyro.plate("data", len(x), dim=-1):
        sample("z", constraints.real)


def loadings(x, size):
    """One site alone, which JAX compiles in a second."""
    with numpyro.plate("components", size):
        numpyro.sample("loading", dist.ImproperUniform(constraints.real, (), ()))


def traced(guide, model=everything, **settings):
    """A guide with the parameters it starts from."""
    fit = guide(model, **settings)
    sites = handlers.trace(handlers.seed(fit, 0)).get_trace(np.zeros(5), 3)
    return fit, {key: s["value"] for key, s in sites.items() if s["type"] == "param"}


def traced_loadings():
    start = init_to_value(values={"loading": np.array([-1.0, 0.0, 2.0])})
    return traced(guides.AutoNormal, loadings, init_loc_fn=start)


def test_one_site_comes_back():
    fit, params = traced_loadings()
    silo = kf.extract(fit, name="a", plate="components", params=params)
    assert silo.n_components == 3
    loading = rebuild(silo)["loading"]
    np.testing.assert_allclose(loading["median"], [-1.0, 0.0, 2.0], atol=1e-6)
    np.testing.assert_allclose(loading["variance"], 0.01, atol=1e-6)  # NumPyro's scale of 0.1


def run(guide, args, steps, model=mixture, rate=0.05):
    svi = SVI(model, guide, numpyro.optim.Adam(rate), Trace_ELBO())
    return svi.run(jax.random.PRNGKey(0), steps, *args, progress_bar=False).params


def fitted(kinds=(0, 1, 2), seed=0, guide=guides.AutoNormal, steps=300):
    rng = np.random.default_rng(seed)
    x = CENTRES[rng.choice(kinds, 200)] + rng.normal(size=(200, 2))
    start = init_to_value(values={"centre": CENTRES[list(kinds)] * 0.7})
    fit = guide(mixture, init_loc_fn=start)
    return fit, run(fit, (x, len(kinds)), steps)


@pytest.mark.slow
@pytest.mark.parametrize("guide", [guides.AutoNormal, guides.AutoDiagonalNormal])
class TestRoundTrip:
    def test_sites_come_back(self, guide, tmp_path):
        fit, params = traced(guide)
        silo = kf.extract(
            fit, name="a", plate="components", params=params, shared=["weights", "mix", "z"]
        )
        kf.save(tmp_path / "a.safetensors", silo)
        sites = rebuild(kf.load(tmp_path / "a.safetensors"))
        medians = fit.median(params)
        assert set(sites) == set(medians)
        for name, median in medians.items():
            if name == "order":
                assert sites[name]["median"] is None
                continue
            np.testing.assert_allclose(sites[name]["median"], np.asarray(median), atol=1e-6)
        assert silo.family.dim == 5 + 3 + 3 + 3  # one number each, topic, order, loading

    def test_variances_are_the_guides(self, guide):
        fit, params = traced(guide)
        params = {key: value * 1.5 for key, value in params.items()}
        sites = rebuild(kf.extract(fit, name="a", plate="components", params=params))
        scale = (
            {key: params[f"{key}_auto_scale"] for key in sites}
            if guide is guides.AutoNormal
            else fit._unpack_latent(params["auto_scale"])
        )
        for key, site in sites.items():
            variance = np.asarray(scale[key], dtype=np.float64) ** 2
            np.testing.assert_allclose(site["variance"], variance, atol=1e-8)


@pytest.mark.slow
def test_silos_fuse_to_all_clusters():
    silos = []
    for seed, (name, kinds) in enumerate({"a": (0, 1, 2), "b": (3, 2, 1)}.items()):
        fit, params = fitted(kinds, seed)
        silos.append(kf.extract(fit, name=name, plate="components", params=params))
    fusion = kf.fuse(silos)
    assert fusion.n_components == 4
    found = fusion.model()["centre"]["median"]
    order = [int(np.linalg.norm(CENTRES - row, axis=1).argmin()) for row in found]
    assert sorted(order) == [0, 1, 2, 3]
    np.testing.assert_allclose(found, CENTRES[order], atol=0.5)


def fitted_to_wine(x, size, name):
    guide = guides.AutoDiagonalNormal(
        wine_mixture, init_loc_fn=init_to_value(values=start(x, size))
    )
    params = run(guide, (x, size), 300, wine_mixture, 0.03)
    posterior = kf.extract(guide, name=name, plate="components", params=params)
    return posterior, guide.median(params)


@pytest.mark.slow
def test_fused_silos_have_all_wines():
    fusion, score = compare(fitted_to_wine, pooled=False)  # which would compile once more
    assert fusion.n_components == 3
    assert score["fused"] > max(score[name] for name in fusion.silo_names) + 1.0


def test_wrong_input():
    fit, params = traced_loadings()
    with pytest.raises(KLFusionError, match=r"expected plate=.* and params="):
        kf.extract(fit, name="a", plate="components")
    with pytest.raises(KLFusionError, match="the plates with latent sites are components"):
        kf.extract(fit, name="a", plate="topics", params=params)
    with pytest.raises(KLFusionError, match=r"the guide's own parameters .* 'loading_auto_loc'"):
        del params["loading_auto_loc"]
        kf.extract(fit, name="a", plate="components", params=params)
    with pytest.raises(KLFusionError, match="expected a trained guide"):
        kf.extract(guides.AutoNormal(loadings), name="a", plate="components", params={})
    with pytest.raises(KLFusionError, match="cannot read a posterior from AutoLaplace"):
        kf.extract(guides.AutoLaplaceApproximation(loadings), name="a")
