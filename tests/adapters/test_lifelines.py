"""lifelines' Cox and Weibull models."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from klfusion.errors import KLFusionError
from tests.helpers.loops import for_each
from tests.helpers.regressions import COLUMNS, rows

lifelines = pytest.importorskip("lifelines")


def survival(n=300, seed=0):
    rng = np.random.default_rng(seed)
    x, predictor = rows(n, rng)
    time = rng.exponential(np.exp(-predictor))
    censored = rng.exponential(3.0, size=n)
    return x.assign(T=np.minimum(time, censored).round(2) + 0.01, E=(time < censored) * 1.0)


def cox(frame, **options):
    return lifelines.CoxPHFitter(**options).fit(frame, "T", "E")


PARTS = {"a": slice(0, 90), "b": slice(90, 180), "c": slice(180, 300)}


@pytest.mark.parametrize("penalizer", [0.0, 0.05])
def test_the_fit_and_the_data_agree(penalizer):
    frame = survival()
    fitted = cox(frame, penalizer=penalizer)
    one, two = (kf.extract(fitted, name="a", data=data) for data in (None, frame))
    for key in ("mean", "covariance"):
        np.testing.assert_allclose(one.params()[key], two.params()[key], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(one.prior, two.prior)


def test_cox_comes_back():
    frame = survival()
    fusion = kf.fuse({n: cox(frame[s]) for n, s in PARTS.items()})
    back, pooled = fusion.model(), cox(frame)
    np.testing.assert_allclose(back.params_[COLUMNS], pooled.params_[COLUMNS], atol=0.15)
    np.testing.assert_allclose(back.standard_errors_, pooled.standard_errors_, rtol=0.15)
    score = back.score(frame, scoring_method="concordance_index")
    assert score == pytest.approx(pooled.concordance_index_, abs=0.01)
    ratio = back.predict_partial_hazard(frame[:2]) / np.exp(frame[:2][COLUMNS] @ back.params_)
    np.testing.assert_allclose(ratio, 1.0)
    assert back.baseline_survival_.isna().all().all()


def test_rounds_reach_the_stratified_fit():
    frame = survival()
    options = {"duration_col": "T", "event_col": "E", "prior_sd": 5.0}
    fusion = None
    for _ in range(3):
        fusion = kf.fuse(
            [
                kf.extract(
                    lifelines.CoxPHFitter(), name=n, data=frame[s], **options,
                    at=None if fusion is None else fusion.remove(n),
                )
                for n, s in PARTS.items()
            ]
        )  # fmt: skip
    site = np.repeat(["a", "b", "c"], [90, 90, 120])
    pooled = lifelines.CoxPHFitter(strata=["site"]).fit(frame.assign(site=site), "T", "E")
    distance = (fusion.model().params_ - pooled.params_[COLUMNS]) / pooled.standard_errors_
    assert np.abs(distance).max() < 0.01  # the prior is all that is left


def test_a_silo_without_events_has_the_prior():
    frame = survival()
    options = {"duration_col": "T", "event_col": "E", "prior_sd": 1.0}
    none = kf.extract(lifelines.CoxPHFitter(), name="n", data=frame.assign(E=0.0), **options)
    np.testing.assert_allclose(none.natural[0], none.prior)


def test_survival_curves_come_back():
    """Baselines at agreed times stay each silo's own, as in the stratified fit."""
    frame, times = survival(), [0.2, 0.5, 1.0, 1.8]
    site = np.repeat(["a", "b", "c"], [90, 90, 120])
    pooled = lifelines.CoxPHFitter(strata=["site"]).fit(frame.assign(site=site), "T", "E")
    fusion = None
    for _ in range(2):
        fusion = kf.fuse(
            [
                kf.extract(
                    lifelines.CoxPHFitter(), name=n, data=frame[s], times=times,
                    duration_col="T", event_col="E", prior_sd=20.0,
                    at=None if fusion is None else fusion.remove(n),
                )
                for n, s in PARTS.items()
            ]
        )  # fmt: skip
    new = frame[COLUMNS][:4]
    for name in PARTS:
        found = fusion.model(name).predict_survival_function(new, times=times)
        expected = pooled.predict_survival_function(new.assign(site=name), times=times)
        np.testing.assert_allclose(found, expected, atol=0.02)
    model = fusion.model("a")
    assert (model.duration_col, model.event_col) == ("T", "E")
    assert model.weights.sum() == pytest.approx(300)
    assert model.weights[model.event_observed > 0].sum() == pytest.approx(frame["E"].sum())
    assert np.isnan(model.log_likelihood_)
    assert np.isnan(model.concordance_index_)
    elsewhere = fusion.model().predict_survival_function(new, times=times)
    assert (elsewhere.diff().dropna() <= 0).all().all()
    assert ((elsewhere > 0) & (elsewhere < 1)).all().all()


