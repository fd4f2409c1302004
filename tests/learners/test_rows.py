"""Rows of any kind, their labels, and maps of them to features."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import StandardScaler

import klfusion as kf
from klfusion.learners import BayesianHead
from klfusion.learners._rows import numbered

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 4))
Y = np.where(X[:, 0] > 0, "up", "down")


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ([1, "a", 2], "of one type, got some of type int and some of type str"),
        (["a", float("nan"), "b"], "label for every row, got none for row 1"),
        (["a", None, "b"], "label for every row, got none for row 1"),
    ],
)
def test_numbers_among_texts_do_not_become_texts(labels, reason):
    with pytest.raises(kf.KLFusionError, match=reason):
        BayesianHead().fit(np.eye(3), labels)


def test_integers_of_python_and_of_numpy_are_of_one_kind():
    labels = np.array([1, np.int64(2), 1], dtype=object)
    assert BayesianHead().fit(np.eye(3), labels).classes_.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("labels", "classes", "reason"),
    [
        (["0", "1"], range(2), r"among the classes \[0, 1\], got \['0', '1'\] as well"),
        ([0, 1], [0, 1, 1], "classes to be different labels"),
        ([0, 1], [[0, 1]], "classes to be different labels"),
        ([1, 1], [0, 1], "two classes, got class 1 alone"),
    ],
)
def test_labels_outside_the_classes(labels, classes, reason):
    with pytest.raises(kf.KLFusionError, match=reason):
        numbered(np.array(labels), classes)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil"])
def test_sparse_rows_are_as_dense_ones(kind):
    sparse = scipy.sparse.random_array(
        (60, 5), density=0.4, format=kind, rng=np.random.default_rng(1)
    )
    dense, y = sparse.toarray(), np.arange(60) % 2
    heads = {"sparse": BayesianHead().fit(sparse, y), "dense": BayesianHead().fit(dense, y)}
    np.testing.assert_array_equal(*(heads[k].predict_proba(sparse) for k in heads))
    assert kf.fuse(heads).model().predict(sparse).shape == (60,)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["scaler", "columns by name"])
def test_transformers_of_tables(kind):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X, columns=["age", "dose", "sex", "time"])
    by_name = ColumnTransformer([("kept", "passthrough", ["dose", "age"])])
    agreed = {"scaler": StandardScaler(), "columns by name": by_name}[kind].fit(table)
    heads = {k: BayesianHead(agreed).fit(table[k == Y], Y[k == Y]) for k in ("up", "down")}
    head = kf.fuse(heads).model()
    head.features = agreed
    expected = BayesianHead(agreed).fit(table, Y).predict_proba(table)
    np.testing.assert_allclose(head.predict_proba(table), expected, atol=1e-8)


def test_maps_that_are_not_finite_on_the_agreed_row_are_named():
    head = BayesianHead(lambda x: np.where(x < 1.0, np.nan, x)).fit(np.abs(X) + 2.0, Y)
    with pytest.raises(kf.KLFusionError, match=r"silo 'a': expected finite features .* agreed row"):
        kf.extract(head, name="a")


def test_maps_of_texts_are_compared_by_the_names_of_their_features():
    texts, y = np.array(["good fine", "bad awful"] * 5), np.array([1, 0] * 5)
    one, other = (
        CountVectorizer().fit([words]) for words in ("good fine bad awful", "a1 b1 c1 d1")
    )
    heads = {"a": BayesianHead(one).fit(texts, y), "b": BayesianHead(other).fit(texts, y)}
    with pytest.raises(kf.KLFusionError, match="silo 'b': expected the same feature map as in"):
        kf.fuse(heads)
    head = kf.fuse({"a": heads["a"]}).model()
    head.features = other
    with pytest.raises(kf.KLFusionError, match="expected the same feature map"):
        head.predict(texts)
    head.features = one
    assert head.score(texts, y) == 1.0


def test_another_map_after_the_fit_is_refused():
    head = BayesianHead(np.sin).fit(X, Y)
    head.features = np.cos
    with pytest.raises(kf.KLFusionError, match="the feature map that the head was fitted with"):
        head.predict(X)
    assert head.fit(X, Y).predict(X).shape == (120,)


def test_modules_in_training_mode_give_one_row_the_same_features():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    kept = torch.nn.BatchNorm1d(8).eval()
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), kept, torch.nn.Dropout(0.5))
    head = BayesianHead(module)
    # Kernels of float32 depend on the number of rows; dropout and other statistics are far larger.
    np.testing.assert_allclose(head.transform(X)[:3], head.transform(X[:3]), rtol=1e-5, atol=1e-6)
    assert [part.training for part in module.modules()] == [True, True, False, True]
