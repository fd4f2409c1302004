"""`privatize`: every number of a file is public or comes from sums with noise."""

import warnings

import numpy as np
import pytest
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.linear_model import (
    BayesianRidge,
    Lasso,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
)
from sklearn.mixture import BayesianGaussianMixture
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB, MultinomialNB
from sklearn.pipeline import make_pipeline

import klfusion as kf
from klfusion.errors import KLFusionError, MissingDependencyError
from klfusion.pooling import noisy_sums
from klfusion.pooling.noisy_sums import ShrunkWarning
from klfusion.privacy import mechanism, privatize
from klfusion.privacy.bounds import ClippedWarning
from klfusion.privacy.mechanism import DeltaWarning, Noised, Statistic, seeds_allowed

pytest.importorskip("opendp")
BUDGET = {"epsilon": 1.0, "delta": 1e-5}
BOUNDS = {"x0": (-4.0, 4.0), "x1": (-4.0, 4.0)}
MODELS = {
    "linear": (LinearRegression(), {"bounds": BOUNDS | {"y": (-9.0, 9.0)}, "prior_sd": 5.0}),
    "no intercept": (
        Ridge(fit_intercept=False),
        {"bounds": BOUNDS | {"y": (-9.0, 9.0)}, "prior_sd": 5.0},
    ),
    "Bayesian": (BayesianRidge(), {"bounds": BOUNDS | {"y": (-9.0, 9.0)}, "prior_sd": 5.0}),
    "logistic": (
        LogisticRegression(),
        {"bounds": BOUNDS, "prior_sd": 5.0, "classes": [0, 1], "local": ["intercept"]},
    ),
    "naive Bayes": (GaussianNB(), {"bounds": BOUNDS, "classes": [0, 1]}),
    "linear discriminant": (LinearDiscriminantAnalysis(), {"bounds": BOUNDS, "classes": [0, 1]}),
    "quadratic": (QuadraticDiscriminantAnalysis(), {"bounds": BOUNDS, "classes": [0, 1]}),
    "categorical": (CategoricalNB(), {"bounds": {"x0": 3, "x1": 3}, "classes": [0, 1]}),
    "counts": (MultinomialNB(), {"norm": 3.0, "classes": [0, 1]}),
    "head": (kf.learners.BayesianHead(), {"norm": 3.0, "classes": [0, 1]}),
}


