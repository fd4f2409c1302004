"""Silos must agree on labels along the axes that are one value; along others names align them."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from klfusion.errors import IncompatibleSilosError
from tests.helpers.loops import for_each

CONCENTRATION = {"x": 10.0, "y": 20.0, "z": 30.0, "w": 30.0}


def simplex(labels, name):
    own = np.random.default_rng(0).dirichlet([CONCENTRATION[key] for key in labels], (4, 500))
    return kf.from_draws(
        {"pi": own}, name=name, dims={"pi": ["k"]}, coords={"k": [*labels]}, prior="flat"
    )


def factor(size, name, kind="cholesky", labels=None):
    rng = np.random.default_rng(0)
    root = np.eye(size) + 0.05 * rng.normal(size=(4, 500, size, size))
    own = np.linalg.cholesky(root @ np.swapaxes(root, -1, -2))
    if kind == "cholesky_corr":
        own /= np.sqrt(np.square(own).sum(axis=-1, keepdims=True))
    coords = {} if labels is None else {key: [*labels] for key in ("row", "column")}
    return kf.from_draws(
        {"L": own}, name=name, supports={"L": kind}, dims={"L": ["row", "column"]}, coords=coords
    )


def ordered(labels, name):
    own = np.sort(np.random.default_rng(0).normal(size=(4, 500, len(labels))))
    return kf.from_draws({"cut": own}, name=name, supports={"cut": "ordered"},
                         dims={"cut": ["k"]}, coords={"k": [*labels]})  # fmt: skip


def topics(labels, name, shared=("age", "dose")):
    rng = np.random.default_rng(1)
    draws = {
        "phi": np.stack([rng.dirichlet(a, (2, 400)) for a in ([60, 20, 20], [20, 20, 60])], axis=2),
        "beta": rng.normal([0.0, 3.0], 0.1, (2, 400, 2)),
    }
    dims = {"phi": ["topic", "word"], "beta": ["covariate"]}
    coords = {"word": [*labels], "covariate": [*shared]}
    return kf.from_draws(draws, name=name, dims=dims, coords=coords, components="topic")


@for_each("first, second, message", [
    (simplex("xyz", "a"), simplex("zyx", "b"),
     "'x', 'y', 'z' along 'k' of 'pi' as in silo 'a', got 'z', 'y', 'x': 'z', 'x' elsewhere; give"),
    (simplex("xyz", "a"), simplex("xyw", "b"), "got 'x', 'y', 'w': 'w', 'z' at one of them alone"),
    (simplex("xyz", "a"), simplex("xy", "b"), "got 'x', 'y': 'z' at one of them alone"),
    (ordered("xyz", "a"), ordered("zyx", "b"), "along 'k' of 'cut' .* in one order"),
    (factor(3, "a", labels="xyz"), factor(3, "b", labels="zyx"), "along 'row' of 'L' .* one order"),
    (factor(3, "a", "cholesky_corr"), factor(2, "b", "cholesky_corr"),
     "'0', '1', '2' along 'row' of 'L' as in silo 'a', got '0', '1'"),
    (topics("xyz", "a"), topics("zyx", "b"), "along 'word' of 'phi' as in silo 'a'"),
    (topics("xyz", "a"), topics("xyz", "b", ["dose", "age"]), "along 'covariate' of 'beta'"),
])  # fmt: skip
def test_other_labels_of_one_value_are_refused(first, second, message):
    with pytest.raises(IncompatibleSilosError, match=f"^silo 'b': expected .*{message}") as told:
        kf.fuse([first, second])
    assert told.value.silo == "b"


def test_labels_are_compared_with_those_of_files(tmp_path):
    for name, labels in {"a": "xyz", "b": "xyz", "c": "zyx"}.items():
        kf.save(tmp_path / f"{name}.safetensors", simplex(labels, name))
    a, b, c = (tmp_path / f"{name}.safetensors" for name in "abc")
    assert kf.fuse([a, b]).n_silos == 2
    with pytest.raises(IncompatibleSilosError, match=r"silo 'c': expected 'x', 'y', 'z'"):
        kf.fuse([kf.fuse([a, b]).posterior, c])


def test_simplices_of_groups_are_matched_by_the_labels_of_groups():
    rng, of = np.random.default_rng(0), {"p": [10.0, 20.0, 30.0], "q": [30.0, 20.0, 10.0]}
    silos = []
    for name, groups in {"a": "pq", "b": "qp"}.items():
        own = np.stack([rng.dirichlet(of[group], (4, 500)) for group in groups], axis=2)
        silos.append(kf.from_draws({"pi": own}, name=name, dims={"pi": ["group", "k"]},
                                   coords={"group": [*groups], "k": ["x", "y", "z"]}))  # fmt: skip
    together = kf.fuse(silos).posterior.params()["mean"][0]
    np.testing.assert_allclose(together, silos[0].params()["mean"][0], atol=0.1)
