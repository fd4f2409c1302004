"""statsmodels' GLM, Logit and PHReg."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest

import klfusion as kf
from klfusion.errors import KLFusionError
from tests.helpers.loops import for_each
from tests.helpers.regressions import COLUMNS, divided, patients, rows

pd = pytest.importorskip("pandas")
sm = pytest.importorskip("statsmodels.api")
smf = pytest.importorskip("statsmodels.formula.api")


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


RESULTS = {
    "OLS": lambda x, y: sm.OLS(y, sm.add_constant(x)).fit(),
    "Logit": logit,
    "GLM": glm,
    "PHReg": lambda x, y: sm.PHReg(y + 1.0, x, ties="efron").fit(),
}
OF_ROWS = {
    "OLS": "fittedvalues resid HC0_se ess get_influence get_robustcov_results predict",
    "Logit": "fittedvalues resid_dev resid_response pred_table get_margeff get_influence predict",
    "GLM": "mu null fittedvalues resid_deviance get_margeff get_influence predict",
    "PHReg": "baseline_cumulative_hazard martingale_residuals schoenfeld_residuals "
    "get_distribution predict",
}


@for_each("kind", RESULTS)
def test_what_needs_rows_is_an_error_and_the_rest_works(kind):
    x, y = patients(300, np.random.default_rng(1))
    fit = RESULTS[kind]
    parts = divided(x, y, 3, np.random.default_rng(1))
    back, pooled = kf.fuse({n: fit(*data) for n, data in parts.items()}).model(), fit(x, y)
    for key in OF_ROWS[kind].split():
        with pytest.raises(KLFusionError, match="expected rows, got none"):
            found = getattr(back, key)
            found()
    assert np.shape(back.cov_params()) == np.shape(pooled.cov_params())
    for key in ("bse", "pvalues", "tvalues", "params"):
        assert np.isfinite(getattr(back, key)).all()
    np.testing.assert_allclose(back.conf_int(), pooled.conf_int(), atol=0.15)
    first = np.eye(len(back.params))[:1]
    assert np.isfinite(back.t_test(first).pvalue).all()
    assert back.model.exog_names == pooled.model.exog_names
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "age" in str(back.summary())
    again = pickle.loads(pickle.dumps(back))
    np.testing.assert_array_equal(again.params, back.params)
    design = pd.DataFrame(pooled.model.exog[:3], columns=pooled.model.exog_names)
    found, expected = (m.predict(exog=design) for m in (back, pooled))
    if kind == "PHReg":
        found, expected = found.predicted_values, expected.predicted_values
        assert back.model.ties == "efron"
    np.testing.assert_allclose(found, expected, atol=0.1)
    with pytest.raises(KLFusionError, match="'z': expected rows, got none"):
        kf.extract(back, name="z")


def by_formula(formula, frame, **options):
    return smf.glm(formula, frame, **options).fit()


def frame_of(n=120, seed=0):
    x, y = patients(n, np.random.default_rng(seed))
    rng = np.random.default_rng(seed)
    return x.assign(
        y=y, z=x["age"] + rng.normal(size=n), count=rng.poisson(2.0, size=n),
        stage=rng.choice(["I", "II", "III"], size=n), code=rng.integers(1, 4, size=n),
    )  # fmt: skip


@for_each(
    "options",
    [{"cov_type": "HC0"}, {"cov_type": "HC3"}, {"cov_type": "cluster"}],
)
def test_robust_covariances_are_no_likelihoods(options):
    frame = frame_of()
    if options["cov_type"] == "cluster":
        options = {**options, "cov_kwds": {"groups": frame["code"]}}
    fits = [
        smf.ols("z ~ age", frame).fit(**options),
        smf.logit("y ~ age", frame).fit(disp=0, **options),
        smf.glm("y ~ age", frame, family=sm.families.Binomial()).fit(**options),
    ]
    for fit in fits:
        for more in ({}, {"prior_sd": 1.0}):
            text = f"'a': expected a fit without robust.*'{options['cov_type']}': kf.coefficients"
            with pytest.raises(KLFusionError, match=text):
                kf.extract(fit, name="a", **more)


def test_clusters_of_survival_times_are_no_likelihood():
    x, y = patients(60, np.random.default_rng(0))
    fit = sm.PHReg(y + 1.0, x).fit(groups=np.arange(60) // 3)
    with pytest.raises(KLFusionError, match=r"'a': expected a fit without robust.*'cluster'"):
        kf.extract(fit, name="a")


def test_penalties_and_constraints_that_are_no_gaussian_prior_are_refused():
    frame = frame_of()
    logistic = smf.logit("y ~ age", frame)
    binomial = smf.glm("y ~ age", frame, family=sm.families.Binomial())
    for fit, text in (
        (logistic.fit_regularized(alpha=0.1, disp=0), "without an l1 penalty.*prior_sd"),
        (binomial.fit_regularized(alpha=0.1, L1_wt=1.0), "without a penalty, and give prior_sd"),
        (smf.ols("z ~ age", frame).fit_regularized(alpha=0.1), "without a penalty"),
        (binomial.fit_constrained("age = 0"), "without constraints, got age = 0"),
    ):
        with pytest.raises(KLFusionError, match=f"silo 'a': .*{text}"):
            kf.extract(fit, name="a", **({"prior_sd": 1.0} if "constraint" in text else {}))


def test_silos_with_other_likelihoods_are_refused():
    frame, poisson = frame_of(), {"family": sm.families.Poisson()}
    more = np.full(len(frame), 2.0)
    plain = by_formula("count ~ age", frame, **poisson)
    known = [by_formula("count ~ age", frame, exposure=more, **poisson)]
    known += [by_formula("count ~ age", frame, offset=np.log(more), **poisson)]
    kf.fuse(known)
    for fit in known:
        text = "'b': expected an offset or exposure as in silo 'a', got 'no offset or exposure'"
        with pytest.raises(KLFusionError, match=text):
            kf.fuse({"a": fit, "b": plain})
    two = {
        "a": sm.PHReg(frame["count"] + 1.0, frame[["age"]], ties="efron").fit(),
        "b": sm.PHReg(frame["count"] + 1.0, frame[["age"]]).fit(),
    }
    with pytest.raises(KLFusionError, match=r"'b': expected ties='efron' as in .*, got 'breslow'"):
        kf.fuse(two)


def test_an_outcome_that_a_formula_calls_y_has_a_name():
    frame = frame_of()
    unnamed = sm.OLS(frame["z"].to_numpy(), sm.add_constant(frame[["age"]])).fit()
    assert "outcome" not in kf.extract(unnamed, name="a").structure.info
    fits = {"a": smf.ols("y ~ age", frame).fit(), "b": smf.ols("count ~ age", frame).fit()}
    with pytest.raises(KLFusionError, match=r"'b': expected the outcome 'y' .*, got 'count'"):
        kf.fuse(fits)


@for_each("engine", ["patsy", "formulaic"])
def test_levels_against_another_reference_are_refused(engine):
    options = pytest.importorskip("statsmodels.formula").options
    pytest.importorskip(engine)
    frame, before = frame_of(), getattr(options, "formula_engine", None)
    if before is None and engine == "formulaic":
        pytest.skip("this statsmodels knows patsy alone")
    try:
        if before is not None:
            options.formula_engine = engine
        fits = {
            "a": smf.ols("z ~ age * stage", frame).fit(),
            "b": smf.ols("z ~ age * stage", frame[frame["stage"] != "I"]).fit(),
        }
    finally:
        if before is not None:
            options.formula_engine = before
    sent = {n: kf.extract(m, name=n, prior_sd=2.0) for n, m in fits.items()}
    assert sent["a"].structure.info["reference"] == {"stage": "I"}
    text = "'b': expected levels of 'stage' against 'I' as in silo 'a', got 'II': declare all"
    with pytest.raises(KLFusionError, match=text):
        kf.fuse(sent)


def test_integers_that_are_read_as_floats_are_another_spelling():
    frame = frame_of()
    fits = {
        "a": smf.ols("z ~ C(code)", frame).fit(),
        "b": smf.ols("z ~ C(code)", frame.astype({"code": float})).fit(),
    }
    sent = {n: kf.extract(m, name=n, prior_sd=2.0) for n, m in fits.items()}
    text = r"'b': expected 'C\(code\)\[T.2\]' as in silo 'a', got 'C\(code\)\[T.2.0\]'"
    with pytest.raises(KLFusionError, match=text):
        kf.fuse(sent)


@for_each("n", [2, 3])
def test_too_few_rows_for_the_noise_are_refused_with_a_way_out(n):
    x, y = small_sites(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = sm.OLS(y[0][:n], x[0][:n, :3]).fit()
        for options in ({}, {"prior_sd": 1.0}):
            text = f"'a': expected residuals .*got {n} rows for 3 coefficients: .*noise_sd="
            with pytest.raises(KLFusionError, match=text):
                kf.extract(fit, name="a", **options)
        assert kf.extract(fit, name="a", prior_sd=1.0, noise_sd=1.0).n_components == 1


def test_a_fusion_that_has_the_silo_is_not_that_of_the_others():
    x, y = patients(200, np.random.default_rng(0))
    parts = divided(x, y, 2, np.random.default_rng(0))
    models = {n: logit(*data) for n, data in parts.items()}
    text = r"'h0', at: expected a fusion of the other silos, .*: fusion.remove\('h0'\)"
    with pytest.raises(KLFusionError, match=text):
        kf.extract(models["h0"], name="h0", at=kf.fuse(models))


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
