"""The fused posterior as the prior of the next model."""

from __future__ import annotations

import re

import numpy as np
import pytest

import klfusion as kf
from klfusion.draws.fused import joint_normal
from klfusion.draws.variables import constrained
from tests.helpers.draws import conjugate


def fusion():
    silos = []
    for k, name in enumerate("ab"):
        rng = np.random.default_rng(k)
        shared = rng.normal(size=(4, 500, 1))
        beta = shared * [0.1, -0.1] + rng.normal([1.0, 0.5], 0.05, (4, 500, 2))
        own = {
            "beta": beta,
            "sigma": np.exp(rng.normal(0.5, 0.1, (4, 500))),
            "w": rng.dirichlet([5, 3, 2], (4, 500)),
            "L": np.tile(np.linalg.cholesky([[1.0, 0.5], [0.5, 1.0]]), (4, 500, 1, 1)),
            "cut": np.cumsum(np.exp(rng.normal(size=(4, 500, 3))), axis=-1),
        }
        angle = np.tanh(rng.normal(0.5, 0.1, (4, 500)))
        own["L"][..., 1, 0], own["L"][..., 1, 1] = angle, np.sqrt(1 - angle**2)
        silos.append(kf.from_draws(own, name=name, supports={"cut": "ordered"}))
    return kf.fuse(silos)


@pytest.fixture(scope="module")
def fused():
    return fusion()


def test_stan_code_assigns_every_element(fused):
    code = fused.as_prior("stan")
    size = len(joint_normal(fused.posterior).mean)
    assert f"vector[{size}] fused = fused_mean + fused_factor * fused_z;" in code
    assert "fused_z ~ std_normal();" in code
    for line in ("real sigma;", "vector[3] w;", "matrix[2, 2] L;", "vector[3] cut;",
                 "beta[2] = fused[2];", "sigma = 0.0 + exp(fused[3]);", "L[1, 2] = 0;",
                 "w[3] = 1 - w[1] - w[2];"):  # fmt: skip
        assert line in code
    assert code.count("{") == code.count("}")


class OneBased(dict):
    """An array whose entries are assigned one by one, by indices that begin at one."""


def evaluated(code, fused):
    """Values of the variables of a Stan program, its statements read as Python."""
    body = code.partition("transformed parameters {")[2].partition("}")[0]
    names = {"exp": np.exp, "log": np.log, "tanh": np.tanh, "sqrt": np.sqrt, "square": np.square}
    names |= {"inv": np.reciprocal, "abs": np.abs, "inv_logit": lambda x: 1 / (1 + np.exp(-x))}
    names["fused"] = dict(enumerate(fused, 1))
    for line in body.partition("fused_z;")[2].replace(";", "").splitlines():
        declared = re.fullmatch(r"\s*(?:real|vector\[.*\]|matrix\[.*\]) (\w+)", line)
        if declared:
            names[declared[1]] = OneBased()
        else:
            exec(line.strip(), names)
    return names


def test_stan_code_computes_the_variables(fused):
    joint = joint_normal(fused.posterior)
    x = joint.mean + 0.1 * np.random.default_rng(0).normal(size=len(joint.mean))
    found, expected = evaluated(fused.as_prior("stan"), x), constrained(joint.variables, x)
    for name, values in expected.items():
        if values.ndim == 0:
            assert found[name] == pytest.approx(float(values))
        for index in np.ndindex(values.shape) if values.ndim else ():
            place = tuple(i + 1 for i in index)
            own = found[name][place[0] if len(place) == 1 else place]
            assert own == pytest.approx(values[index], abs=1e-12), (name, index)


def test_silos_that_differ_make_a_warning():
    """Six silos of deviation 0.05 that lie 0.2 apart; not where they agree, or may vary."""
    rng = np.random.default_rng(0)
    silos = {
        name: kf.from_draws({"beta": rng.normal(m, 0.05, (4, 1000))}, name=name)
        for name, m in zip("abcdef", [1.06, 0.93, 1.32, 1.05, 0.73, 1.18], strict=True)
    }
    with pytest.warns(UserWarning, match="differ in 'beta' .*'hierarchical'") as w:
        kf.fuse(silos).as_prior("stan")
    assert w[0].filename == __file__
    kf.fuse(silos, pooling="hierarchical").as_prior("stan")
    kf.fuse([silos["a"], silos["d"]]).as_prior("stan")


def test_warnings_use_the_names_of_variables():
    """Of coordinates in units of the noise, too, and where the difference is moderate."""
    rng = np.random.default_rng(0)
    silos = [
        kf.from_draws(
            {"beta": rng.normal(m, 0.05, (4, 1000, 1)), "noise": rng.lognormal(0, 0.02, (4, 1000))},
            name=name, dims={"beta": ["covariate"]}, coords={"covariate": ["age"]},
            scales={"beta": "noise"},
        )
        for name, m in zip("abc", [0.9, 1.0, 1.17], strict=True)
    ]  # fmt: skip
    with pytest.warns(UserWarning, match=r"silos differ in 'beta\[age\]' .*\(p 0.00"):
        kf.fuse(silos).as_prior("stan")
    finding = next(f for f in kf.diagnose(kf.fuse(silos)).findings if "differs most" in f.reason)
    assert finding.reason.startswith("coefficient 'beta[age]' differs most")


