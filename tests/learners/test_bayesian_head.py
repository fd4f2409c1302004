"""`BayesianHead`: a classifier on agreed features, exact for every partition."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

import klfusion as kf
from klfusion.learners import BayesianHead, ConvolutionalFeatures, FourierFeatures
from klfusion.learners._head import design, linear_posterior, statistics
from tests.helpers.loops import for_each

_RNG = np.random.default_rng(1)


@pytest.fixture(scope="module")
def digits():
    x, y = load_digits(return_X_y=True)
    return x[:1000] / 16.0, y[:1000], x[1000:] / 16.0, y[1000:]


def sites(x, y, rows, **settings):
    return {f"site {j}": BayesianHead(**settings).fit(x[own], y[own]) for j, own in enumerate(rows)}


PARTITIONS = {
    "one class per site": lambda y: [np.flatnonzero(y == k) for k in range(10)],
    "two classes per site": lambda y: [np.flatnonzero(y // 2 == k) for k in range(5)],
    "one class by one site alone": lambda y: [np.flatnonzero(y == 3), np.flatnonzero(y != 3)],
    "one row": lambda y: [np.arange(1), np.arange(1, len(y))],
    "at random": lambda y: np.array_split(_RNG.permutation(len(y)), 30),
}


@for_each("partition", PARTITIONS)
def test_the_fused_head_is_that_of_the_pooled_data(partition, digits):
    x, y, test, _ = digits
    pooled = BayesianHead().fit(x, y)
    fused = kf.fuse(sites(x, y, PARTITIONS[partition](y))).model()
    np.testing.assert_array_equal(fused.classes_, pooled.classes_)
    np.testing.assert_allclose(fused.coef_, pooled.coef_, atol=1e-8)
    np.testing.assert_allclose(fused.intercept_, pooled.intercept_, atol=1e-8)
    expected = pooled.predict_proba(test)
    np.testing.assert_allclose(fused.predict_proba(test), expected, atol=1e-8)


@for_each("partition", PARTITIONS)
def test_large_means_of_features_cost_no_digits(partition, digits):
    x, y, test, _ = digits
    pooled = BayesianHead().fit(x, y)
    far = kf.fuse(sites(1e6 + x, y, PARTITIONS[partition](y))).model()
    np.testing.assert_allclose(far.coef_, pooled.coef_, atol=1e-8)
    expected = pooled.predict_proba(test)
    np.testing.assert_allclose(far.predict_proba(1e6 + test), expected, atol=1e-8)


def test_coefficients_are_those_of_ridge_regression(digits):
    x, y, test, _ = digits
    head = BayesianHead().fit(x, y)
    ridge = Ridge(alpha=head.posterior_.ridge).fit(x, np.eye(10)[y])
    np.testing.assert_allclose(head.coef_, ridge.coef_, atol=1e-8)
    np.testing.assert_allclose(head.posterior_.scores(test)[0], ridge.predict(test), atol=1e-8)


def test_the_ridge_has_the_highest_evidence():
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(400, 30)), rng.normal(size=(30, 3))
    y = np.argmax(x @ weights + rng.normal(size=(400, 3)), axis=1)
    found = linear_posterior(statistics([(x, y)], 3))
    labels = np.eye(3)[y]
    centred, targets = x - x.mean(axis=0), (labels - labels.mean(axis=0))[:, :2]
    prior = (np.eye(3) - 1.0 / 3)[:2, :2] / 3

    def log_evidence(ridge):
        marginal = np.eye(len(x)) + centred @ centred.T / ridge
        scatter = prior + targets.T @ np.linalg.solve(marginal, targets)
        return -0.5 * (2 * np.linalg.slogdet(marginal)[1] + len(x) * np.linalg.slogdet(scatter)[1])

    best = log_evidence(found.ridge)
    assert found.log_evidence == pytest.approx(best)
    assert best > max(log_evidence(0.8 * found.ridge), log_evidence(1.25 * found.ridge))


def test_scores_without_a_row_are_those_of_the_fit_without_it(digits):
    x, y, *_ = digits
    head = BayesianHead().fit(x, y).posterior_
    scores, leverage = head.left_out(x, y)
    for row in (0, 500):
        others = np.delete(np.arange(len(x)), row)
        ridge = Ridge(alpha=head.ridge).fit(x[others], np.eye(10)[y[others]])
        np.testing.assert_allclose(scores[row], ridge.predict(x[[row]])[0], atol=1e-8)
    assert (leverage > 0).all()


def test_calibration_improves_the_likelihood_and_is_exact(digits):
    x, y, test, answers = digits

    def calibrated(rows):
        head = kf.fuse(sites(x, y, rows)).model()
        likelihoods = [mean_log(head, test, answers)]
        for _ in range(2):
            sent = [
                head.calibration(x[own], y[own], name=f"site {j}") for j, own in enumerate(rows)
            ]
            head = head.calibrated(kf.fuse(sent))
            likelihoods.append(mean_log(head, test, answers))
        return head, likelihoods

    head, likelihoods = calibrated(PARTITIONS["one class per site"](y))
    assert likelihoods[-1] > likelihoods[0]
    other, _ = calibrated([np.arange(len(y))])
    expected = other.predict_proba(test)
    np.testing.assert_allclose(head.predict_proba(test), expected, atol=1e-8)


def test_rows_with_equal_sums_need_a_round_of_calibration():
    """No rule from sums is right for both: rows at 1 and at 2 ask for a function that falls."""

    def rows(shares):  # a place, how many rows it has, and how many of them are of class "b"
        x = np.concatenate([np.repeat([at, -at], n) for at, n, _ in shares])
        y = np.concatenate([["b"] * k + ["a"] * (n - k) + ["a"] * k + ["b"] * (n - k)
                            for _, n, k in shares])  # fmt: skip
        return x[:, None].astype(float), y

    one, other = rows([(2, 200, 170)]), rows([(1, 160, 152), (4, 40, 37)])
    first, second = (BayesianHead().fit(*population) for population in (one, other))
    for k in range(2):
        own = [x[y == first.classes_[k], 0] for x, y in (one, other)]
        assert np.square(own[0]).sum() == np.square(own[1]).sum()  # no more is known from these
    for a, b in zip(first.statistics_, second.statistics_, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(*(h.predict_proba([[1.0], [2.0]]) for h in (first, second)))
    for _ in range(2):
        first = first.calibrated(kf.fuse([first.calibration(*one, name="a")]))
        second = second.calibrated(kf.fuse([second.calibration(*other, name="a")]))
    assert first.predict_proba([[2.0]])[0, 1] == pytest.approx(0.85, abs=0.01)
    assert second.predict_proba([[2.0]])[0, 1] > 0.9


def test_steps_of_calibration_never_lose_likelihood(digits):
    x, y, *_ = digits
    agreed = ConvolutionalFeatures(20, sides=(3, 5), stride=1)  # separates nearly all rows
    head = BayesianHead(agreed).fit(x, y)
    design_ = design(head.posterior_, *head.posterior_.left_out(head.transform(x), y))
    likelihoods = []
    for _ in range(4):
        head = head.calibrated(kf.fuse([head.calibration(x, y, name="a")]))
        p = head.softmax_.probabilities(design_)
        likelihoods.append(float(np.log(p[np.arange(len(y)), y]).mean()))
    assert (np.diff(likelihoods) > 0).all()


def mean_log(head, x, y):
    p = head.predict_proba(x)
    return float(np.log(p[np.arange(len(y)), y]).mean())


def test_rows_far_from_all_others_are_uncertain(digits):
    x, y, test, _ = digits
    head = BayesianHead().fit(x, y)
    strange = 3.0 * np.random.default_rng(0).normal(size=test.shape)
    scores, leverage = head.posterior_.scores(strange)
    assert leverage.mean() > 10 * head.posterior_.scores(test)[1].mean()
    ignored = head.posterior_.probabilities(scores, np.zeros(len(scores)))
    assert head.predict_proba(strange).max(axis=1).mean() < 0.9 * ignored.max(axis=1).mean()


@for_each(
    "features",
    [FourierFeatures(300, length_scale=2.0), ConvolutionalFeatures(8, sides=(5,), stride=1)],
)
def test_random_features_do_better_than_columns(features, digits):
    x, y, test, answers = digits
    rows = PARTITIONS["one class per site"](y)
    fused = kf.fuse(sites(x, y, rows, features=features)).model()
    assert (
        (fused.predict(test) == answers).mean()
        > 0.92
        > BayesianHead().fit(x, y).score(test, answers)
    )


def test_a_site_of_one_class_is_sure_of_it(digits):
    x, y, test, _ = digits
    head = BayesianHead().fit(x[y == 3], y[y == 3])
    np.testing.assert_array_equal(head.predict_proba(test), 1.0)
    assert set(head.predict(test)) == {3}


def test_settings_are_those_of_scikit_learn():
    head = BayesianHead(FourierFeatures(10))
    assert clone(head).get_params()["features__n_features"] == 10


def test_a_module_of_pytorch_is_a_feature_map(digits):
    torch = pytest.importorskip("torch")
    x, y, test, _ = digits
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(64, 100), torch.nn.ReLU())
    fused = kf.fuse(sites(x, y, PARTITIONS["two classes per site"](y), features=module)).model()
    fused.features = module
    assert fused.predict(test).shape == (len(test),)


def test_texts_are_mapped_by_a_transformer_of_scikit_learn():
    texts = np.array(["good fine", "fine good good", "bad", "awful bad"] * 10)
    y = np.array([1, 1, 0, 0] * 10)
    words = CountVectorizer().fit(texts)
    heads = {f"{k}": BayesianHead(words).fit(texts[y == k], y[y == k]) for k in (0, 1)}
    fused = kf.fuse(heads).model()
    fused.features = words
    assert fused.score(texts, y) == 1.0


def test_bad_input_is_named(digits):
    x, y, test, _ = digits
    with pytest.raises(kf.KLFusionError, match="one label per row"):
        BayesianHead().fit(x, y[:-1])
    with pytest.raises(kf.KLFusionError, match="finite features"):
        BayesianHead().fit(np.full((3, 2), np.nan), [0, 1, 2])
    with pytest.raises(kf.KLFusionError, match="expected 64 features, got 3"):
        BayesianHead().fit(x, y).predict(test[:, :3])
    with pytest.raises(kf.KLFusionError, match="function or to have transform"):
        BayesianHead("pixels").fit(x, y)
    head = BayesianHead().fit(x[y < 5], y[y < 5])
    with pytest.raises(kf.KLFusionError, match="silo 'a': expected labels among the classes"):
        head.calibration(x, y, name="a")
    sent = kf.fuse([head.calibration(x[y < 5], y[y < 5], name="a")])
    received = head.calibrated(sent.posterior)  # what a site of a federation has
    np.testing.assert_array_equal(
        received.predict_proba(x[:5]), head.calibrated(sent).predict_proba(x[:5])
    )
    with pytest.raises(kf.KLFusionError, match="another round"):
        head.calibrated(sent).calibrated(sent)
    own = head.calibrated(sent).calibration(x[y < 5], y[y < 5], name="b")
    with pytest.raises(kf.KLFusionError, match="silo 'b': expected the settings"):
        kf.fuse([head.calibration(x[y < 5], y[y < 5], name="a"), own])
    with pytest.raises(kf.KLFusionError, match="what calibration of this head returned"):
        head.calibrated(kf.fuse([head]))
    with pytest.raises(kf.KLFusionError, match="2 to 30 classes"):
        BayesianHead().fit(x[y == 1], y[y == 1]).calibration(x, y, name="a")


def test_no_rows_give_no_probabilities(digits):
    x, y, *_ = digits
    head = BayesianHead().fit(x, y)
    assert head.predict_proba(x[:0]).shape == (0, 10)
    assert head.predict(x[:0]).shape == (0,)


@pytest.mark.parametrize("call", ["predict", "predict_proba"])
def test_an_unfitted_head_is_named(call):
    for error in (kf.KLFusionError, NotFittedError):
        with pytest.raises(error, match="expected a fitted BayesianHead"):
            getattr(BayesianHead(), call)(np.eye(2))


@pytest.mark.parametrize(
    ("features", "reason"),
    [
        (lambda x: x[:-1], "expected features of 3 rows, got 2"),
        (lambda x: [["a"]] * len(x), "expected finite features"),
        (lambda x: None, "expected finite features"),
    ],
)
def test_maps_that_give_no_features_are_refused(features, reason):
    with pytest.raises(kf.KLFusionError, match=reason):
        BayesianHead(features).fit(np.eye(3), [0, 1, 2])


def test_labels_of_several_kinds_are_refused():
    with pytest.raises(
        kf.KLFusionError, match="of one type, got some of type int and some of type str"
    ):
        BayesianHead().fit(np.eye(2), np.array([1, "a"], dtype=object))
    with pytest.raises(kf.KLFusionError, match="got None and labels of shape"):
        BayesianHead().fit(None, [1, 2])


def test_another_map_than_that_of_the_file_is_noticed(digits, tmp_path):
    x, y, *_ = digits
    fitted = BayesianHead(np.tanh).fit(x, y)
    kf.save(tmp_path / "a.safetensors", kf.extract(fitted, name="a"))
    head = kf.adapters.rebuild(kf.load(tmp_path / "a.safetensors"))
    head.features = np.tanh
    np.testing.assert_array_equal(head.predict(x), fitted.predict(x))
    for other in (np.sin, None):
        head.features = other
        with pytest.raises(kf.KLFusionError, match="expected the same feature map"):
            head.predict(x)


@pytest.mark.filterwarnings("error")
def test_findings_of_sites_with_one_class_each():
    x = np.random.default_rng(0).normal(size=(40, 3))
    x[:, 2] = 0.0  # constant at all sites
    heads = {f"{k}": BayesianHead().fit(x[k::2], np.full(20, k)) for k in range(2)}
    assert kf.diagnose(kf.fuse(heads)).findings == ()


def test_sites_with_different_maps_are_refused(digits):
    x, y, *_ = digits
    one = BayesianHead(FourierFeatures(20)).fit(x, y)
    other = BayesianHead(FourierFeatures(20, random_state=1)).fit(x, y)
    with pytest.raises(kf.KLFusionError, match="silo 'b': expected the feature map"):
        kf.fuse({"a": one, "b": other})
    scaled = [StandardScaler().fit(x[:500]), StandardScaler().fit(x[500:])]
    heads = {f"{j}": BayesianHead(scaler).fit(x, y) for j, scaler in enumerate(scaled)}
    with pytest.raises(kf.KLFusionError, match="silo '1': expected the same feature map"):
        kf.fuse(heads)


@pytest.mark.parametrize("missing", [np.nan, None])
def test_rows_without_a_label_are_refused(missing):
    labels = np.array([0.0, missing, 1.0], dtype=object if missing is None else float)
    with pytest.raises(kf.KLFusionError, match="label for every row, got none for row 1"):
        BayesianHead().fit(np.eye(3), labels)


def test_rows_of_a_data_frame_are_taken_by_place(digits):
    pandas = pytest.importorskip("pandas")
    x, y, *_ = digits
    table = pandas.DataFrame(x, index=np.arange(len(x)) - 200.0)
    head = BayesianHead().fit(table, y)
    np.testing.assert_array_equal(head.predict(table), BayesianHead().fit(x, y).predict(x))


@pytest.mark.parametrize("labels", [[1], 3, [1, 2, None, 3, 4]])
def test_calibration_checks_labels(digits, labels):
    x, y, *_ = digits
    with pytest.raises(kf.KLFusionError, match=r"expected (rows X and one|a) label"):
        BayesianHead().fit(x, y).calibration(x[:5], labels, name="a")


def test_calibration_checks_columns(digits):
    pandas = pytest.importorskip("pandas")
    x, y, *_ = digits
    table = pandas.DataFrame(x)
    head = BayesianHead().fit(table, y)
    with pytest.raises(kf.KLFusionError, match="in this order"):
        head.calibration(table[table.columns[::-1]], y, name="a")
    with pytest.raises(kf.KLFusionError, match="what calibration of this head returned"):
        head.calibrated(None)
