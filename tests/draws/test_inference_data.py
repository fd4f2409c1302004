"""ArviZ's InferenceData in and out."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import klfusion as kf

with warnings.catch_warnings():  # it announces its next version
    warnings.simplefilter("ignore")
    arviz = pytest.importorskip("arviz")
xarray = pytest.importorskip("xarray")

COORDS = {"covariate": ["age", "dose"]}


def idata(seed=0, **groups):
    rng = np.random.default_rng(seed)
    posterior = {
        "beta": rng.normal([1.0, 0.5], 0.1, (4, 500, 2)),
        "sigma": np.exp(rng.normal(0.5, 0.1, (4, 500))),
    }
    return arviz.from_dict(
        posterior=posterior, dims={"beta": ["covariate"]}, coords=COORDS, **groups
    )


def test_extract_takes_dims_coords_and_divergences():
    own = kf.extract(
        idata(sample_stats={"diverging": np.arange(2000).reshape(4, 500) < 2}), name="a"
    )
    assert own.structure.info["coordinates"] == ["beta[age]", "beta[dose]", "log(sigma)"]
    assert "2 of 2000 transitions diverged" in own.provenance["findings"][0]
    again = kf.from_draws(
        {key: idata().posterior[key].values for key in ("beta", "sigma")}, name="a",
        dims={"beta": ["covariate"]}, coords=COORDS,
    )  # fmt: skip
    np.testing.assert_allclose(own.natural, again.natural)


def test_a_tree_of_arviz_1():
    tree = xarray.DataTree.from_dict({"/posterior": idata().posterior})
    np.testing.assert_allclose(
        kf.extract(tree, name="a").natural, kf.extract(idata(), name="a").natural
    )


def test_the_prior_group_is_the_prior():
    rng = np.random.default_rng(1)
    own = kf.extract(idata(prior={"beta": rng.normal(0.0, 2.0, (1, 5000, 2))}), name="a")
    assert own.prior[3] == pytest.approx(0.25, rel=0.1)
    flat = kf.extract(idata(prior={"beta": rng.normal(size=(1, 99, 2))}), name="a", prior="flat")
    assert flat.prior[3] == 0.0


def test_a_fusion_gives_draws_back():
    fusion = kf.fuse({name: idata(k) for k, name in enumerate("abc")})
    out = fusion.to_inference_data(draws=2000)
    assert out.posterior["beta"].dims == ("chain", "draw", "covariate")
    assert out.posterior["covariate"].values.tolist() == ["age", "dose"]
    assert float(out.posterior["sigma"].min()) > 0
    again, before = kf.extract(out, name="again").params(), fusion.posterior.params()
    deviation = np.sqrt(np.diag(before["covariance"][0]))
    error = (again["mean"][0] - before["mean"][0]) / deviation
    assert np.abs(error).max() < 4 / np.sqrt(8000)  # Monte-Carlo error
    spread = np.sqrt(np.diag(again["covariance"][0])) / deviation
    np.testing.assert_allclose(spread, 1.0, atol=4 / np.sqrt(16_000))
    assert list(arviz.summary(out).index) == ["beta[age]", "beta[dose]", "sigma"]
    assert fusion.model().posterior["beta"].shape == (4, 1000, 2)


def test_a_silo_has_its_local_variables():
    silos = [kf.extract(idata(k), name=name, local=["sigma"]) for k, name in enumerate("ab")]
    fusion = kf.fuse(silos)
    assert set(fusion.to_inference_data(10).posterior.data_vars) == {"beta"}
    assert set(fusion.to_inference_data(10, silo="a").posterior.data_vars) == {"beta", "sigma"}


def test_part_of_a_variable():
    silos = [kf.extract(idata(k), name=n, local=["beta[dose]"]) for k, n in enumerate("ab")]
    found = kf.fuse(silos).to_inference_data(10).posterior
    assert set(found.data_vars) == {"beta[age]", "sigma"}


def test_components_give_draws_back():
    silos = []
    for k in range(3):
        rng = np.random.default_rng(k)
        own = {
            "mu": rng.normal([[0.0, 0.0], [4.0, 1.0]], 0.1, (2, 400, 2, 2)),
            "w": rng.dirichlet([40, 60], (2, 400)),
            "nu": np.exp(rng.normal(0.0, 0.1, (2, 400))),
        }
        silos.append(
            kf.from_draws(own, name=f"s{k}", components="component", supports={"nu": "positive"},
                          dims={"mu": ["component", "column"], "w": ["component"]})
        )  # fmt: skip
    out = kf.fuse(silos).to_inference_data(2000).posterior
    assert out["mu"].dims == ("chain", "draw", "component", "column")
    np.testing.assert_allclose(np.sort(out["w"].mean(("chain", "draw"))), [0.4, 0.6], atol=0.03)
    assert float(out["nu"].std()) == pytest.approx(0.1 / np.sqrt(3), rel=0.2)


def test_relabel_keeps_the_rest():
    rng = np.random.default_rng(0)
    mu = rng.permuted(rng.normal([-2.0, 2.0], 0.2, (4, 250, 2)), axis=2)
    posterior = {"mu": mu, "nu": rng.normal(size=(4, 250))}
    given = arviz.from_dict(posterior=posterior, dims={"mu": ["component"]})
    found = kf.relabel(given, components="component")
    assert float(found.posterior["mu"].std(("chain", "draw")).max()) < 0.3
    np.testing.assert_array_equal(found.posterior["nu"], given.posterior["nu"])
    assert found.sample_stats["relabel_probability"].dims == ("chain", "draw")
    assert found.posterior.attrs["relabel_findings"] == ""
    assert float(given.posterior["mu"].std(("chain", "draw")).min()) > 1  # a copy was changed
    tree = xarray.DataTree.from_dict({"/posterior": given.posterior})
    again = kf.relabel(tree, components="component")
    np.testing.assert_array_equal(again["posterior"]["mu"], found.posterior["mu"])


def test_no_posterior():
    empty = arviz.from_dict(prior={"a": np.zeros((1, 9))})
    with pytest.raises(kf.KLFusionError, match="silo 'a': expected an InferenceData with a post"):
        kf.extract(empty, name="a")
    with pytest.raises(kf.KLFusionError, match="silo 'a': draws take no plate; their options are"):
        kf.extract(idata(), name="a", plate="x")


def test_a_file_is_a_silo(tmp_path):
    pytest.importorskip("h5netcdf")
    for k, name in enumerate("ab"):
        idata(k).to_netcdf(str(tmp_path / f"site-{name}.nc"))
    fusion = kf.fuse([tmp_path / "site-a.nc", str(tmp_path / "site-b.nc")])
    assert fusion.silo_names == ("site-a", "site-b")
    (tmp_path / "bad.nc").write_bytes(b"nothing")
    with pytest.raises(kf.KLFusionError, match=r"bad.nc: expected draws of ArviZ"):
        kf.extract(tmp_path / "bad.nc", name="a")


@pytest.mark.filterwarnings("ignore")  # zarr has no standard for texts
def test_a_zarr_store_is_a_silo(tmp_path):
    pytest.importorskip("zarr")
    xarray.DataTree.from_dict({"/posterior": idata().posterior}).to_zarr(tmp_path / "a.zarr")
    found = kf.extract(tmp_path / "a.zarr", name="a")
    np.testing.assert_allclose(found.natural, kf.extract(idata(), name="a").natural)
    (tmp_path / "bad.zarr").mkdir()
    with pytest.raises(kf.KLFusionError, match=r"bad.zarr: expected draws of ArviZ"):
        kf.extract(tmp_path / "bad.zarr", name="a")


def test_pymc_models_say_what_is_free():
    pymc = pytest.importorskip("pymc")
    from klfusion.adapters.inference_data import supports

    with pymc.Model() as model:
        beta = pymc.Normal("beta", shape=2)
        sigma = pymc.HalfNormal("sigma")
        pymc.Uniform("p", 1.0, 3.0)
        pymc.Dirichlet("w", [1.0, 1.0])
        pymc.Deterministic("twice", 2 * beta)
        pymc.Normal("y", beta[0], sigma, observed=[1.0])
    found = supports(model)
    assert found == {"beta": "real", "sigma": "positive", "p": (1.0, 3.0), "w": "simplex"}
    rng, given = np.random.default_rng(0), idata()
    more = given.posterior.assign(
        p=(("chain", "draw"), rng.uniform(1.1, 2.9, (4, 500))),
        w=(("chain", "draw", "k"), rng.dirichlet([3, 4], (4, 500))),
        twice=2 * given.posterior["beta"],
    )
    own = kf.extract(arviz.InferenceData(posterior=more), name="a", of_model=model)
    assert "logit(p)" in own.structure.info["coordinates"]
    assert not any("twice" in key for key in own.structure.info["coordinates"])
