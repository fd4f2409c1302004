"""Logistic regression of three or more classes: log-odds of each class against the first.

scikit-learn's coefficients, one per class and column, can be moved together without any change of
probabilities. So what is sent are differences from the first class, the reference. A Normal prior
of all classes' coefficients, with precision ``p``, gives differences the precision ``p (I - 1/K)``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.adapters._likelihoods import softmax
from klfusion.adapters._regressions import INTERCEPT, Options
from klfusion.posteriors.posterior import Posterior


def _named(label: Any, column: str) -> str:
    return f"{label}: {column}"


def posterior(
    options: Options, columns: Sequence[str], x: FloatArray, y: IntArray, own: FloatArray
) -> Posterior:
    """Laplace's approximation; ``y`` are numbers of classes, ``own`` the prior's precision."""
    labels = options.info["classes"]
    every = {key: [_named(label, key) for label in labels[1:]] for key in columns}

    def spread(names: Sequence[str]) -> list[str]:
        """A column stands for its coefficients of all classes."""
        return [full for name in names for full in every.get(name, [name])]

    units = {full: unit for key, unit in (options.units or {}).items() for full in spread([key])}
    local = options.local if isinstance(options.local, str) else spread(options.local)
    names = [_named(label, key) for label in labels[1:] for key in columns]
    alike, precision = np.eye(len(labels) - 1) - 1.0 / len(labels), options.precision(columns, own)
    prior = np.asarray(np.kron(alike, np.diag(precision)), dtype=np.float64)
    given = replace(options, local=local, units=units)
    return given.laplace(names, softmax(x, y, len(labels)), prior, len(x))


def symmetric(info: Mapping[str, Any], mean: FloatArray, covariance: FloatArray) -> dict[str, Any]:
    """Coefficients of all classes, which add up to zero, as scikit-learn has them.

    With them come their covariance, by class and within it by intercept and column, and columns.
    """
    labels, known = [str(label) for label in info["classes"]], list(info["coordinates"])
    start = _named(labels[1], "")
    columns = [c[len(start) :] for c in info["columns"] if c.startswith(start) and c in known]
    columns = [c for c in columns if all(_named(label, c) in known for label in labels[1:])]
    columns.sort(key=lambda c: c != INTERCEPT)  # first, if there is one
    rows = [known.index(_named(label, c)) for label in labels[1:] for c in columns]
    size, d = len(labels), len(columns)
    centring = np.vstack([np.zeros(size - 1), np.eye(size - 1)]) - 1.0 / size
    whole = np.kron(centring, np.eye(d))
    table = (whole @ mean[rows]).reshape(size, d)
    has_intercept = columns[:1] == [INTERCEPT]
    return {
        "coef_": table[:, int(has_intercept) :],
        "intercept_": table[:, 0] if has_intercept else np.zeros(size),
        "covariance_": whole @ covariance[np.ix_(rows, rows)] @ whole.T,
        "features": columns[int(has_intercept) :],
    }
