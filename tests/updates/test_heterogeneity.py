"""Findings about the columns of regressions and classifiers."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.naive_bayes import GaussianNB

import klfusion as kf
from tests.helpers.loops import for_each
from tests.helpers.regressions import patients


def logistic(x, y, name):
    return kf.extract(LogisticRegression(), name=name, data=(x, y))


def bayesian(x, y, name):
    return kf.extract(BayesianRidge().fit(x, y), name=name, n_observations=len(x))


def naive(x, y, name):
    return kf.extract(GaussianNB().fit(x, y), name=name)


def discriminant(kind):
    return lambda x, y, name: kf.extract(kind(), name=name, data=(x, y))


def test_other_priors_are_found():
    rng = np.random.default_rng(0)
    own = {n: {"mu": rng.normal(1.0, 0.2, (4, 500))} for n in "abc"}
    stated = [kf.from_draws(own[n], name=n, prior={"mu": 0.5}) for n in "ab"]
    unknown = [kf.from_draws(own[n], name=n) for n in "abc"]
    assert kf.fuse(stated).settings.pooled == "product"
    assert kf.fuse(unknown).settings.pooled == "product, prior unknown"
    assert not kf.diagnose(kf.fuse(unknown)).findings
    (found,) = kf.diagnose(kf.fuse([*stated, unknown[2]])).findings
    assert found.silo == "c" and "states no prior" in found.reason

    x = rng.normal(size=(800, 1))
    y = (x[:, 0] + rng.logistic(size=800) > 0).astype(int)
    models = {"a": LogisticRegression(C=1.0), "b": LogisticRegression(C=1e-4)}
    silos = [kf.extract(m, name=n, data=(x[i::2], y[i::2]))
             for i, (n, m) in enumerate(models.items())]  # fmt: skip
    reasons = [str(finding) for finding in kf.diagnose(kf.fuse(silos)).findings]
    assert any("'b': its prior of 'x0' has deviation 0.01" in text for text in reasons)


def test_a_posterior_wider_than_its_prior_is_found():
    silos = [
        kf.coefficients([1.0, 2.0], np.diag([0.01, 0.01]), ["age", "dose"], name=name, prior_sd=sd)
        for name, sd in {"a": {"age": 0.07, "dose": 1.0}, "b": 1.0, "c": 1.0}.items()
    ]
    found = [str(own) for own in kf.diagnose(kf.fuse(silos)).findings]
    assert any(t.startswith("silo 'a': its posterior of 'age' is wider than its") for t in found)
    assert not any("do not separate" in text for text in found)


ALL = {
    "logistic": logistic,
    "bayesian": bayesian,
    "naive": naive,
    "linear": discriminant(LinearDiscriminantAnalysis),
    "quadratic": discriminant(QuadraticDiscriminantAnalysis),
}


def findings(make, change):
    """Of three silos, the last of which is changed."""
    silos = []
    for j, name in enumerate("abc"):
        x, y = patients(150, np.random.default_rng(j))
        x = x.assign(sick=(x["score"] > 1) * 1)  # of two values, rare in some silos
        silos.append(make(change(x) if name == "c" else x, y, name))
    return [f"{f.silo}: {f.reason}" for f in kf.diagnose(kf.fuse(silos)).findings]


@for_each("name", ALL)
def test_units_and_constants(name):
    assert findings(ALL[name], lambda x: x) == []
    scaled = findings(ALL[name], lambda x: x.assign(age=1000 * x["age"]))
    assert any(t.startswith("c: column 'age' has deviation") and "units?" in t for t in scaled)
    constant = findings(ALL[name], lambda x: x.assign(dose=3.7))
    assert constant == ["c: column 'dose' is constant: it says nothing"]


@for_each("name", ["logistic", "bayesian"])
def test_columns_that_lack_or_repeat(name):
    lacking = findings(ALL[name], lambda x: x.drop(columns="dose"))
    assert lacking == ["c: lacks 'dose', which has the prior there"]
    copied = findings(ALL[name], lambda x: x.assign(dose=2.0 * x["age"]))
    assert "c: its data do not separate the coefficients of 'age', 'dose': the prior does" in copied


def differing(values, variances):
    """The silo whose coefficient is said to differ most."""
    own = zip("abcdefgh", values, variances, strict=False)
    silos = [kf.coefficients([value], [[v]], ["b"], name=name) for name, value, v in own]
    (found,) = [f for f in kf.diagnose(kf.fuse(silos)).findings if "differs most" in f.reason]
    return found.silo


def test_the_silo_that_differs_most_is_the_outlier_and_not_the_precise_one():
    assert differing([3.0, 0.49, 0.41, 0.66], [0.4, 0.037, 0.027, 0.039]) == "a"
    assert differing([0.5, 0.5, 2.5, 0.5, 0.5], [0.02, 0.02, 0.2, 0.001, 0.02]) == "c"
    assert differing([1.0, 1.1, 0.9, 0.0], [0.04, 0.04, 0.04, 0.001]) == "d"


def test_without_it_cochrans_q_falls_most():
    rng = np.random.default_rng(3)
    for _ in range(20):
        values, variances = rng.normal(scale=3.0, size=6), rng.uniform(0.001, 0.3, 6)
        left = []
        for j in range(6):
            y, w = np.delete(values, j), 1.0 / np.delete(variances, j)
            left.append(w @ (y - w @ y / w.sum()) ** 2)
        assert differing(values, variances) == "abcdef"[int(np.argmin(left))]


def test_a_classifier_without_a_feature_names_them():
    x, y = patients(100, np.random.default_rng(0))
    with pytest.raises(kf.KLFusionError, match=r"expected the features .*'score'.* got \['age'\]"):
        kf.fuse([naive(x, y, "a"), naive(x[["age"]], y, "b")])