def test_a_curve_without_a_baseline_is_refused():
    frame = survival()
    back = kf.fuse({n: cox(frame[s]) for n, s in PARTS.items()}).model()
    for method in (back.predict_survival_function, back.predict_median):
        with pytest.raises(KLFusionError, match=r"expected a baseline hazard, got none: .*times="):
            method(frame[COLUMNS])


def weibull(rows, **options):
    return lifelines.WeibullAFTFitter(**options).fit(rows, "T", "E")


@pytest.mark.parametrize("penalizer", [0.0, 0.05])
def test_the_weibull_fit_and_the_data_agree(penalizer):
    frame = survival()
    fitted = weibull(frame, penalizer=penalizer)
    one, two = (kf.extract(fitted, name="a", data=data) for data in (None, frame))
    assert one.structure.info["coordinates"] == two.structure.info["coordinates"]
    for key in ("mean", "covariance"):
        np.testing.assert_allclose(one.params()[key], two.params()[key], rtol=2e-3, atol=1e-4)
    np.testing.assert_allclose(one.prior, two.prior)


def test_rounds_reach_the_pooled_weibull_fit():
    frame, fusion = survival(), None
    options = {"duration_col": "T", "event_col": "E", "prior_sd": 50.0}
    for _ in range(3):
        fusion = kf.fuse(
            [
                kf.extract(
                    lifelines.WeibullAFTFitter(), name=n, data=frame[s], **options,
                    at=None if fusion is None else fusion.remove(n),
                )
                for n, s in PARTS.items()
            ]
        )  # fmt: skip
    pooled, back = weibull(frame), fusion.model()
    distance = (back.params_ - pooled.params_[back.params_.index]) / pooled.standard_errors_
    assert np.abs(distance).max() < 0.01


def test_weibull_comes_back():
    frame, fit = survival(), weibull
    models = {n: fit(frame[s]) for n, s in PARTS.items()}
    local = ["lambda_: Intercept"]
    fusion = kf.fuse({n: kf.extract(m, name=n, local=local) for n, m in models.items()})
    back, pooled = fusion.model("b"), fit(frame)
    np.testing.assert_allclose(back.params_["lambda_"], pooled.params_["lambda_"], atol=0.2)
    assert back.predict_survival_function(frame[:2]).shape[1] == 2
    assert (back.predict_median(frame[:5]) > 0).all()


@pytest.mark.parametrize(
    "options, fit",
    [
        ({}, {"ancillary": True}),
        ({"model_ancillary": True}, {}),
        ({}, {"formula": "age + dose", "ancillary": "score"}),
        ({"fit_intercept": False}, {}),
        ({"fit_intercept": False}, {"ancillary": True}),
    ],
)
def test_a_weibull_model_has_all_coefficients_of_its_scale_and_shape(options, fit):
    frame = survival()
    models = {
        n: lifelines.WeibullAFTFitter(**options).fit(frame[s], "T", "E", **fit)
        for n, s in PARTS.items()
    }
    back = kf.fuse(models).model()
    pooled = lifelines.WeibullAFTFitter(**options).fit(frame, "T", "E", **fit)
    assert {*back.params_.index} == {*pooled.params_.index}
    np.testing.assert_allclose(back.params_[pooled.params_.index], pooled.params_, atol=0.2)
    curves = (m.predict_survival_function(frame[:20], times=[0.1, 1.0]) for m in (back, pooled))
    np.testing.assert_allclose(*curves, atol=0.05)
    assert back.variance_matrix_.shape == pooled.variance_matrix_.shape


def test_a_weibull_model_without_an_intercept_reads_its_data():
    frame = survival()
    model = lifelines.WeibullAFTFitter(fit_intercept=False)
    unfitted = kf.extract(model, name="a", data=frame, duration_col="T", event_col="E")
    fitted = kf.extract(model.fit(frame, "T", "E"), name="a")
    assert unfitted.structure.info["coordinates"] == fitted.structure.info["coordinates"]
    np.testing.assert_allclose(unfitted.params()["mean"], fitted.params()["mean"], atol=1e-4)


@for_each("fit", [cox, weibull])
def test_a_frame_without_the_columns_of_the_design_is_refused(fit):
    frame = survival()
    fitted = type(fit(frame))().fit(frame, "T", "E", formula="age * dose")
    back = kf.fuse([kf.extract(fitted, name="a")]).model()
    with pytest.raises(KLFusionError, match=r"got none named 'age:dose': .*transform_df\(frame\)"):
        back.predict_median(frame) if fit is weibull else back.predict_partial_hazard(frame)
    if fit is cox:
        design = fitted.regressors.transform_df(frame)["beta_"]
        ratio = back.predict_partial_hazard(design) / fitted.predict_partial_hazard(frame)
        np.testing.assert_allclose(ratio, ratio[0])


