"""Logistic regressions of three classes: out, fused, and back."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

import klfusion as kf
from klfusion.errors import KLFusionError
from tests.helpers.loops import for_each
from tests.helpers.regressions import COLUMNS, divided, pd, rows

LABELS = ["mild", "none", "severe"]
PRIOR = {"intercept": 100.0, **dict.fromkeys(COLUMNS, 1.0)}


def graded(n=300, seed=0):
    """Columns and one of three grades."""
    rng = np.random.default_rng(seed)
    x, predictor = rows(n, rng)
    logits = np.column_stack([np.zeros(n), predictor, 0.5 - x["dose"] - predictor])
    draws = (rng.random((n, 1)) > softmax(logits, axis=1).cumsum(axis=1)).sum(axis=1)
    return x, np.array(LABELS)[draws]


def extracted(name, data, **options):
    return kf.extract(LogisticRegression(), name=name, data=data, **{"prior_sd": PRIOR, **options})


def test_it_comes_back():
    x, y = graded()
    fitted = LogisticRegression(C=0.5, tol=1e-10, max_iter=10_000).fit(x, y)
    sent = kf.extract(fitted, name="a", data=(x, y))
    assert sent.structure.info["coordinates"][:2] == ["none: intercept", "none: age"]
    back = kf.fuse([sent]).model()
    np.testing.assert_allclose(back.coef_, fitted.coef_, atol=1e-5)
    np.testing.assert_allclose(back.intercept_, fitted.intercept_, atol=1e-5)
    np.testing.assert_array_equal(back.predict(x), fitted.predict(x))
    assert back.classes_.tolist() == LABELS


def test_probabilities_are_averages_over_the_posterior():
    x, y = graded(60)
    sent = extracted("a", (x, y))
    model, p = kf.fuse([sent]).model(), sent.params()
    rng, new = np.random.default_rng(0), x[:20]
    draws = rng.multivariate_normal(p["mean"][0], p["covariance"][0], size=20_000)
    design = np.column_stack([np.ones(len(new)), new])
    logits = np.einsum("skd,nd->snk", draws.reshape(-1, 2, 4), design)
    found = softmax(np.concatenate([np.zeros((len(draws), 20, 1)), logits], axis=2), axis=2)
    np.testing.assert_allclose(model.predict_proba(new), found.mean(axis=0), atol=0.02)
    expected = np.quantile(found, [0.025, 0.975], axis=0)
    np.testing.assert_allclose(model.predict_interval(new), expected, atol=0.06)


def test_more_rounds_reach_the_pooled_fit_although_silos_lack_classes():
    x, y = graded(240, seed=1)
    parts = divided(x, y, 3, np.random.default_rng(1))
    for name, lacking in (("h0", "none"), ("h1", "severe")):
        own, outcome = parts[name]
        parts[name] = (own[outcome != lacking], outcome[outcome != lacking])
    whole = [
        pd.concat([d[0] for d in parts.values()]),
        np.concatenate([d[1] for d in parts.values()]),
    ]
    pooled = extracted("pooled", whole).params()["mean"]
    fusion = None
    for _ in range(5):
        at = {n: None if fusion is None else fusion.remove(n) for n in parts}
        silos = [extracted(n, d, classes=LABELS, at=at[n]) for n, d in parts.items()]
        fusion = kf.fuse(silos, pooling="product")
    np.testing.assert_allclose(fusion.posterior.params()["mean"], pooled, atol=1e-6)


def test_columns_that_a_silo_lacks_and_local_intercepts():
    x, y = graded(400, seed=2)
    parts = divided(x, y, 3, np.random.default_rng(2))
    own = parts["h1"][0][["score", "age"]], parts["h1"][1]
    short = {key: sd for key, sd in PRIOR.items() if key != "dose"}
    options = {"local": ["intercept"], "units": {"age": "years"}}
    silos = [
        extracted("h0", parts["h0"], **options),
        extracted("h1", own, **{**options, "prior_sd": short}),
        extracted("h2", parts["h2"], **options),
    ]
    fusion = kf.fuse(silos)
    assert fusion.model("h1").feature_names_in_.tolist() == ["score", "age"]
    assert fusion.model("h1").intercept_ != pytest.approx(fusion.model("h0").intercept_)
    assert fusion.model().predict_proba(x).sum(axis=1) == pytest.approx(1.0)
    # Without data about them, coefficients of "dose" have the prior of differences.
    prior = silos[0].prior
    union = [p.prior for p in kf.fuse(silos).silos]
    assert union[0].shape == prior.shape


def test_the_prior_is_estimated_in_the_units_of_scikit_learn():
    rng = np.random.default_rng(3)
    x = pd.DataFrame(rng.normal(size=(4000, 30)))
    x.columns = [f"c{k}" for k in range(30)]
    true = 0.6 * rng.normal(size=(30, 3))
    y = (rng.random((4000, 1)) > softmax(x.to_numpy() @ true, axis=1).cumsum(axis=1)).sum(axis=1)
    prior = {"intercept": 100.0, **dict.fromkeys(x.columns, 2.0)}
    parts = divided(x, y, 2, rng)
    silos = [extracted(n, data, prior_sd=prior) for n, data in parts.items()]
    assert kf.estimate_prior_sd(kf.fuse(silos)) == pytest.approx(0.6, rel=0.2)


@for_each(
    "options, text",
    [
        (
            {"classes": ["mild", "none"]},
            r"silo 'a': expected two or more classes, got \['severe'\]",
        ),
        ({"local": "intercept"}, "expected a list of names"),
        ({"local": ["weight"]}, "got 'weight'"),
        ({"prior_sd": {"weight": 1.0}}, "got 'weight'"),
        ({"classes": [*LABELS, "worst"], "prior_sd": None}, "a class or event is missing"),
    ],
)
def test_bad_input(options, text):
    with pytest.raises(KLFusionError, match=text):
        extracted("a", graded(), **options)


def test_other_classes_are_refused():
    a, b = extracted("a", graded()), extracted("b", graded(), classes=[*LABELS, "worst"])
    with pytest.raises(
        KLFusionError, match=r"silo 'b': expected the classes .*which classes= sets"
    ):
        kf.fuse([a, b])
