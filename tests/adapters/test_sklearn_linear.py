"""scikit-learn's regressions: out, fused, and back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import (
    ARDRegression,
    BayesianRidge,
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    PoissonRegressor,
    Ridge,
)

import klfusion as kf
from klfusion.errors import KLFusionError
from tests.helpers.loops import for_each
from tests.helpers.regressions import COLUMNS, divided, patients, pd, rows

PRIOR = dict.fromkeys(COLUMNS, 0.7)


def linear(n=120, seed=0):
    rng = np.random.default_rng(seed)
    x, predictor = rows(n, rng)
    return x, predictor + 0.8 * rng.normal(size=n)


@pytest.mark.parametrize("kind", [BayesianRidge, ARDRegression, Ridge, LinearRegression])
@given(seed=st.integers(0, 10**6), n_silos=st.integers(1, 12), intercept=st.booleans())
def test_linear_regressions_equal_the_pooled_one(kind, seed, n_silos, intercept):
    x, y = linear(60, seed)
    model, options = kind(fit_intercept=intercept), {"noise_sd": 0.8, "prior_sd": PRIOR}
    options["prior_sd"] = {**PRIOR, **({"intercept": 5.0} if intercept else {})}
    parts = divided(x, y, n_silos, np.random.default_rng(seed))
    silos = [kf.extract(model, name=n, data=data, **options) for n, data in parts.items()]
    fused = kf.fuse(silos).site().params()
    design = np.column_stack([np.ones(len(x)), x]) if intercept else x.to_numpy()
    prior = np.diag([*([1 / 25.0] if intercept else []), *[1 / 0.49] * 3])
    precision = prior + design.T @ design / 0.64
    mean = np.linalg.solve(precision, design.T @ y / 0.64)
    np.testing.assert_allclose(fused["mean"][0], mean, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(fused["covariance"][0], np.linalg.inv(precision), atol=1e-8)


@pytest.mark.parametrize("kind", [BayesianRidge, ARDRegression])
def test_a_bayesian_fit_has_what_is_needed(kind):
    x, y = linear()
    fitted = kind(threshold_lambda=1e9).fit(x, y) if kind is ARDRegression else kind().fit(x, y)
    a = kf.extract(fitted, name="a", n_observations=len(x))
    b = kf.extract(fitted, name="a", data=(x, y))
    np.testing.assert_allclose(a.natural, b.natural, rtol=1e-7, atol=1e-6)
    back = kf.fuse([b]).model()
    np.testing.assert_allclose(back.predict(x), fitted.predict(x), atol=1e-6)
    one, two = (m.predict(x, return_std=True)[1] for m in (back, fitted))
    np.testing.assert_allclose(one, two, rtol=1e-6)


def test_ridge_estimates_the_noise():
    x, y = linear(400)
    fitted = Ridge(alpha=2.0).fit(x, y)
    back = kf.fuse([kf.extract(fitted, name="a", data=(x, y))]).model()
    np.testing.assert_allclose(back.predict(x), fitted.predict(x), atol=1e-9)
    assert back.noise_ == pytest.approx(0.8, rel=0.1)
    low, high = back.predict_interval(x)
    assert ((low < back.predict(x)) & (back.predict(x) < high)).all()


def test_a_penalty_may_be_in_a_list():
    x, y = linear(100)
    one, two = (kf.extract(Ridge(alpha=a).fit(x, y), name="a", data=(x, y)) for a in (2.0, [2.0]))
    np.testing.assert_array_equal(one.natural, two.natural)


def test_ridge_regressions_whose_noise_agrees_equal_the_pooled_one():
    far = []
    for seed in range(6):
        x, y = linear(300, seed)
        parts = divided(x, y, 5, np.random.default_rng(seed))
        silos = [kf.extract(Ridge(alpha=7.0), name=n, data=data) for n, data in parts.items()]
        fused = kf.fuse(silos, pooling="product").model()
        far.append(np.abs(fused.coef_ - Ridge(alpha=7.0).fit(x, y).coef_).max())
    assert min(far) < 1e-8 and max(far) < 0.01


@pytest.mark.parametrize("kind", [BayesianRidge, ARDRegression])
def test_small_sites_decide_neither_noise_nor_prior(kind):
    far = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x = [rng.normal(size=(n, 3)) for n in [6] * 10 + [200]]
        y = [own @ [1.0, 0.0, 0.5] + rng.normal(size=len(own)) for own in x]
        silos = [
            kf.extract(kind().fit(a, b), name=str(k), data=(a, b))
            for k, (a, b) in enumerate(zip(x, y, strict=True))
        ]
        pooled = kind().fit(np.vstack(x), np.concatenate(y))
        far.append(np.abs(kf.fuse(silos, pooling="product").model().coef_ - pooled.coef_).max())
    assert np.median(far) < 0.05 and max(far) < 0.15


def test_least_squares_comes_back():
    x, y = linear(400)
    fitted = LinearRegression().fit(x, y)
    back = kf.fuse([kf.extract(fitted, name="a", data=(x, y))]).model()
    assert isinstance(back, LinearRegression)
    np.testing.assert_allclose(back.predict(x), fitted.predict(x), atol=1e-9)


def test_logistic_regression_comes_back():
    x, y = patients(300, np.random.default_rng(1))
    fitted = LogisticRegression(C=0.5, tol=1e-10, max_iter=1000).fit(x, y)
    back = kf.fuse([kf.extract(fitted, name="a", data=(x, y))]).model()
    np.testing.assert_allclose(back.coef_, fitted.coef_, atol=1e-6)
    np.testing.assert_allclose(back.intercept_, fitted.intercept_, atol=1e-6)
    np.testing.assert_array_equal(back.predict(x), fitted.predict(x))
    assert back.feature_names_in_.tolist() == COLUMNS
    # Averaged probabilities are less extreme.
    one, two = back.predict_proba(x)[:, 1], fitted.predict_proba(x)[:, 1]
    assert (np.abs(one - 0.5) <= np.abs(two - 0.5) + 1e-9).all()
    low, high = back.predict_interval(x)
    assert ((low < two) & (two < high)).all()


def test_more_rounds_reach_the_pooled_fit():
    """The likelihood of each silo is expanded where all data put the coefficients."""
    x, y = patients(200, np.random.default_rng(2))
    parts = divided(x, y, 6, np.random.default_rng(2))
    pooled = LogisticRegression(tol=1e-12, max_iter=10_000).fit(x, y)
    fusion, distances = None, []
    for _ in range(4):
        at = {n: None if fusion is None else fusion.remove(n) for n in parts}
        silos = [
            kf.extract(LogisticRegression(), name=n, data=data, at=at[n], prior_sd={
                "intercept": 1e3, **dict.fromkeys(COLUMNS, 1.0)
            })
            for n, data in parts.items()
        ]  # fmt: skip
        fusion = kf.fuse(silos)
        distances.append(np.abs(fusion.model().coef_ - pooled.coef_).max())
    assert distances[1] < 0.1 * distances[0]
    assert distances[3] < 1e-5


def test_columns_in_another_order_and_local_ones():
    x, y = patients(300, np.random.default_rng(3))
    parts = divided(x, y, 3, np.random.default_rng(3))
    options = {"local": ["intercept"]}
    once = kf.fuse(
        [kf.extract(LogisticRegression(), name=n, data=d, **options) for n, d in parts.items()]
    )
    parts["h1"] = (parts["h1"][0][COLUMNS[::-1]], parts["h1"][1])
    again = kf.fuse(
        [kf.extract(LogisticRegression(), name=n, data=d, **options) for n, d in parts.items()]
    )
    assert again.model("h1").feature_names_in_.tolist() == COLUMNS[::-1]
    np.testing.assert_allclose(again.model("h1").coef_[0][::-1], once.model("h1").coef_[0])
    np.testing.assert_allclose(
        again.model("h2").predict_proba(x), once.model("h2").predict_proba(x)
    )
    assert again.model().n_features_in_ == 3


def test_poisson():
    rng = np.random.default_rng(4)
    x, predictor = rows(400, rng)
    counts = rng.poisson(np.exp(predictor))
    fitted = PoissonRegressor(alpha=0.01, tol=1e-10, max_iter=1000).fit(x, counts)
    back = kf.fuse([kf.extract(fitted, name="a", data=(x, counts))]).model()
    np.testing.assert_allclose(back.predict(x), fitted.predict(x), rtol=1e-5)
    low, high = back.predict_interval(x)
    assert (low < high).all()


def test_a_silo_of_one_class():
    x, y = patients(100, np.random.default_rng(5))
    prior = {"intercept": 3.0, **PRIOR}
    parts = {"one": (x[y == 1], y[y == 1]), "both": (x, y)}
    fusion = kf.fuse(
        [
            kf.extract(LogisticRegression(), name=n, data=d, prior_sd=prior, local=["intercept"])
            for n, d in parts.items()
        ]
    )
    assert fusion.model("one").intercept_[0] > fusion.model("both").intercept_[0]


def test_the_strength_of_a_prior_is_estimated():
    rng = np.random.default_rng(6)
    true, silos = rng.normal(scale=0.3, size=30), []
    for name in "abcd":
        x = pd.DataFrame(rng.normal(size=(300, 30))).add_prefix("c")
        y = (rng.random(300) < 1 / (1 + np.exp(-x.to_numpy() @ true))).astype(int)
        silos.append(kf.extract(LogisticRegression(), name=name, data=(x, y), local=["intercept"]))
    assert 0.2 < kf.estimate_prior_sd(kf.fuse(silos)) < 0.4


def test_doubtful_columns_are_findings():
    """Other units, a constant column, and a coefficient of the other sign."""
    rng = np.random.default_rng(8)
    silos = []
    for j in range(5):
        x, y = patients(400, rng)
        if j == 1:
            x["age"] *= 1000.0
        if j == 2:
            x["dose"] = 3.0
        if j == 3:
            x["score"] *= -1.0
        prior = {"intercept": 5.0, **dict.fromkeys(COLUMNS, 2.0)}
        silos.append(kf.extract(LogisticRegression(), name=f"h{j}", data=(x, y), prior_sd=prior))
    found = {(f.silo, f.reason.split("'")[1]) for f in kf.diagnose(kf.fuse(silos)).findings}
    assert {("h1", "age"), ("h2", "dose"), ("h3", "score")} <= found
    good = [silos[0], silos[4]]
    assert not kf.diagnose(kf.fuse(good)).findings


X, Y = patients(80, np.random.default_rng(7))


def with_column(column):
    return (X.assign(extra=column), Y)


def logistic(data=(X, Y), model=None, **options):
    return kf.extract(model or LogisticRegression(), name="a", data=data, **options)


FLAT = LogisticRegression(C=np.inf)


@for_each(
    "make, text",
    [
        (lambda: logistic(model=LinearRegression(positive=True)), "expected positive=False"),
        (lambda: logistic(None), r"silo 'a': expected data=\(x, y\)"),
        (lambda: logistic((X, np.full(80, "sick"))), r"two or more classes, got \['sick'\]"),
        (lambda: logistic((X, X["age"])), "expected classes in y, got continuous"),
        (lambda: logistic((X, Y[:5])), r"expected y with 80 rows, as x, got shape \(5,\)"),
        (lambda: logistic(with_column("f")), "expected numbers in column 'extra', got 'f'"),
        (lambda: logistic(model=LogisticRegressionCV()), "expected prior_sd: a LogisticRegr"),
        (lambda: logistic((X, np.ones(80))), "grow without end.* a class or event is missing"),
        (lambda: logistic((X, (X["age"] > 0) * 1), FLAT), "the classes are separated"),
        (lambda: logistic(with_column(1.0), FLAT), r"none about .*'extra'|'intercept'"),
        (lambda: logistic(with_column(X["age"]), FLAT), "none about 'age', 'extra'"),
        (lambda: logistic(with_column(np.nan)), "missing or infinite 'extra'"),
        (lambda: logistic((X.set_axis(["age", "age", "b"], axis=1), Y)), "got 'age' twice"),
        (lambda: logistic((X[["age"]], Y), LogisticRegression().fit(X, Y)), "none named 'dose'"),
        (lambda: logistic((X.rename(columns={"age": "intercept"}), Y)), "no column named"),
        (lambda: logistic(model=LogisticRegression(class_weight="balanced")), "class_weight"),
        (lambda: logistic(model=LogisticRegression(l1_ratio=1.0)), "expected an l2 penalty"),
        (lambda: logistic((X, -Y), PoissonRegressor()), "expected counts >= 0"),
        (lambda: kf.extract(Ridge().fit(X, Y), name="a"), r"expected data=\(x, y\)"),
        (lambda: kf.extract(BayesianRidge().fit(X, Y), name="a"), "expected n_observations"),
        (lambda: logistic((X[:3], Y[:3]), Ridge(alpha=1e-9)), "noise_sd="),
        (lambda: logistic(at=kf.fuse([gamma()])), "expected a fusion of regressions"),
        (lambda: logistic(at=kf.fuse([least_squares()])), "likelihood 'logistic', got 'normal'"),
    ],
)
def test_bad_input(make, text):
    with pytest.raises(KLFusionError, match=text):
        make()


def least_squares():
    return kf.extract(Ridge(), name="b", data=(X, X["age"] + Y))


def gamma():
    family = kf.families.Gamma()
    return kf.Posterior(family, family.natural([2.0], [1.0]))


def test_rows_and_outcomes_that_no_regression_has():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 2))
    y, gap = x[:, 0] + rng.normal(size=30), np.full(30, np.nan)
    constant = np.column_stack([x[:, 0], np.ones(30)])
    labels = np.where(np.arange(30) == 3, np.nan, (y > 0).astype(float))
    for model, data, text in (
        (LinearRegression(), (x[:0], y[:0]), "'a': expected rows"),
        (LinearRegression(), (x[:1], y[:1]), "'a': expected more rows .*, got 1 rows of rank 1"),
        (LinearRegression(), (constant, y), "no constant or repeated column, got .* rank 2 for 3"),
        (LinearRegression(), (x, gap), "'a': expected y without gaps"),
        (LinearRegression(), (x, np.column_stack([y, y])), "'a': expected rows, and y with one"),
        (LogisticRegression(), (x, labels), "'a': expected y without gaps"),
    ):
        with pytest.raises(kf.KLFusionError, match=text):
            kf.extract(model, name="a", data=data)


def test_noise_that_floats_cannot_square_and_freedom_without_noise_are_refused():
    x, y = linear(60)
    silos = [kf.extract(LinearRegression(), name=name, data=(x, y)) for name in "ab"]
    arrays = dict(silos[0].structure.arrays)
    huge = replace(silos[0].structure, arrays={**arrays, "noise": np.array(1e200)})
    with pytest.raises(KLFusionError, match="finite"):
        kf.fuse([replace(silos[0], structure=huge), silos[1]])
    del arrays["noise"]
    with pytest.raises(KLFusionError, match=r"'a'.*expected regression\.noise to be an array"):
        replace(silos[0], structure=replace(silos[0].structure, arrays=arrays))


def test_outcomes_of_two_names_are_refused():
    def sent(name, outcome):
        x, y = patients(60, np.random.default_rng(len(name)))
        y = y if outcome is None else x.assign(y=y)["y"].rename(outcome)
        return kf.extract(LogisticRegression(), name=name, data=(x, y))

    kf.fuse([sent("a", "died"), sent("bb", None), sent("ccc", "Died")])
    expected = "silo 'bb': expected the outcome 'died' as in silo 'a', got 'ill'"
    with pytest.raises(KLFusionError, match=expected):
        kf.fuse([sent("a", "died"), sent("bb", "ill")])