def table(kind, n=400, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    if kind in ("categorical", "counts"):
        rates = np.column_stack([0.3 + 1.2 * y, 1.5 - 1.2 * y])
        return np.minimum(rng.poisson(rates), 2).astype(float), y
    x = np.clip(rng.normal(size=(n, 2)) + 1.5 * y[:, None] - 0.7, -2.8, 2.8)
    if kind in ("linear", "no intercept", "Bayesian"):
        return x, np.clip(x @ [1.0, -0.5] + 0.5 * rng.normal(size=n), -8, 8)
    return x, y


def private(kind, data=None, **more):
    model, how = MODELS[kind]
    return kf.privatize(model, name="a", data=data or table(kind), **BUDGET, **how, **more)


SHRUNK = "ignore::klfusion.pooling.noisy_sums.ShrunkWarning"


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.filterwarnings("ignore::klfusion.privacy.bounds.ClippedWarning", SHRUNK)
def test_fuses_predicts_and_comes_back_from_a_file(kind, tmp_path):
    sites = []
    for number in range(4):
        model, how = MODELS[kind]
        data = table(kind, seed=number)
        sites.append(
            kf.privatize(model, name=f"s{number}", data=data, epsilon=5.0, delta=1e-5, **how)
        )
    kf.save(tmp_path / "a.safetensors", sites[0])
    again = kf.load(tmp_path / "a.safetensors")
    assert np.array_equal(again.natural, sites[0].natural)
    assert again.provenance["privacy"]["epsilon"] == 5.0
    fusion = kf.fuse(sites)
    assert fusion.posterior.provenance["privacy"].keys() == {f"s{k}" for k in range(4)}
    x, y = table(kind, seed=9)
    predicted = fusion.model().predict(x)
    if kind in ("linear", "no intercept", "Bayesian"):
        assert np.corrcoef(predicted, y)[0, 1] > 0.8
    else:
        assert np.mean(predicted == y) > 0.6


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.filterwarnings("ignore::klfusion.privacy.bounds.ClippedWarning")
def test_no_number_without_noise_reaches_the_file(kind, tmp_path, monkeypatch):
    """With the sums replaced by a constant, files of different tables are equal, bit by bit."""

    def constant(statistics, budget, *, random_state=None):
        sums = {k: np.full(np.shape(s.rows)[1:], 0.25) for k, s in statistics.items()}
        for name, own in statistics.items():
            if own.symmetric:
                sums[name] = sums[name] + 4.0 * np.eye(np.shape(own.rows)[-1])
        return Noised(sums, dict.fromkeys(sums, 1.0), {"mechanism": "constant"})

    monkeypatch.setattr(privatize, "noised", constant)
    first, second = (table(kind, n=n, seed=s) for n, s in ((300, 1), (71, 2)))
    files = []
    for number, data in enumerate((first, second)):
        path = tmp_path / f"{number}.safetensors"
        kf.save(path, private(kind, data))
        files.append(path.read_bytes())
    assert files[0] == files[1]


def test_neighbours_differ_by_what_the_row_adds_and_nothing_else():
    x, y = table("linear")
    with seeds_allowed():
        whole = private("linear", (x, y), random_state=3)
        less = private("linear", (x[:-1], y[:-1]), random_state=3)
    change = whole.structure.arrays["sums.gram"] - less.structure.arrays["sums.gram"]
    row = np.array([1.0, *(x[-1] / 4.0)])
    assert change == pytest.approx(np.outer(row, row), abs=1e-4)  # the grid of the mechanism
    assert whole.structure.info == less.structure.info
    assert whole.provenance == less.provenance


def test_clipping_is_reported_at_the_site_and_in_no_file(tmp_path):
    x, y = table("linear")
    with seeds_allowed(), pytest.warns(ClippedWarning, match="2 of 400 rows .* in no file"):
        far = x.copy()
        far[:2] = 100.0
        found = private("linear", (far, y), random_state=0)
    kf.save(tmp_path / "a.safetensors", found)
    assert b"clipped" not in (tmp_path / "a.safetensors").read_bytes()


def test_posterior_knows_of_the_noise():
    with seeds_allowed():
        loud = private("linear", random_state=0)
        data = table("linear")
        model, how = MODELS["linear"]
        calm = kf.privatize(
            model, name="a", data=data, epsilon=50.0, delta=1e-5, random_state=0, **how
        )
    exact = kf.extract(model, name="a", data=data, prior_sd=5.0)
    wide, narrow, least = (
        np.sqrt(np.diag(p.params()["covariance"][0])) for p in (loud, calm, exact)
    )
    assert (wide > 3.0 * narrow).all()
    assert (narrow < 3.0 * least).all()
    off = np.abs(loud.params()["mean"][0] - [0.0, 1.0, -0.5]) / wide
    assert (off < 4.0).all()


def covered(kind, epsilon, repeats=40):
    """Shares of 95 % intervals of class parameters that hold the truth."""
    held = []
    model, how = MODELS[kind]
    for seed in range(repeats):
        with seeds_allowed():
            found = kf.privatize(
                model, data=table(kind, seed=seed), epsilon=epsilon, delta=1e-5, random_state=seed,
                **how,
            )  # fmt: skip
        if kind == "naive Bayes":
            own, truth = found.params(), np.array([[-0.7], [0.8]])
            width = np.sqrt(own["rate"] / (own["shape"] * own["kappa"]))
            held.append(np.abs(own["mean"] - truth) < 1.96 * width)
        else:
            x, y = table(kind, n=100_000, seed=999)
            for column, key in enumerate(("feature 0", "feature 1")):
                a = found.params()[f"{key}.concentration"]
                truth = [np.bincount(x[y == k, column].astype(int)) for k in (0, 1)]
                share, total = a / a.sum(axis=1, keepdims=True), a.sum(axis=1, keepdims=True)
                width = np.sqrt(share * (1.0 - share) / (total + 1.0))
                off = share - np.array([t / t.sum() for t in truth])
                held.append(np.abs(off) < 1.96 * width)
    return float(np.mean(held))


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 10.0])
@pytest.mark.parametrize("kind", ["naive Bayes", "categorical"])
@pytest.mark.filterwarnings("ignore::klfusion.privacy.bounds.ClippedWarning")
def test_posteriors_of_classes_include_the_noise(kind, epsilon):
    assert covered(kind, epsilon) > 0.88  # 160 to 480 intervals: a deviation of 1 to 2 %


