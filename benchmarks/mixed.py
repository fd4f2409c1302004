"""One iteration of `MixedMixture` against one of scikit-learn's `GaussianMixture` (diagonal)."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

import klfusion as kf
from benchmarks.measure import Measured, Row, compare, measure
from klfusion.learners import Column, MixedMixture

FloatArray = NDArray[np.float64]
_FEW, _MANY = 2, 12  # iterations; their difference leaves out what a fit does once
_TRIES = 5  # where other processes made few iterations take longer than many
_MISSING = 0.2  # share of cells
_COMPONENTS = 10
SIZES = {"10,000 rows x 20": (10_000, 20), "100,000 rows x 20": (100_000, 20)}


def rows_of(n: int, dim: int) -> FloatArray:
    """Overlapping clusters, so that no fit ends early."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(_COMPONENTS, dim))
    return np.asarray(centres[rng.integers(_COMPONENTS, size=n)] + rng.normal(size=(n, dim)))


def ours(x: FloatArray, n_iter: int) -> Any:
    """From the components of a start, without merges."""
    schema = kf.Schema(tuple(Column(f"x{k}", "continuous", (-3.0, 3.0)) for k in range(x.shape[1])))
    first = MixedMixture(schema, _COMPONENTS, n_init=1, max_iter=1, random_state=0).fit(x[:1000])
    start = kf.extract(first, name="start")
    prior = np.tile(first.prior_, (first.n_components_, 1))
    return MixedMixture(schema, _COMPONENTS, max_iter=n_iter, tol=0.0).refit(x, start, prior)


def theirs(x: FloatArray, n_iter: int) -> Any:
    """Iterations of expectation maximisation."""
    model = GaussianMixture(
        _COMPONENTS, covariance_type="diag", max_iter=n_iter, tol=0.0, init_params="random",
        random_state=0,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(x)


def an_iteration(fit: Any, x: FloatArray) -> Measured:
    """The difference between many and few iterations; of a busy machine, a bound from above."""
    for _ in range(_TRIES):
        few, many = (measure(partial(fit, x, n), repeats=3) for n in (_FEW, _MANY))
        wall, cpu = many.wall - few.wall, many.cpu - few.cpu
        if wall > 0 and cpu > 0:
            return replace(many, wall=wall / (_MANY - _FEW), cpu=cpu / (_MANY - _FEW))
    return replace(many, wall=many.wall / _MANY, cpu=many.cpu / _MANY)


def run(quick: bool = False) -> list[Row]:
    """All rows; ``quick`` keeps the smaller problem."""
    found = []
    for problem, size in list(SIZES.items())[: 1 if quick else None]:
        x = rows_of(*size)
        peer = an_iteration(theirs, x)
        lacking = np.where(np.random.default_rng(1).random(x.shape) < _MISSING, np.nan, x)
        for name, table in {"complete": x, "a fifth of the cells missing": lacking}.items():
            title = f"mixture iteration: {problem}, {_COMPONENTS} components, {name}"
            found.append(
                compare(
                    title, "scikit-learn GaussianMixture, diag", an_iteration(ours, table), peer
                )
            )
    return found
