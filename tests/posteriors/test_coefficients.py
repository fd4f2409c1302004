"""Coefficients by name: order, missing ones, units, local ones."""

from __future__ import annotations

import re

import numpy as np
import pytest

import klfusion as kf
from klfusion.errors import IncompatibleSilosError, InvalidPosteriorError, KLFusionError
from klfusion.posteriors.structure.regression import Information
from tests.helpers.loops import for_each

NAMES = ["intercept", "age", "dose"]


def silo(name="a", names=NAMES, seed=0, **options):
    rng = np.random.default_rng([seed, len(name)])
    a = rng.normal(size=(30, len(names)))
    mean = dict(zip(sorted(NAMES), rng.normal(size=3), strict=True))
    return kf.coefficients(
        [mean.get(k, 0.0) for k in names], np.linalg.inv(a.T @ a), names, name=name, **options
    )


def swapped(posterior, order):
    info = posterior.structure.info
    p, names = posterior.params(), [info["coordinates"][k] for k in order]
    covariance = p["covariance"][0][np.ix_(order, order)]
    units = info["units"]
    return kf.coefficients(p["mean"][0][order], covariance, names, name=posterior.name, units=units)


def test_order_is_aligned():
    a, b = silo("a"), silo("b", seed=1)
    once, again = kf.fuse([a, b]), kf.fuse([a, swapped(b, [2, 0, 1])])
    assert again.posterior.structure.info["coordinates"] == NAMES
    np.testing.assert_allclose(once.posterior.natural, again.posterior.natural, rtol=1e-9)


def test_a_missing_coefficient_has_the_prior():
    a = silo("a", prior_sd=2.0)
    b = silo("b", ["age", "intercept"], prior_sd=2.0)
    fused = kf.fuse([a, b], pooling="product").posterior.params()["covariance"][0]
    alone = kf.fuse([a], pooling="product").posterior.params()["covariance"][0]
    assert fused[1, 1] < alone[1, 1]
    prior = np.linalg.inv(Information.of(a.natural[0], 3).precision)
    assert fused[2, 2] <= prior[2, 2] + 1e-12


@for_each("other", ["AGE ", "age[T.2.0]", "age[T.2.00]:dose"])
def test_one_coefficient_in_two_spellings_is_refused(other):
    known = {"AGE ": "age", "age[T.2.0]": "age[T.2]"}.get(other, "age[T.2]:dose")
    silos = [silo(n, [key, "x", "z"], prior_sd=2.0) for n, key in (("a", known), ("b", other))]
    with pytest.raises(IncompatibleSilosError, match=f"'b': expected {re.escape(repr(known))} as"):
        kf.fuse(silos)


@for_each("other", ["age[T.20]", "age[T.2.05]", "age[T.2.0.1]"])
def test_other_numbers_are_other_coefficients(other):
    kf.fuse([silo(n, [key, "x"], prior_sd=2.0) for n, key in (("a", "age[T.2]"), ("b", other))])


def test_a_missing_coefficient_of_a_flat_prior_is_refused():
    with pytest.raises(IncompatibleSilosError, match=r"silo 'b': .*'dose'.* its prior is flat"):
        kf.fuse([silo("a"), silo("b", ["age", "intercept"])])


def test_local_coefficients_are_those_of_the_joint_gaussian():
    """Own intercepts, one slope: the same as one regression with an intercept per silo."""
    silos = [silo(n, seed=k, local=["intercept"]) for k, n in enumerate("abc")]
    fusion = kf.fuse(silos)
    joint = Information(np.zeros(5), np.zeros((5, 5)))  # three intercepts, two slopes
    for j, own in enumerate(silos):
        part = Information.of(own.natural[0], 3).spread(np.array([j, 3, 4]), 5)
        joint = Information(joint.shift + part.shift, joint.precision + part.precision)
    mean, covariance = np.linalg.solve(joint.precision, joint.shift), np.linalg.inv(joint.precision)
    for j, name in enumerate("abc"):
        site = fusion.site(name)
        assert site.structure.info["coordinates"] == ["age", "dose", "intercept"]
        order = [3, 4, j]
        np.testing.assert_allclose(site.params()["mean"][0], mean[order], rtol=1e-9)
        np.testing.assert_allclose(
            site.params()["covariance"][0], covariance[np.ix_(order, order)], rtol=1e-8
        )


def test_a_new_silo_has_the_spread_of_local_coefficients():
    means = {"a": -3.0, "b": 0.0, "c": 3.1, "d": 0.2}
    silos = [
        kf.coefficients([m, 1.0], np.diag([0.01, 0.1]), NAMES[:2], name=n, local=["intercept"])
        for n, m in means.items()
    ]
    new = kf.fuse(silos).site().params()
    assert abs(new["mean"][0][1]) < 0.2
    assert 1.5 < np.sqrt(new["covariance"][0][1, 1]) < 4.0
    np.testing.assert_allclose(kf.fuse(silos).site("a").params()["mean"][0], [1.0, -3.0])