@pytest.mark.filterwarnings("ignore::klfusion.privacy.bounds.ClippedWarning")
def test_more_noise_is_fewer_rows_and_a_head_in_doubt():
    with seeds_allowed():
        heads = []
        for epsilon in (0.5, 50.0):
            site = kf.privatize(
                kf.learners.BayesianHead(), data=table("logistic"), norm=3.0, classes=[0, 1],
                epsilon=epsilon, delta=1e-5, random_state=1,
            )  # fmt: skip
            heads.append(kf.fuse([site]).model())
    plain = kf.learners.BayesianHead().fit(*table("logistic"))
    x, y = table("logistic", seed=5)
    loud, calm, exact = (np.abs(h.predict_proba(x)[:, 0] - 0.5).mean() for h in (*heads, plain))
    assert loud < calm <= exact + 0.02
    assert heads[0].statistics_.counts.sum() < 0.5 * heads[1].statistics_.counts.sum() < 400
    assert np.mean(heads[1].predict(x) == y) == pytest.approx(
        np.mean(plain.predict(x) == y), abs=0.02
    )


def test_replaced_rows_need_more_noise():
    with seeds_allowed():
        one, other = (
            private("linear", random_state=0, neighbours=n) for n in ("add-remove", "replace")
        )
    a, b = (p.provenance["privacy"]["noise_sd"]["gram"] for p in (one, other))
    assert 1.4 < b / a < 2.01


def test_statistics_by_name():
    found = kf.privatize({"ages": Statistic(np.full((9, 1), 0.5), 1.0)}, **BUDGET)
    assert found.sums["ages"].shape == (1,) and found.statement["epsilon"] == 1.0


@pytest.mark.parametrize(
    ("model", "instead"),
    [
        (BayesianGaussianMixture(), "privatize a GaussianNB or a discriminant analysis"),
        (kf.learners.MixedMixture(2), "privatize a GaussianNB or a discriminant analysis"),
        (LatentDirichletAllocation(), "privatize a MultinomialNB of known classes"),
        (kf.learners.StickyHDPHMM(), "known states"),
        (kf.learners.MeanFieldBNN(), "DP-SGD, by opacus"),
        (PoissonRegressor(), "bounded counts"),
        (kf.Posterior(kf.families.Gamma(), [[1.0, 1.0]]), "data="),
        (BernoulliNB(), "privatize a CategoricalNB"),
        (make_pipeline(LogisticRegression()), "privatize its last step"),
        (Lasso(), "privatize a LinearRegression"),
        (LogisticRegression, r"such as LogisticRegression\(\), got the class"),
        (object(), "unknown"),
    ],
)
def test_what_cannot_be_promised_is_refused(model, instead):
    with pytest.raises(KLFusionError, match=instead):
        kf.privatize(model, name="a", data=table("linear"), **BUDGET)


@pytest.mark.parametrize(
    ("kind", "wrong", "message"),
    [
        ("linear", {"bounds": BOUNDS}, "bounds of 'y'"),
        ("linear", {"bounds": None}, "expected public bounds of 'x0', 'x1', got none"),
        ("linear", {"bounds": 1}, "'a': expected bounds to be a mapping of columns to"),
        ("linear", {"bounds": BOUNDS | {"Y": (0, 1)}}, "'x0', 'x1', 'y' alone, got 'Y'"),
        ("logistic", {"bounds": BOUNDS | {"y": (0, 1)}}, "'x0', 'x1' alone, got 'y'"),
        ("categorical", {"bounds": {"x0": 3, "x1": 3, "x2": 3}}, "alone, got 'x2'"),
        ("counts", {"bounds": BOUNDS}, "expected no bounds, for norm has them, got 'x0', 'x1'"),
        ("linear", {"bounds": BOUNDS | {"y": (1.0, 0.0)}}, r"'y' as finite \(low, high\)"),
        ("linear", {"prior_sd": None}, "prior_sd"),
        ("linear", {"data": None}, "data="),
        ("no intercept", {"bounds": BOUNDS | {"y": (1.0, 2.0)}}, "include 0"),
        ("logistic", {"classes": None}, "classes="),
        ("logistic", {"classes": [0, 2]}, "expected y"),
        ("logistic", {"classes": [0, 1, 2]}, "two classes"),
        ("categorical", {"bounds": BOUNDS}, "number of categories"),
        ("counts", {"norm": None}, "norm"),
        ("head", {"norm": None}, "norm"),
        ("linear", {"random_state": 1}, "no random_state"),
        ("linear", {"epsilon": 1e-9}, "expected epsilon to be a number > 1e-05 and < 100"),
        ("linear", {"epsilon": 100.0}, "expected epsilon to be a number > 1e-05 and < 100"),
        ("linear", {"record": "."}, "cannot be written"),
        ("linear", {"record": 5}, "record: expected the path of a file, got 5"),
        ("linear", {"name": ""}, "expected name to be a non-empty string, got ''"),
        ("linear", {"local": ["x9"]}, "'a': local: expected a list of names .* got 'x9'"),
        ("linear", {"local": "intercept"}, "'a': local: expected a list .* got 'intercept'"),
        ("linear", {"prior_sd": 1e9}, "floats cannot hold"),
        ("linear", {"bounds": BOUNDS | {"x0": (0, 1e-300), "y": (-9, 9)}}, "got one of 'x0' that"),
        ("linear", {"bounds": BOUNDS | {"x0": (-1e308, 1e308), "y": (-9, 9)}}, "got one of 'x0'"),
        ("linear", {"data": (np.full((3, 2), np.nan), np.zeros(3))}, "silo 'a': expected numbers"),
        ("linear", {"data": (np.zeros((0, 2)), np.zeros(0))}, "silo 'a': expected rows"),
        ("logistic", {"classes": [0, "a"]}, "classes=, a list of all classes .* of one type"),
        ("logistic", {"classes": 2}, "classes=, a list of all classes .* got 2"),
        ("logistic", {"classes": "01"}, "classes=, a list of all classes .* got '01'"),
        ("logistic", {"classes": ["0", "1"]}, r"y to be one of \['0', '1'\], got [01]"),
        ("naive Bayes", {"prior_sd": 1.0}, "expected 'prior_sd' of regressions alone"),
        ("categorical", {"local": ["x0"]}, "expected 'local' of regressions alone"),
    ],
)
@pytest.mark.filterwarnings("ignore::klfusion.privacy.bounds.ClippedWarning")
def test_bad_input(kind, wrong, message, tmp_path):
    model, how = MODELS[kind]
    record = tmp_path / "releases.jsonl"
    given = {"name": "a", "data": table(kind), "record": record, **BUDGET, **how} | wrong
    with pytest.raises(KLFusionError, match=message):
        kf.privatize(model, **given)
    assert not record.exists()  # nothing is spent


