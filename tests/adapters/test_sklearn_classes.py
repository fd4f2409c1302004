"""Naive Bayes and discriminant analysis: the fused model is that of the pooled rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.naive_bayes import CategoricalNB, GaussianNB, MultinomialNB

import klfusion as kf
from klfusion.errors import IncompatibleSilosError, KLFusionError
from tests.helpers.loops import for_each

X, Y = load_wine(return_X_y=True)
X = X[:, :5]
LEVELS = (np.median(X, axis=0) < X).astype(int) + (np.quantile(X, 0.8, axis=0) < X)
CASES = [
    (GaussianNB(), X),
    (CategoricalNB(), LEVELS),
    (MultinomialNB(alpha=0.5), np.round(X).astype(int)),
    (LinearDiscriminantAnalysis(), X),
    (LinearDiscriminantAnalysis(solver="lsqr"), X),
    (QuadraticDiscriminantAnalysis(), X),
    (QuadraticDiscriminantAnalysis(reg_param=0.1), X),
]
FITTED = [
    "theta_", "var_", "epsilon_", "class_prior_", "class_log_prior_", "coef_", "intercept_",
    "means_", "priors_", "class_count_", "xbar_",
]  # fmt: skip


def sent(model, x, y, name):
    if "Discriminant" in type(model).__name__:
        return kf.extract(model, name=name, data=(x, y))
    from sklearn.base import clone

    return kf.extract(clone(model).fit(x, y), name=name)


def check_equal(model, x, y, silo):
    fusion = kf.fuse([sent(model, x[silo == j], y[silo == j], f"h{j}") for j in np.unique(silo)])
    fused, pooled = fusion.model(), type(model)(**model.get_params()).fit(x, y)
    np.testing.assert_allclose(fused.predict_proba(x), pooled.predict_proba(x), atol=1e-8)
    np.testing.assert_array_equal(fused.classes_, pooled.classes_)
    for name in FITTED:
        if hasattr(pooled, name):
            one, two = np.asarray(getattr(fused, name)), np.asarray(getattr(pooled, name))
            np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-8 * np.abs(two).max())


@pytest.mark.parametrize(("model", "x"), CASES, ids=lambda v: str(v) if hasattr(v, "fit") else "")
@given(data=st.data())
def test_every_partition(model, x, data):
    n_silos = data.draw(st.integers(1, 6))
    cuts = data.draw(st.lists(st.integers(0, n_silos - 1), min_size=len(Y), max_size=len(Y)))
    check_equal(model, x, Y, np.array(cuts))


@for_each("case", range(len(CASES)))
def test_sites_of_one_class_and_of_one_row(case):
    model, x = CASES[case]
    check_equal(model, x, Y, Y)
    silo = np.zeros(len(Y), dtype=int)
    silo[[0, 70, 150]] = [1, 2, 3]
    check_equal(model, x, Y, silo)


def test_classes_keep_their_type():
    for labels in (np.array(["b", "a", "c"])[Y], Y.astype(float), Y > 0):
        fusion = kf.fuse({"h": GaussianNB().fit(X, labels), "i": GaussianNB().fit(X, labels)})
        assert fusion.model().classes_.dtype.kind == labels.dtype.kind
        np.testing.assert_array_equal(fusion.model().classes_, np.unique(labels))


def test_fewer_categories_at_a_silo():
    few = LEVELS[:, 0] < 2
    silo = (~few).astype(int)
    assert CategoricalNB().fit(LEVELS[few], Y[few]).n_categories_[0] == 2
    check_equal(CategoricalNB(), LEVELS, Y, silo)


def test_transform_of_lda():
    halves = np.arange(len(Y)) % 2
    model = LinearDiscriminantAnalysis()
    fused = kf.fuse([sent(model, X[halves == j], Y[halves == j], f"h{j}") for j in (0, 1)]).model()
    pooled = LinearDiscriminantAnalysis().fit(X, Y)
    np.testing.assert_allclose(np.abs(fused.transform(X)), np.abs(pooled.transform(X)), atol=1e-8)


@for_each(
    "make, text",
    [
        (lambda: kf.extract(LinearDiscriminantAnalysis(), name="a"), r"silo 'a': expected data="),
        (lambda: kf.extract(GaussianNB(), name="a"), "expected a fitted GaussianNB"),
        (lambda: kf.extract(GaussianNB().fit(X, Y), name="a", data=(X, Y)), "expected no data"),
        (
            lambda: kf.extract(GaussianNB(priors=[0.5, 0.3, 0.2]).fit(X, Y), name="a"),
            "expected shares of classes from the data",
        ),
        (
            lambda: kf.extract(
                LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.5), name="a", data=(X, Y)
            ),
            "expected no shrinkage",
        ),
        (
            lambda: kf.fuse(
                [sent(LinearDiscriminantAnalysis(), X[Y == 0], Y[Y == 0], "a")]
            ).model(),
            "expected two classes in all silos, got one",
        ),
    ],
)
def test_bad_input(make, text):
    with pytest.raises(KLFusionError, match=text):
        make()


def test_other_columns_are_refused():
    pd = pytest.importorskip("pandas")
    a, b = (pd.DataFrame(X, columns=list(names)) for names in ("abcde", "abced"))
    with pytest.raises(IncompatibleSilosError, match=r"silo 'i': expected the features"):
        kf.fuse({"h": GaussianNB().fit(a, Y), "i": GaussianNB().fit(b, Y)})
    with pytest.raises(IncompatibleSilosError, match="silo 'i': expected labels of type 'int'"):
        kf.fuse({"h": GaussianNB().fit(X, Y), "i": GaussianNB().fit(X, Y.astype(str))})
    with pytest.raises(IncompatibleSilosError, match="silo 'i': expected the settings"):
        kf.fuse({"h": MultinomialNB().fit(X, Y), "i": MultinomialNB(alpha=2.0).fit(X, Y)})


def test_silos_with_other_labels_or_settings_are_named():
    x = np.random.default_rng(0).normal(size=(30, 2))
    y = np.arange(30) % 2
    first = GaussianNB().fit(x, y)
    with pytest.raises(
        KLFusionError, match="silo 'b': expected labels of type 'int' as in silo 'a'"
    ):
        kf.fuse({"a": first, "b": GaussianNB().fit(x, y.astype(str))})
    with pytest.raises(KLFusionError, match=r"silo 'b': expected the settings .*1e-09.* got .*0.1"):
        kf.fuse({"a": first, "b": GaussianNB(var_smoothing=0.1).fit(x, y)})
