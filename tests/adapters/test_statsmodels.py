"""statsmodels' GLM, Logit and PHReg."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import klfusion as kf
from klfusion.errors import KLFusionError
from tests.helpers.loops import for_each
from tests.helpers.regressions import COLUMNS, divided, patients, rows

sm = pytest.importorskip("statsmodels.api")


def glm(x, y):
    return sm.GLM(y, sm.add_constant(x, has_constant="add"), family=sm.families.Binomial()).fit()


def logit(x, y):
    return sm.Logit(y, sm.add_constant(x, has_constant="add")).fit(disp=0)


@for_each("fit", [glm, logit])
def test_out_and_back(fit):
    x, y = patients(400, np.random.default_rng(0))
    parts, pooled = divided(x, y, 3, np.random.default_rng(0)), fit(x, y)
    models = {n: fit(*data) for n, data in parts.items()}
    fusion = kf.fuse({n: kf.extract(m, name=n, local=["const"]) for n, m in models.items()})
    back = fusion.model("h0")
    assert type(back) is type(pooled)
    assert back.params.index.tolist() == ["const", *COLUMNS]
    np.testing.assert_allclose(back.params[COLUMNS], pooled.params[COLUMNS], atol=0.1)
    np.testing.assert_allclose(back.bse[COLUMNS], pooled.bse[COLUMNS], rtol=0.1)
    new = sm.add_constant(x[:5])
    low, high = back.get_prediction(new).conf_int().T
    assert ((low < back.predict(new)) & (back.predict(new) < high)).all()
    # A second round, all coefficients shared.
    first = kf.fuse(models)
    second = kf.fuse({n: kf.extract(m, name=n, at=first.remove(n)) for n, m in models.items()})
    np.testing.assert_allclose(second.model().params, pooled.params, atol=2e-3)


def test_hazards():
    from statsmodels.duration.hazard_regression import PHReg

    rng = np.random.default_rng(1)
    x, predictor = rows(300, rng)
    time, seen = rng.exponential(np.exp(-predictor)), rng.random(300) < 0.7
    pooled = PHReg(time, x, status=seen).fit()
    models = {
        n: PHReg(time[s], x[s], status=seen[s]).fit()
        for n, s in {"a": slice(0, 140), "b": slice(140, 300)}.items()
    }
    back = kf.fuse(models).model()
    np.testing.assert_allclose(back.params, pooled.params, atol=0.15)
    assert back.predict(exog=x[:4].to_numpy(), pred_type="hr").predicted_values.shape == (4,)
    with_prior = kf.fuse([kf.extract(models["a"], name="a", prior_sd=0.1)]).model()
    assert (np.abs(with_prior.params) < np.abs(models["a"].params)).all()


@for_each("kind", ["GLM", "Logit"])
def test_separated_and_missing_classes_are_refused(kind):
    x, _ = patients(80, np.random.default_rng(0))
    design = sm.add_constant(x)
    for y in ((x["age"] > 0) * 1.0, np.ones(80)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            options = {"family": sm.families.Binomial()} if kind == "GLM" else {}
            model = getattr(sm, kind)(y, design, **options)
            fit = model.fit(disp=0) if kind == "Logit" else model.fit()
            with pytest.raises(KLFusionError, match=r"silo 'a': .* grow without end.*prior_sd"):
                kf.extract(fit, name="a")
            assert kf.extract(fit, name="a", prior_sd=2.0).n_components == 1


def test_least_squares_are_those_of_the_pooled_rows():
    rng = np.random.default_rng(0)
    x, predictor = rows(300, rng)
    y = predictor + 0.7 * rng.normal(size=300)
    parts = divided(x, y, 3, rng)
    models = {n: sm.OLS(b, sm.add_constant(a)).fit() for n, (a, b) in parts.items()}
    back, pooled = kf.fuse(models).model(), sm.OLS(y, sm.add_constant(x)).fit()
    np.testing.assert_allclose(back.params, pooled.params, atol=0.03)
    np.testing.assert_allclose(back.bse, pooled.bse, rtol=0.03)
    design = sm.add_constant(x)
    found = back.get_prediction(design).summary_frame()
    expected = pooled.get_prediction(design).summary_frame()
    np.testing.assert_allclose(found["obs_ci_lower"], expected["obs_ci_lower"], atol=0.15)
    with pytest.raises(KLFusionError, match="at: expected none"):
        kf.extract(pooled, name="a", at=kf.fuse(models))


@for_each("fit", [glm, logit])
def test_columns_by_name_and_no_statistics_of_the_fit(fit):
    x, y = patients(300, np.random.default_rng(1))
    parts = divided(x, y, 3, np.random.default_rng(1))
    back = kf.fuse({n: fit(*data) for n, data in parts.items()}).model()
    design = sm.add_constant(x)
    np.testing.assert_allclose(back.predict(design), back.predict(design[design.columns[::-1]]))
    with pytest.raises(KLFusionError, match=r"expected the columns .*got none named 'const'"):
        back.predict(x)
    assert np.isnan(back.llf)
    assert back.nobs == 300
    assert "nan" in str(back.summary())


def test_other_results_are_refused_with_a_way_out():
    x, y = patients(200, np.random.default_rng(2))
    fit = sm.Probit(y, sm.add_constant(x)).fit(disp=0)
    with pytest.raises(KLFusionError, match=r"silo 'a': .*got Probit: kf.coefficients takes"):
        kf.extract(fit, name="a")


def test_estimating_equations_have_no_likelihood():
    x, y = patients(40, np.random.default_rng(2))
    fit = sm.GEE(y, sm.add_constant(x), groups=np.arange(40) // 4).fit()
    with pytest.raises(KLFusionError, match=r"silo 'a': .*got GEE: kf.coefficients takes"):
        kf.extract(fit, name="a")


def test_outcomes_have_one_name():
    def fit(outcome):
        x, y = rows(60, np.random.default_rng(len(outcome)))
        y = x.assign(y=y.round())["y"].rename(outcome)
        return sm.OLS(y, sm.add_constant(x)).fit()

    fits = {"a": fit("pressure"), "b": fit("Pressure ")}
    assert kf.fuse(fits).model().model.endog_names == "pressure"
    with pytest.raises(
        KLFusionError, match="silo 'c': expected the outcome 'pressure' as in silo 'a', got 'pulse'"
    ):
        kf.fuse({**fits, "c": fit("pulse")})


def small_sites(seed):
    rng = np.random.default_rng(seed)
    x = [sm.add_constant(rng.normal(size=(n, 3))) for n in [6] * 10 + [200]]
    return x, [own @ [1.0, 1.0, 0.0, 0.0] + rng.normal(size=len(own)) for own in x]


def test_a_small_site_that_fits_by_luck_does_not_dominate():
    ours, pooled = [], []
    for seed in range(8):
        x, y = small_sites(seed)
        models = {str(k): sm.OLS(b, a).fit() for k, (a, b) in enumerate(zip(x, y, strict=True))}
        ours.append(np.asarray(kf.fuse(models, pooling="product").model().params))
        pooled.append(sm.OLS(np.concatenate(y), np.vstack(x)).fit().params)
    assert np.abs(np.array(ours) - pooled).max() < 0.02
    assert np.abs(np.array(pooled) - [1.0, 1.0, 0.0, 0.0]).max() > 0.1


def test_noise_that_is_given_is_kept():
    x, y = small_sites(0)
    sites = [
        kf.extract(sm.OLS(b, a).fit(), name=str(k), noise_sd=1.0)
        for k, (a, b) in enumerate(zip(x, y, strict=True))
    ]
    found = kf.fuse(sites, pooling="product").model()
    whole, design = np.vstack(x), np.concatenate(y)
    np.testing.assert_allclose(found.params, np.linalg.lstsq(whole, design)[0], atol=1e-10)
    np.testing.assert_allclose(found.cov_params(), np.linalg.inv(whole.T @ whole), rtol=1e-8)
    with pytest.raises(KLFusionError, match="'a', noise_sd: expected an OLS, got Logit"):
        kf.extract(logit(x[-1][:, 1:], (y[-1] > 0) * 1.0), name="a", noise_sd=1.0)


def test_a_fit_that_has_not_converged_is_refused():
    x, y = patients(400, np.random.default_rng(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = sm.Logit(y, sm.add_constant(x)).fit(maxiter=1, disp=0)
    with pytest.raises(KLFusionError, match="'a': expected a fit that has converged"):
        kf.extract(fit, name="a")


def test_shapes_of_families_must_agree_and_come_back():
    rng = np.random.default_rng(0)
    x = sm.add_constant(rng.normal(size=(300, 1)))
    y = rng.poisson(np.exp(0.5 * x[:, 1]))

    def fit(alpha):
        family = sm.families.NegativeBinomial(alpha=alpha)
        return sm.GLM(y, x, family=family).fit()

    assert kf.fuse([fit(0.5), fit(0.5)]).model().family.alpha == 0.5
    with pytest.raises(KLFusionError, match=r"NegativeBinomial \(alpha 0.5\).*alpha 3"):
        kf.fuse([fit(0.5), fit(3.0)])


def test_silos_that_differ_are_said_where_the_model_is_that_of_pooled_data():
    rng, models = np.random.default_rng(0), {}
    for k, slope in enumerate([-1.0, 0.0, 1.0, 2.0]):
        x = rng.normal(size=(300, 1))
        models[str(k)] = logit(x, (rng.random(300) < 1 / (1 + np.exp(-slope * x[:, 0]))) * 1.0)
    fusion = kf.fuse(models)
    with pytest.warns(UserWarning, match="silos differ in 'x1'.*fusion.posterior has the mean"):
        fusion.model()
    kf.fuse(models, pooling="hierarchical").model()