@pytest.mark.parametrize(
    ("kind", "model", "message"),
    [
        ("logistic", LogisticRegression(class_weight="balanced"), "no class_weight"),
        ("linear", LinearRegression(positive=True), "no positive, which sums do not have"),
        ("naive Bayes", GaussianNB(priors=[0.5, 0.5]), "shares of classes from the data"),
        ("counts", MultinomialNB(class_prior=[0.5, 0.5]), "shares of classes from the data"),
        ("counts", MultinomialNB(alpha=0.0), "alpha > 0"),
        ("categorical", CategoricalNB(alpha=0.0), "alpha > 0"),
    ],
)
def test_settings_are_refused_rather_than_ignored(kind, model, message, tmp_path):
    how, record = MODELS[kind][1], tmp_path / "releases.jsonl"
    with pytest.raises(KLFusionError, match=message):
        kf.privatize(model, name="a", data=table(kind), record=record, **BUDGET, **how)
    assert not record.exists()


def test_numbers_of_numpy_are_numbers():
    with seeds_allowed():
        for kind, more in (
            ("categorical", {"bounds": {"x0": np.int64(3), "x1": np.int64(3)}}),
            ("naive Bayes", {"classes": np.array([0, 1])}),
            ("naive Bayes", {"bounds": {"x0": np.array([-4, 4]), "x1": [-4.0, 4.0]}}),
        ):
            model, how = MODELS[kind]
            one, two = (
                kf.privatize(model, data=table(kind), random_state=0, **BUDGET, **given)
                for given in (how, how | more)
            )
            assert np.array_equal(one.natural, two.natural)


def test_a_prior_too_wide_for_floats_is_said(monkeypatch):
    def fails(_):
        raise np.linalg.LinAlgError

    monkeypatch.setattr(noisy_sums, "_noise_aware", fails)
    noisy_sums.noise_aware.cache_clear()
    with pytest.raises(KLFusionError, match="'a': expected a prior_sd that floats can hold"):
        private("linear")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Statistic(np.ones((3, 1)), 0.0), "expected bound of 'n' to be a number > 0"),
        (Statistic(np.ones((3, 1)), np.inf), "expected bound of 'n' to be a number > 0"),
        (Statistic(np.ones((3, 1)), 1.0, share=-1.0), "expected share of 'n'"),
        (Statistic(np.ones((3, 1)), 0.5), "expected rows clipped to norms of at most 0.5"),
        (Statistic(np.full((3, 1), np.nan), 1.0), "expected rows clipped"),
        (Statistic(np.array(["a"]), 1.0), "n: expected rows of numbers"),
        (Statistic(np.ones((4, 1)), 1.0), "expected statistics of the same rows, got 3 and 4"),
    ],
)
def test_statistics_that_are_none_are_refused(wrong, message, tmp_path):
    good, record = Statistic(np.ones((3, 1)), 1.0), tmp_path / "releases.jsonl"
    with pytest.raises(KLFusionError, match=message):
        kf.privatize({"n": wrong, "m": good}, record=record, **BUDGET)
    assert not record.exists()


