"""Regressions and classifiers in files, a batch in memory at a time."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import klfusion as kf
from tests.helpers.regressions import COLUMNS, patients
from tests.out_of_core.test_files import assert_same, fuse_within, needed, saved

PRIOR = {"intercept": 5.0, **dict.fromkeys(COLUMNS, 2.0)}


def regressions(n=9):
    """Silos with their own intercepts; every third lacks a column, and columns change places."""
    silos = []
    for j in range(n):
        x, y = patients(60, np.random.default_rng(j), intercept=0.2 * j)
        x = x[COLUMNS[:2] if j % 3 == 0 else COLUMNS[::-1]]
        prior = {key: sd for key, sd in PRIOR.items() if key in ("intercept", *x.columns)}
        options = {"data": (x, y), "prior_sd": prior, "local": ["intercept"]}
        silos.append(kf.extract(LogisticRegression(), name=f"s{j}", **options))
    return silos


def classifiers(n=7):
    """Silos with one or two classes."""
    silos = []
    for j in range(n):
        x, y = patients(50, np.random.default_rng(j))
        x, y = (x[y == 1], y[y == 1]) if j == 2 else (x, y)
        silos.append(kf.extract(GaussianNB().fit(x, y), name=f"s{j}"))
    return silos


@pytest.mark.parametrize("make", [regressions, classifiers])
@pytest.mark.parametrize("per_batch", [1, 4, 1000])
def test_batches_do_not_matter(tmp_path, make, per_batch):
    silos = make()
    paths = saved(silos, tmp_path)
    one, other = fuse_within(per_batch * needed(paths), paths), kf.fuse(silos, pooling="product")
    assert_same(one, other)
    assert one.objective == pytest.approx(other.objective)
    assert one.status is other.status
    x, _ = patients(20, np.random.default_rng(99))
    np.testing.assert_allclose(one.model().predict_proba(x), other.model().predict_proba(x))


def test_each_silo_has_its_own_intercept(tmp_path):
    silos = regressions()
    paths = saved(silos, tmp_path)
    one, other = fuse_within(4 * needed(paths), paths), kf.fuse(silos)
    for name in ("s1", "s7"):
        a, b = one.model(name), other.model(name)
        own = dict(zip(b.feature_names_in_, b.coef_[0], strict=True))
        np.testing.assert_allclose(a.intercept_, b.intercept_)
        np.testing.assert_allclose(a.coef_[0], [own[c] for c in a.feature_names_in_])


def test_what_is_refused(tmp_path):
    paths = saved(regressions(4), tmp_path)
    with pytest.raises(kf.KLFusionError, match="expected no n_components, for names set the size"):
        kf.fuse_files(paths, memory_limit="64MB", n_components=2)
    with pytest.raises(kf.KLFusionError, match="expected min_support=1"):
        kf.fuse_files(paths, memory_limit="64MB", min_support=2)
    with pytest.raises(kf.KLFusionError, match="two silos are named 's0'"):
        kf.fuse_files([*paths, paths[0]], memory_limit="64MB")
    with pytest.raises(kf.KLFusionError, match="components have names and are matched by"):
        kf.fuse_files(paths, memory_limit="64MB", method="binary")
    weighted = kf.fuse_files(paths, memory_limit="64MB", weights=[1.0, 2.0, 1.0, 0.5])
    other = kf.fuse(paths, weights=[1.0, 2.0, 1.0, 0.5], pooling="product")
    np.testing.assert_allclose(weighted.posterior.natural, other.posterior.natural)