def test_bad_input():
    frame, columns = survival(60), {"duration_col": "T", "event_col": "E"}
    cases = {
        "call fit first": lambda: kf.extract(lifelines.CoxPHFitter(), name="a"),
        "expected the column 'x'": lambda: kf.extract(
            lifelines.CoxPHFitter(), name="a", data=frame, duration_col="x"
        ),
        "l1_ratio": lambda: kf.extract(cox(frame, penalizer=0.1, l1_ratio=0.5), name="a"),
        "one number as the penalizer": lambda: kf.extract(
            weibull(frame, penalizer=np.full(4, 0.1)), name="a"
        ),
        "times > 0 of a Weibull": lambda: kf.extract(
            weibull(frame), name="a", data=frame.assign(T=0.0)
        ),
        "0 and 1 in 'E'": lambda: kf.extract(cox(frame), name="a", data=frame.assign(E=0.5)),
        "expected increasing times": lambda: kf.extract(
            cox(frame), name="a", data=frame, times=[2.0, 1.0]
        ),
        "an event after 0 and until 0.001, got none": lambda: kf.extract(
            cox(frame), name="a", data=frame, times=[0.001, 1.0]
        ),
        "with which there can be at, times": lambda: kf.extract(cox(frame), name="a", times=[1.0]),
        "expected data=": lambda: kf.extract(cox(frame), name="a", prior_sd=1.0),
        "'breslow', got 'piecewise': kf.coefficients": lambda: kf.extract(
            cox(frame, baseline_estimation_method="piecewise", breakpoints=[0.5]), name="a"
        ),
        "no ancillary columns with data": lambda: kf.extract(
            lifelines.WeibullAFTFitter(model_ancillary=True), name="a", data=frame, **columns
        ),
        "without end": lambda: kf.extract(
            lifelines.CoxPHFitter(), name="a", data=frame.assign(age=-frame["T"]), **columns
        ),
        "the data that the model was fitted to": lambda: kf.extract(
            cox(frame), name="a", data=survival(60, seed=7)
        ),
        "to, got others": lambda: kf.extract(weibull(frame), name="a", data=survival(60, seed=7)),
    }  # fmt: skip
    for text, make in cases.items():
        with pytest.raises(KLFusionError, match=f"silo 'a': .*{text}"):
            make()


def test_other_units_of_a_fit_are_a_finding():
    frame = survival()
    column = COLUMNS[0]
    parts = {name: frame[rows_] for name, rows_ in PARTS.items()}
    assert not kf.diagnose(kf.fuse({n: cox(own) for n, own in parts.items()})).findings
    parts["c"] = parts["c"].assign(**{column: 12.0 * parts["c"][column]})
    found = kf.diagnose(kf.fuse({n: cox(own) for n, own in parts.items()})).findings
    assert any("'c'" in str(one) and repr(column) in str(one) for one in found)


def test_fits_whose_covariance_is_no_likelihoods_are_refused():
    fitted = lifelines.CoxPHFitter().fit(survival(), "T", "E", robust=True)
    with pytest.raises(KLFusionError, match=r"'a': expected a fit without robust.*kf.coefficients"):
        kf.extract(fitted, name="a")


def test_censoring_is_the_same_at_all_silos():
    frame = survival(90)
    bounds = frame.assign(low=0.9 * frame["T"], high=1.1 * frame["T"]).drop(columns=["T", "E"])
    fits = {
        "right": weibull(frame),
        "left": lifelines.WeibullAFTFitter().fit_left_censoring(frame, "T", "E"),
        "interval": lifelines.WeibullAFTFitter().fit_interval_censoring(bounds, "low", "high"),
    }
    text = "silo 'left': expected right censoring as in silo 'right', got 'left'"
    with pytest.raises(KLFusionError, match=text):
        kf.fuse({n: fits[n] for n in ("right", "left")})
    with pytest.raises(KLFusionError, match="expected right censoring with data=, got left"):
        kf.extract(fits["left"], name="a", data=frame)
    back = kf.fuse([kf.extract(fits["interval"], name="a")]).model()
    order = back.params_.index
    np.testing.assert_allclose(back.params_, fits["interval"].params_[order], rtol=1e-6)
    assert (back.lower_bound_col, back.upper_bound_col) == ("low", "high")
    back.print_summary()


@for_each("kind", ["CoxPHFitter", "WeibullAFTFitter"])
def test_levels_against_another_reference_are_refused(kind):
    frame = survival()
    frame = frame.assign(stage=np.resize(["I", "II", "III"], len(frame)))
    parts = {"a": frame, "b": frame[frame["stage"] != "I"]}
    fits = {
        n: getattr(lifelines, kind)().fit(own, "T", "E", formula="age + stage")
        for n, own in parts.items()
    }
    with pytest.raises(KLFusionError, match="'b': expected levels of 'stage' against 'I'"):
        kf.fuse(fits)


def test_durations_and_events_have_one_name():
    fits = {"a": cox(survival(60)), "b": cox(survival(60, seed=1))}
    other = survival(60, seed=2).rename(columns={"E": "relapse"})
    fits["c"] = lifelines.CoxPHFitter().fit(other, "T", "relapse")
    expected = "silo 'c': expected the outcome 'T', 'E' as in silo 'a', got 'T', 'relapse'"
    with pytest.raises(KLFusionError, match=expected):
        kf.fuse(fits)