def test_files_keep_all(tmp_path):
    fusion = kf.fuse([silo(n, seed=k, local=["intercept"]) for k, n in enumerate("ab")])
    kf.save(tmp_path / "f.safetensors", fusion)
    again = kf.load(tmp_path / "f.safetensors")
    np.testing.assert_array_equal(again.site("b").natural, fusion.site("b").natural)
    without = kf.fuse([silo(n, seed=k, local=["intercept"]) for k, n in enumerate("ab")])
    np.testing.assert_array_equal(without.site().natural, again.site().natural)


def test_silos_come_and_go():
    silos = [silo(n, seed=k, local=["intercept"]) for k, n in enumerate("abc")]
    fusion = kf.fuse(silos)
    np.testing.assert_allclose(
        fusion.remove("c").posterior.natural, kf.fuse(silos[:2]).posterior.natural
    )
    np.testing.assert_allclose(
        kf.fuse(silos[:2]).add(silos[2]).posterior.natural, fusion.posterior.natural
    )


def test_a_fusion_can_be_a_silo():
    silos = [silo(n, seed=k, local=["intercept"]) for k, n in enumerate("abc")]
    both = kf.fuse(silos[:2], pooling="product").posterior
    two = kf.fuse([both, silos[2]], pooling="product")
    whole = kf.fuse(silos, pooling="product").posterior
    np.testing.assert_allclose(two.posterior.natural, whole.natural)
    with pytest.raises(KLFusionError, match="not of fusions"):
        two.site("c")


def test_varying_coefficients_shrink_to_the_mean():
    rng = np.random.default_rng(0)
    true = 1.0 + 0.5 * rng.normal(size=12)
    silos = [
        kf.coefficients([m, 0.0], np.diag([0.04, 0.04]), ["a", "b"], name=f"s{j}")
        for j, m in enumerate(true + 0.2 * rng.normal(size=12))
    ]
    fusion = kf.fuse(silos, pooling="hierarchical")
    own = np.array([p.params()["mean"][0][0] for p in silos])
    shrunk = np.array([fusion.site(f"s{j}").params()["mean"][0][0] for j in range(12)])
    middle = fusion.posterior.params()["mean"][0][0]
    assert (np.abs(shrunk - middle) < np.abs(own - middle)).all()
    assert np.mean((shrunk - true) ** 2) < np.mean((own - true) ** 2)
    # No variation is found in the second coefficient, and none is possible.
    second = np.array([fusion.site(f"s{j}").params()["covariance"][0][1, 1] for j in range(12)])
    np.testing.assert_allclose(second, 0.04 / 12)


def test_hierarchical_without_variation_has_the_product_mean():
    silos = [silo(n, seed=3, prior_sd=1.5) for n in "ab"]
    product = kf.fuse(silos).posterior.params()["mean"]
    varying = kf.fuse(silos, pooling="hierarchical").posterior.params()["mean"]
    np.testing.assert_allclose(varying, product)


@for_each(
    "make, text",
    [
        (lambda: silo(names=["age", "age", "dose"]), r"silo 'a': .* got 'age' twice"),
        (lambda: silo(local=["weight"]), r"silo 'a': local: expected .* got 'weight'"),
        (lambda: silo(local="age"), r"silo 'a': local: expected a list .* got 'age'"),
        (lambda: silo(local=NAMES), "expected a coefficient that silos share, got none"),
        (lambda: silo(prior_sd={"weight": 1.0}), "prior_sd: expected names of .* got 'weight'"),
        (lambda: silo(prior_sd=-1.0), "expected prior_sd > 0"),
        (lambda: silo(units={"weight": "kg"}), "units: expected names of .* got 'weight'"),
        (lambda: kf.coefficients([1.0], np.eye(2), ["a", "b"], name="a"), "expected 2 coeff"),
        (lambda: kf.coefficients([1.0, 2.0], np.eye(3), ["a", "b"], name="a"), "covariance matrix"),
        (
            lambda: kf.coefficients([1.0, 2.0], np.ones((2, 2)), ["a", "b"], name="a"),
            "expected a positive definite covariance",
        ),
        (
            lambda: kf.fuse([silo(units={"age": "years"}), silo("b", units={"age": "months"})]),
            r"silo 'b': expected 'age' in 'years' as in silo 'a', got 'months'",
        ),
        (
            lambda: kf.fuse([silo(), silo("b", local=["intercept"])]),
            r"silo 'b': expected the local coefficients \[\]",
        ),
        (
            lambda: kf.fuse([silo(likelihood="logistic"), silo("b", likelihood="poisson")]),
            r"silo 'b': expected a logistic regression as in silo 'a', got 'poisson'",
        ),
        (lambda: kf.fuse([silo()], method="binary"), "components have names and are matched by"),
        (lambda: kf.fuse([silo(), silo("b")], n_components=2), "names set the size"),
        (lambda: kf.fuse([silo(), silo("b")]).site("c"), "expected a silo of 'a', 'b', got 'c'"),
        (
            lambda: kf.fuse([silo(), silo("b")], pooling="hierarchical", keep_silos=False).site(
                "a"
            ),
            "expected a fusion with its silos",
        ),
    ],
)
def test_bad_input(make, text):
    with pytest.raises(KLFusionError, match=text):
        make()