def test_a_column_has_not_the_name_of_the_outcome():
    pandas = pytest.importorskip("pandas")
    x, y = table("linear")
    frame = pandas.DataFrame(x, columns=["x0", "y"])
    bounds = {"x0": (-4.0, 4.0), "y": (-9.0, 9.0)}
    with pytest.raises(KLFusionError, match="'a': expected no column called 'y'"):
        kf.privatize(LinearRegression(), name="a", data=(frame, y), bounds=bounds, **BUDGET)


def test_an_outcome_of_words_is_no_number():
    x, y = table("linear")
    model, settings = MODELS["linear"]
    with pytest.raises(KLFusionError, match="'a': expected numbers in y, got 'yes'"):
        kf.privatize(model, name="a", data=(x, ["yes"] * len(y)), **settings, **BUDGET)


def test_a_delta_that_allows_a_row_is_said_at_the_site():
    with seeds_allowed(), pytest.warns(DeltaWarning, match="delta 0.01 with 400 rows"):
        model, how = MODELS["linear"]
        kf.privatize(model, data=table("linear"), epsilon=1.0, delta=0.01, random_state=0, **how)
    with pytest.warns(DeltaWarning):
        kf.privatize({"n": Statistic(np.ones((9, 1)), 1.0)}, epsilon=1.0, delta=0.5)


def test_a_silo_without_noise_may_be_fused_with_others():
    data = table("linear", seed=4)
    model = MODELS["linear"][0]
    plain = kf.extract(model, name="b", data=data, prior_sd=5.0)
    fusion = kf.fuse([private("linear"), plain])
    assert fusion.posterior.params()["mean"][0, 1:] == pytest.approx([1.0, -0.5], abs=0.2)


@pytest.mark.filterwarnings(SHRUNK)
def test_order_of_silos_does_not_matter():
    with seeds_allowed():
        sites = [
            kf.privatize(
                MODELS["logistic"][0], name=name, data=table("logistic", seed=k), random_state=k,
                **BUDGET, **MODELS["logistic"][1],
            )
            for k, name in enumerate("abc")
        ]  # fmt: skip
    one, other = kf.fuse(sites), kf.fuse(sites[::-1])
    assert one.posterior.natural == pytest.approx(other.posterior.natural, rel=1e-6)
    assert one.model("b").coef_ == pytest.approx(other.model("b").coef_, rel=1e-6)


def test_absence_of_the_library_names_the_pip_line(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "opendp.prelude", None)
    mechanism.multiplier.cache_clear()
    with pytest.raises(MissingDependencyError, match=r"pip install 'klfusion\[privacy\]'"):
        private("linear")


def test_a_second_round_corrects_the_first():
    rng = np.random.default_rng(0)
    tables = {}
    for name in "abcd":
        x = rng.uniform(-1.0, 1.0, size=(1000, 2))
        tables[name] = x, (x @ [3.0, -1.5] + rng.logistic(size=1000) > 0).astype(int)
    public = {"bounds": {"x0": (-1, 1), "x1": (-1, 1)}, "prior_sd": 5.0, "classes": [0, 1]}
    found, said = [None], []
    for _ in range(3):
        sites = [
            kf.privatize(
                LogisticRegression(), name=name, data=data, at=found[-1], local=["intercept"],
                epsilon=10.0, delta=1e-5, **public,
            )
            for name, data in tables.items()
        ]  # fmt: skip
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ShrunkWarning)
            found.append(kf.fuse(sites))
        said.append([str(one.message) for one in caught])
    for text in ("shrinks 'x0', 'x1' by more", "Another round", "kf.privatize(..., at=fusion)"):
        assert text in said[0][0]
    assert not said[2]
    means = [fusion.posterior.params()["mean"][0] for fusion in found[1:]]
    assert means[0][0] < 2.4  # one step from zero
    assert means[-1] == pytest.approx([3.0, -1.5], abs=0.6)
    plain = kf.fuse([kf.extract(LogisticRegression(), name="a", data=tables["a"], prior_sd=5.0)])
    with pytest.raises(KLFusionError, match="at: expected silos with budgets, got none for 'a'"):
        kf.privatize(LogisticRegression(), name="a", data=tables["a"], at=plain, **BUDGET, **public)
    with pytest.raises(KLFusionError, match="at: expected a fusion"):
        kf.privatize(LogisticRegression(), name="a", data=tables["a"], at=3, **BUDGET, **public)