def test_other_libraries_are_refused(fused):
    with pytest.raises(
        kf.KLFusionError, match=r"expected a library of \['numpyro', 'pymc', 'stan'\]"
    ):
        fused.as_prior("jags")
    rates = kf.families.Gamma()
    plain = kf.fuse([kf.Posterior(rates, rates.natural([3.0], [1.0]), name=n) for n in "ab"])
    with pytest.raises(kf.KLFusionError, match=r"expected a posterior of draws, as kf.fr"):
        plain.as_prior("stan")


def test_numpyro_samples_what_the_fusion_says(fused):
    jax = pytest.importorskip("jax")
    numpyro = pytest.importorskip("numpyro")
    prior = fused.as_prior("numpyro")
    found = numpyro.infer.Predictive(prior, num_samples=4000)(jax.random.key(0))
    own = joint_normal(fused.posterior).sample(1, 4000, 0)
    assert set(own) | {"fused", "fused_z"} == set(found)
    for name, values in own.items():
        flat, there = values[0].reshape(4000, -1), np.asarray(found[name]).reshape(4000, -1)
        spread = flat.std(axis=0) + 1e-9
        assert (np.abs(flat.mean(axis=0) - there.mean(axis=0)) / spread).max() < 0.1, name
    correlation = np.corrcoef(np.asarray(found["beta"]).T)[0, 1]
    assert correlation == pytest.approx(np.corrcoef(own["beta"][0].T)[0, 1], abs=0.05)


def test_pymc_samples_what_the_fusion_says(fused):
    pymc = pytest.importorskip("pymc")
    with pymc.Model():
        prior = fused.as_prior("pymc")()
        values = pymc.draw([prior[name] for name in ("beta", "sigma", "w", "L", "cut")], 2000,
                           random_seed=0)  # fmt: skip
    own = joint_normal(fused.posterior).sample(1, 2000, 0)
    for name, there in zip(("beta", "sigma", "w", "L", "cut"), values, strict=True):
        flat = own[name][0].reshape(2000, -1)
        error = np.abs(flat.mean(axis=0) - there.reshape(2000, -1).mean(axis=0))
        assert (error / (flat.std(axis=0) + 1e-9)).max() < 0.15, name


def test_samplers_start_where_the_noise_is_positive():
    """Between positive and negative values of ``1 / sigma`` is a wall that no chain passes."""
    jax = pytest.importorskip("jax")
    numpyro = pytest.importorskip("numpyro")
    pymc = pytest.importorskip("pymc")
    rng = np.random.default_rng(0)
    x = np.column_stack([np.ones(60), rng.normal(size=60)])
    own = conjugate(x, x @ [1.0, 0.5] + rng.normal(size=60), rng)
    fusion = kf.fuse([kf.from_draws(own, name="a", scales={"beta": "sigma"})])
    joint = joint_normal(fusion.posterior)
    prior = fusion.as_prior("numpyro")
    with pymc.Model() as model:
        fusion.as_prior("pymc")()
    for seed in range(5):
        start = numpyro.infer.util.initialize_model(jax.random.key(seed), prior).param_info.z
        jitter = model.initial_point()["fused_z"] + rng.uniform(-1, 1, len(joint.mean))
        for z in (start["fused_z"], jitter):
            assert (joint.mean + np.linalg.cholesky(joint.covariance) @ z)[-1] > 0


@pytest.mark.slow
def test_a_second_site_reproduces_the_pooled_posterior():
    """NUTS at a site whose prior is the fused posterior of another."""
    jax = pytest.importorskip("jax")
    numpyro = pytest.importorskip("numpyro")
    from numpyro.distributions import Normal
    from numpyro.infer import MCMC, NUTS

    rng = np.random.default_rng(0)
    x = np.column_stack([np.ones(400), rng.normal(size=400)])
    y = x @ [1.0, 0.5] + rng.normal(size=400)
    first = conjugate(x[:200], y[:200], rng)
    own = kf.from_draws(first, name="first", scales={"beta": "sigma"})
    prior = kf.fuse([own]).as_prior("numpyro")

    def model(x, y):
        values = prior()
        numpyro.sample("y", Normal(x @ values["beta"], values["sigma"]), obs=y)

    mcmc = MCMC(NUTS(model), num_warmup=500, num_samples=4000, progress_bar=False)
    mcmc.run(jax.random.key(0), x[200:], y[200:])
    found, pooled = mcmc.get_samples(), conjugate(x, y, rng)
    for key, values in pooled.items():
        there, own = np.asarray(found[key]), values.reshape(-1, *values.shape[2:])
        deviation = own.std(axis=0)
        error = np.abs(there.mean(axis=0) - own.mean(axis=0)) / deviation
        assert error.max() < 0.1, key  # about four standard errors of 2,000 effective draws
        np.testing.assert_allclose(there.std(axis=0) / deviation, 1.0, atol=0.07)
