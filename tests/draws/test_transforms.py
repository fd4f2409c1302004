"""Values and coordinates are each other's inverse; the Jacobian is that of the formulas."""

from __future__ import annotations

import numpy as np
import pytest

from klfusion.draws.supports import Support, guessed
from klfusion.draws.variables import Variable
from klfusion.errors import KLFusionError
from tests.helpers.loops import for_each

SHAPES = {
    "real": (3,), "above": (3,), "below": (2, 2), "between": (3,), "softplus": (3,),
    "inverse": (3,),
    "simplex": (4,), "ordered": (4,), "cholesky": (3, 3), "cholesky_corr": (4, 4),
}  # fmt: skip


def variable(kind, lower=None, upper=None):
    shape = SHAPES[kind]
    labels = tuple(tuple(map(str, range(n))) for n in shape)
    return Variable("v", tuple(f"d{k}" for k in range(len(shape))), labels,
                    Support(kind, lower, upper))  # fmt: skip


@for_each("kind, lower, upper", [(k, None, None) for k in SHAPES] + [("between", -2.0, 5.0),
          ("above", 3.0, None), ("below", None, -1.0), ("ordered", 1.0, None)])  # fmt: skip
def test_unconstrain_is_the_inverse(kind, lower, upper):
    own = variable(kind, lower, upper)
    x = np.random.default_rng(0).normal(size=(5, own.size))
    x = np.abs(x) if kind == "inverse" else x
    values = own.constrain(x)
    assert values.shape == (5, *own.shape)
    assert own.support.inside(values)
    np.testing.assert_allclose(own.unconstrain(values), x, atol=1e-9)
    assert len(set(own.coordinates)) == own.size


@for_each("kind", [*SHAPES])
def test_jacobian_is_that_of_the_formulas(kind):
    own = variable(kind)
    x, step = np.random.default_rng(1).normal(size=(1, own.size)), 1e-6
    columns = [
        (own.constrain(x + step * e) - own.constrain(x - step * e)).ravel() / (2 * step)
        for e in np.eye(own.size)
    ]
    jacobian = np.stack(columns, axis=1)
    if kind == "simplex":  # the last share is what the others leave
        jacobian = jacobian[:-1]
    if kind == "cholesky_corr":  # entries below the diagonal
        jacobian = jacobian[np.tril(np.ones((4, 4)), -1).ravel() > 0]
    if kind == "cholesky":
        jacobian = jacobian[np.tril(np.ones((3, 3))).ravel() > 0]
    expected = np.linalg.slogdet(jacobian)[1]
    assert own.log_jacobian(x).sum() == pytest.approx(expected, abs=1e-6)


@for_each("name, draws, kind", [
    ("sigma", [[1.0], [2.0]], "above"),
    ("tau_group", [[0.5, 0.1]], "above"),
    ("sigma", [[-1.0], [2.0]], "real"),
    ("beta", [[1.0], [2.0]], "real"),
    ("w", [[0.3, 0.7], [0.1, 0.9]], "simplex"),
    ("L", [[[1.0, 0.0], [0.6, 0.8]]], "cholesky_corr"),
    ("chol", [[[2.0, 0.0], [0.6, 0.8]]], "cholesky"),
])  # fmt: skip
def test_names_and_draws_suggest_a_support(name, draws, kind):
    assert guessed(name, np.array(draws)).kind == kind


def test_supports_by_name_and_bounds():
    assert Support.of("positive", "here") == Support("above", 0.0)
    assert Support.of((0.0, None), "here").kind == "above"
    assert Support.of((None, 0.0), "here").kind == "below"
    assert Support.of((None, None), "here").kind == "real"
    for own in (Support("between", 1.0, 2.0), Support("simplex")):
        assert Support.of(own.to_json(), "here") == own
    for bad in ("positve", 3, (1, 2, 3), {"kind": "none"}, ("a", "b")):
        with pytest.raises(KLFusionError, match=r"here: expected a support of real, positive"):
            Support.of(bad, "here")