@for_each(
    "mean, covariance, message",
    [
        ([1, 2], [[1, 0.5], [0.2, 1]], "a', covariance, .*: expected a symmetric matrix"),
        ([1, 2], [[1, 1], [1, 1]], "a', .*: expected a positive definite covariance"),
        ([1, 2], [[1, 0], [0, 0]], "a': expected a variance > 0 of 'dose', got 0"),
        ([1, 2], [[1, np.nan], [np.nan, 1]], "a': expected finite covariances of 'age', 'dose'"),
        ([1, 2], [[1, 0], [0, np.inf]], "a': expected finite covariances of 'dose', got inf"),
        ([1, np.nan], np.eye(2), "a': expected a finite mean of 'dose', got nan"),
        ([1, 2, 3], np.eye(2), "a': expected 2 coefficients, as many as coordinates .* got 3 in m"),
    ],
)
def test_bad_numbers_name_silo_and_coefficient(mean, covariance, message):
    with pytest.raises(KLFusionError, match=f"^silo '{message}"):
        kf.coefficients(mean, covariance, ["age", "dose"], name="a")


MATRIX = np.array([[2.0, 0.1], [0.1, 1.0]])


def test_pandas_is_taken_by_label():
    pd = pytest.importorskip("pandas")
    names = NAMES[1:]
    framed = pd.DataFrame(MATRIX, names, names)
    for mean, covariance in (
        (pd.Series({"dose": 4.0, "age": 3.0}), framed),
        (pd.DataFrame({"dose": [4.0], "age": [3.0]}), MATRIX),
        ([3.0, 4.0], framed.iloc[::-1, ::-1]),
        ([3.0, 4.0], framed.iloc[::-1]),
        ([3.0, 4.0], pd.DataFrame(MATRIX[::-1, ::-1], columns=["dose", "age"])),
        (pd.Series([3.0, 4.0]), pd.DataFrame(MATRIX)),  # numbers are no labels
    ):
        found = kf.coefficients(mean, covariance, names, name="a").params()
        np.testing.assert_allclose(found["mean"][0], [3.0, 4.0])
        np.testing.assert_allclose(found["covariance"][0], MATRIX)
    for mean, covariance, message in (
        (pd.Series([1, 2], ["age", "sex"]), np.eye(2), "mean: expected the labels .* 'sex'"),
        ([1, 2], pd.DataFrame(np.eye(2), columns=["b", "c"]), "covariance: expected the label"),
    ):
        with pytest.raises(KLFusionError, match=f"^silo 'a': {message}"):
            kf.coefficients(mean, covariance, names, name="a")


def test_a_file_with_wrong_names_is_refused():
    good = silo()
    info = {**good.structure.info, "coordinates": ["age"]}
    structure = type(good.structure)("regression", {}, info)
    with pytest.raises(InvalidPosteriorError, match=r"silo 'a': expected one component of Normal"):
        kf.Posterior(good.family, good.natural, "a", good.prior, structure=structure)


def test_two_spellings_in_unicode_are_one_name():
    """An accent as part of a letter or beside it, which look alike."""
    one, other = (["intercept", "\u00e9ge", "dose"], ["dose", "e\u0301ge", "intercept"])
    for names in (other, [*other[::-1]]):
        fusion = kf.fuse([silo("a", one, prior_sd=1.0), silo("bb", names, prior_sd=1.0)])
        assert sorted(fusion.posterior.structure.info["coordinates"]) == sorted(one)
    with pytest.raises(InvalidPosteriorError, match="expected different coordinates"):
        silo("a", [one[1], other[1], "dose"], prior_sd=1.0)


@for_each(
    "names, message",
    [
        (["intercept", "Age", "dose"], "'bb': expected 'age' as in silo 'a', got 'Age'"),
        (["intercept", "x0", "x1"], "'bb': expected names of columns, such as 'intercept', 'age'"),
    ],
)
def test_spellings_and_silos_without_names_are_refused(names, message):
    prior = {"prior_sd": 1.0}
    with pytest.raises(IncompatibleSilosError, match=message):
        kf.fuse([silo("a", **prior), silo("bb", names, **prior)])
    both = [*NAMES, "Age"]  # one silo may have both
    assert kf.fuse([silo("a", both, **prior), silo("bb", both[:3], **prior)]).n_silos == 2
