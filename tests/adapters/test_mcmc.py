"""MCMC objects of NumPyro and Pyro, and traces of PyMC: supports come from the program."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf

COORDINATES = ["beta[0]", "beta[1]", "log(sigma)", "sticks(w)[0]"]


@pytest.mark.slow
def test_numpyro():
    jax = pytest.importorskip("jax")
    numpyro = pytest.importorskip("numpyro")
    from numpyro import distributions as dist

    def model(y):
        beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
        numpyro.sample("w", dist.Dirichlet(np.ones(2)))
        numpyro.deterministic("total", beta.sum())
        numpyro.sample("y", dist.Normal(beta[0], sigma), obs=y)

    settings = {"num_chains": 2, "chain_method": "vectorized", "progress_bar": False}
    kernel = numpyro.infer.NUTS(model)
    mcmc = numpyro.infer.MCMC(kernel, num_warmup=200, num_samples=300, **settings)
    mcmc.run(jax.random.key(0), np.array([0.1, -0.2, 0.4]), extra_fields=("diverging",))
    own = kf.extract(mcmc, name="a")
    assert own.structure.info["coordinates"] == COORDINATES
    part = kf.extract(mcmc, name="a", variables=["beta"])
    np.testing.assert_allclose(
        part.params()["mean"][0], np.asarray(mcmc.get_samples()["beta"]).mean(axis=0), atol=1e-5
    )


def test_numpyro_without_a_run():
    numpyro = pytest.importorskip("numpyro")
    mcmc = numpyro.infer.MCMC(numpyro.infer.NUTS(lambda: None), num_warmup=1, num_samples=1)
    with pytest.raises(kf.KLFusionError, match=r"silo .a.: expected draws; call mcmc.run"):
        kf.extract(mcmc, name="a")


@pytest.mark.slow
def test_pyro():
    torch, pyro = pytest.importorskip("torch"), pytest.importorskip("pyro")
    from pyro import distributions as dist
    from pyro.infer import MCMC, NUTS

    def model(y):
        beta = pyro.sample("beta", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        sigma = pyro.sample("sigma", dist.HalfNormal(1.0))
        pyro.sample("w", dist.Dirichlet(torch.ones(2)))
        pyro.sample("y", dist.Normal(beta[0], sigma).expand([3]).to_event(1), obs=y)

    pyro.set_rng_seed(0)
    mcmc = MCMC(NUTS(model), num_samples=100, warmup_steps=50, disable_progbar=True)
    mcmc.run(torch.tensor([0.1, -0.2, 0.4]))
    assert kf.extract(mcmc, name="a").structure.info["coordinates"] == COORDINATES


def test_pymc_trace():
    """A trace as ``pm.sample(return_inferencedata=False)`` gives it, without the sampling."""
    pymc = pytest.importorskip("pymc")
    from pymc.backends.base import MultiTrace
    from pymc.backends.ndarray import NDArray

    rng, chains = np.random.default_rng(0), []
    with pymc.Model() as model:
        beta = pymc.Normal("beta", shape=2)
        pymc.HalfNormal("sigma")
        pymc.Deterministic("twice", 2 * beta)
    for chain in range(2):
        own = NDArray(model=model)
        own.setup(300, chain)
        for _ in range(300):
            log_sigma = rng.normal(0.0, 0.1)
            point = {"beta": rng.normal([1.0, 2.0], 0.1), "sigma_log__": np.array(log_sigma)}
            own.record(point, in_warmup=False)
        own.close()
        chains.append(own)
    with pytest.raises(kf.KLFusionError, match="name the free variables in variables="):
        kf.extract(MultiTrace(chains), name="a")
    found = kf.extract(MultiTrace(chains), name="a", of_model=model)
    assert found.structure.info["coordinates"] == ["beta[0]", "beta[1]", "log(sigma)"]
    np.testing.assert_allclose(found.params()["mean"][0], [1.0, 2.0, 0.0], atol=0.02)
