"""Domains are convex, and what is outside is refused by name, with expected and got."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klfusion.errors import InvalidPosteriorError, KLFusionError
from klfusion.families import (
    Beta,
    Categorical,
    DiagonalNormal,
    Dirichlet,
    Gamma,
    InverseGamma,
    Normal,
    NormalGamma,
    NormalWishart,
    Product,
    Wishart,
)
from tests.families.cases import CASES, case_for, every_case, families_of_the_package
from tests.helpers.loops import for_each

from .sampling import sample, statistics

# Averages -------------------------------------------------------------------------------------


@every_case
@given(data=st.data())
def test_averages_stay_inside(case, data):
    seed = data.draw(st.integers(0, 2**32 - 1))
    n = data.draw(st.integers(1, 6))
    spread = data.draw(st.floats(0.0, 4.0))
    weights = data.draw(st.lists(st.floats(1e-6, 1e6), min_size=n, max_size=n))
    natural = case.draw(np.random.default_rng(seed), n, spread)
    case.family.check(natural)
    case.family.check(case.family.barycenter(natural)[None])
    case.family.check(case.family.barycenter(natural, np.array(weights))[None])


# The check ------------------------------------------------------------------------------------


@every_case
@for_each("value", [np.nan, np.inf, -np.inf])
def test_not_finite(case, value):
    for position in range(case.family.size):
        natural = case.draw(np.random.default_rng(0), 4)
        natural[2, position] = value
        message = f"silo 'x', component 2: expected finite .* got {value} at position {position}"
        with pytest.raises(InvalidPosteriorError, match=message):
            case.family.check(natural, "silo 'x'")
        assert not case.family.in_domain(natural)


@every_case
def test_wrong_shape(case):
    natural, size = case.draw(np.random.default_rng(0), 4), case.family.size
    for wrong in (natural[0], natural[None], natural[:, 1:], np.c_[natural, natural]):
        with pytest.raises(InvalidPosteriorError) as caught:
            case.family.check(wrong, "silo 'x'")
        for part in ("silo 'x'", f"(n, {size})", str(case.family), str(wrong.shape)):
            assert part in str(caught.value)


@every_case
def test_no_components_are_in_order(case):
    case.family.check(np.empty((0, case.family.size)))


def outside(family, natural, quantity):
    """Rows moved until ``quantity`` is the one that is not positive, or None if never alone."""
    rng = np.random.default_rng(0)
    for _ in range(4000):
        k = rng.integers(family.size)
        moved = natural.copy()
        moved[k] += rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(-1, 3)
        with np.errstate(all="ignore"):
            values = {name: v.min() for name, v in family.positive(moved[None]).items()}
        first = next((name for name, v in values.items() if not v > 0), None)
        if first == quantity:
            return moved, values[quantity]
    return None


QUANTITIES = [
    (case, quantity)
    for case in CASES
    for quantity in case.family.positive(case.draw(np.random.default_rng(0), 1))
]


@for_each("case, quantity", QUANTITIES)
def test_each_positive_quantity_is_named(case, quantity):
    natural = case.draw(np.random.default_rng(1), 4)
    found = outside(case.family, natural[3], quantity)
    assert found is not None, f"no violation of {quantity} was found"
    natural[3], got = found
    with pytest.raises(InvalidPosteriorError) as caught:
        case.family.check(natural, "silo 'x'")
    expected = f"silo 'x', component 3: expected {quantity} > 0 for {case.family}, got {got:.6g}"
    assert str(caught.value) == expected


@for_each("case, quantity", QUANTITIES)
def test_the_first_bad_component_is_named(case, quantity):
    natural = case.draw(np.random.default_rng(2), 6)
    natural[5] = natural[2] = outside(case.family, natural[2], quantity)[0]
    with pytest.raises(InvalidPosteriorError, match="component 2: expected"):
        case.family.check(natural)


@pytest.mark.parametrize("kind", [NormalWishart, NormalGamma], ids=lambda kind: kind.__name__)
def test_overflow_inside_the_check_is_an_invalid_posterior(kind):
    """Finite numbers whose squares are not."""
    case = case_for(kind(2))
    natural = case.draw(np.random.default_rng(0), 2)
    natural[1, :2], natural[1, 2] = 1e200, 1e-200
    with pytest.raises(InvalidPosteriorError, match="component 1: expected"):
        case.family.check(natural)


def test_a_badly_scaled_matrix_is_judged_by_itself():
    """Computed eigenvalues are off by 1e-16 of the largest, so may be negative; pivots are not.

    Before, one bad matrix in a batch had all judged by eigenvalues, and a good one blamed.
    """
    rng, dim = np.random.default_rng(0), 5
    half, units = rng.normal(size=(200, dim, 8)), 10.0 ** rng.uniform(-7, 7, (200, dim))
    good = units[:, :, None] * units[:, None] * (half @ half.swapaxes(1, 2))
    assert np.any(np.linalg.eigvalsh(good)[:, 0] < 0)
    family = Wishart(dim)
    natural = family.natural(np.concatenate([good, -np.eye(dim)[None]]), np.full(201, 7.0))
    family.check(natural[:-1])
    with pytest.raises(InvalidPosteriorError, match=r"component 200: .* got -1$"):
        family.check(natural)


def test_singular_matrices_are_refused():
    family = Wishart(2)
    with pytest.raises(InvalidPosteriorError, match=r"eigenvalue of scale_inv > 0 .* got -?0"):
        family.check(family.natural(np.ones((1, 2, 2)), dof=[5.0]))


# What `natural` is given ----------------------------------------------------------------------


@every_case
@for_each("value", [np.nan, np.inf])
def test_not_finite_parameters_never_pass(case, value):
    """Refused at once, or by the check; without a warning, and never an odd error."""
    family = case.family
    params = family.params(case.draw(np.random.default_rng(0), 3))
    for key in params:
        bad = {k: v.copy() for k, v in params.items()}
        bad[key][1] = value
        with pytest.raises(InvalidPosteriorError, match="component 1"):
            family.check(family.natural(**bad))


@every_case
def test_wrong_shapes_of_parameters(case):
    family = case.family
    params = family.params(case.draw(np.random.default_rng(0), 3))
    for key, array in params.items():
        name = key.rpartition(".")[2]
        for wrong in (np.ones((3, 1, 1, 1)), np.concatenate([array, array], axis=-1)):
            if wrong.ndim == 1:
                continue  # a longer batch, below
            with pytest.raises(KLFusionError, match=rf"{name}: expected shape \(n, .*got \("):
                family.natural(**{**params, key: wrong})


@every_case
def test_batches_of_different_length(case):
    params = case.family.params(case.draw(np.random.default_rng(0), 3))
    for key, array in params.items():
        if len(params) == 1:
            continue
        with pytest.raises(KLFusionError, match="different numbers of components"):
            case.family.natural(**{**params, key: np.concatenate([array, array[:1]])})


@pytest.mark.parametrize(
    ("family", "params", "name"),
    [
        (Normal(2), {"mean": np.zeros((2, 2))}, "covariance"),
        (Wishart(2), {"dof": [4.0, 4.0]}, "scale_inv"),
        (
            NormalWishart(2),
            {"mean": np.zeros((2, 2)), "kappa": [1.0, 1.0], "dof": [4.0, 4.0]},
            "scale_inv",
        ),
    ],
    ids=str,
)
def test_matrices_that_are_not_symmetric(family, params, name):
    matrices = np.stack([np.eye(2), [[1.0, 0.5], [0.2, 1.0]]])
    with pytest.raises(KLFusionError, match=rf"{name}, component 1: .*symmetric.* by 0\.3"):
        family.natural(**params, **{name: matrices})
    nearly = np.stack([np.eye(2), [[1.0, 0.5], [0.5 + 1e-9, 1.0]]])
    natural = family.natural(**params, **{name: nearly})
    np.testing.assert_allclose(family.params(natural)[name], nearly, rtol=1e-8)


@pytest.mark.parametrize("value", [0.0, -0.1])
def test_categorical_without_a_probability(value):
    with pytest.raises(InvalidPosteriorError) as caught:
        Categorical(3).natural([[0.2, 0.3, 0.5], [0.5, value, 0.5]])
    message = str(caught.value)
    assert "component 1" in message and f"probability > 0 at position 1, got {value:g}" in message
    assert "smooth" in message


def test_categorical_normalises():
    np.testing.assert_allclose(Categorical(2).natural([[3.0, 1.0]]), np.log([[0.75, 0.25]]))


def test_normal_without_a_positive_definite_covariance():
    covariance = np.stack([np.eye(2), np.eye(2), [[1.0, 2.0], [2.0, 1.0]]])
    with pytest.raises(InvalidPosteriorError, match=r"component 2: .*positive definite.* got .*-1"):
        Normal(2).natural(np.zeros((3, 2)), covariance)


@pytest.mark.parametrize("variance", [0.0, -1.0, np.inf])
def test_diagonal_normal_without_a_variance(variance):
    family = DiagonalNormal(2)
    natural = family.natural([[1.0, 1.0], [1.0, 1.0]], [[1.0, 1.0], [1.0, variance]])
    with pytest.raises(InvalidPosteriorError, match="component 1"):
        family.check(natural)


@for_each("dim", [0, -1, 2.5, 2.0, True, "3", None])
@pytest.mark.parametrize("name", sorted(set(families_of_the_package()) - {"product"}))
def test_dimensions_that_are_none(name, dim):
    family = families_of_the_package()[name]
    with pytest.raises(KLFusionError) as caught:
        family(dim)
    expected = f"{family.__name__}: expected dim to be a positive integer, got {dim!r}"
    assert str(caught.value) == expected


# Shorthands -----------------------------------------------------------------------------------


def test_vectors_will_do_in_one_dimension():
    values, columns = [2.0, 3.0], [[2.0], [3.0]]
    for family in (Beta(), Gamma(), InverseGamma(), DiagonalNormal(1)):
        np.testing.assert_array_equal(
            family.natural(values, values), family.natural(columns, columns)
        )
    shared = NormalGamma(3).natural(np.ones((2, 3)), values, values, np.ones((2, 3)))
    full = np.repeat(columns, 3, axis=1)
    np.testing.assert_array_equal(
        shared, NormalGamma(3).natural(np.ones((2, 3)), full, full, np.ones((2, 3)))
    )
    with pytest.raises(KLFusionError, match=r"mean: expected shape \(n, 3\), got \(2,\)"):
        NormalGamma(3).natural(values, values, values, np.ones((2, 3)))


# Products -------------------------------------------------------------------------------------


def test_product_takes_natural_parameters_mappings_and_dotted_names():
    family = Product(rate=Gamma(), words=Dirichlet(2))
    ways = [
        {"rate": {"shape": [3.0], "rate": [2.0]}, "words": [[1.0, 4.0]]},
        {"rate": [[3.0, 2.0]], "words": {"concentration": [[1.0, 4.0]]}},
        {"rate.shape": [3.0], "rate.rate": [2.0], "words.concentration": [[1.0, 4.0]]},
    ]
    for way in ways:
        np.testing.assert_array_equal(family.natural(**way), [[3.0, 2.0, 1.0, 4.0]])


def test_product_refuses():
    family = Product(rate=Gamma(), words=Dirichlet(2))
    with pytest.raises(KLFusionError, match=r"unknown parameters \['other'\].*'rate', 'words'"):
        family.natural(rate=[[3.0, 2.0]], words=[[1.0, 4.0]], other=[1.0])
    # The widths add up to the right total, which must not hide that each is wrong.
    with pytest.raises(KLFusionError, match=r"rate: expected shape \(n, 2\), got \(1, 3\)"):
        family.natural(rate=[[3.0, 2.0, 1.0]], words=[[4.0]])
    with pytest.raises(KLFusionError, match="at least one factor"):
        Product()
    with pytest.raises(KLFusionError, match="expected rate to be a family, got 3"):
        Product(rate=3)
    with pytest.raises(KLFusionError, match=r"without '\.', got 'a\.b'"):
        Product(**{"a.b": Gamma()})


def test_product_names_the_factor():
    family = Product(place=Normal(2), inner=Product(rate=Gamma()))
    natural = np.ones((2, family.size))
    natural[:, 2:5] = [1.0, 0.0, 1.0]
    natural[1, -1] = -2.0
    with pytest.raises(InvalidPosteriorError, match=r"component 1: expected inner: rate: rate > 0"):
        family.check(natural)


def test_product_factors_may_be_called_anything():
    family = Product(**{"self": Gamma(), "name": Gamma(), "natural": Gamma()})
    natural = np.arange(1.0, 7.0)[None]
    np.testing.assert_array_equal(family.natural(**family.params(natural)), natural)


# Sampling at the edge -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "natural"),
    [
        (Beta(), [[0.01, 0.01]]),
        (Dirichlet(3), [[1e-3, 1e-3, 1e-3]]),
        (Gamma(), [[1e-3, 1.0]]),
        (InverseGamma(), [[1e-3, 1.0]]),
        (NormalGamma(1), [[0.0, 1.0, 2.0, 2e-3]]),
    ],
    ids=str,
)
def test_draws_of_small_shapes_have_finite_statistics(family, natural):
    rng = np.random.default_rng(0)
    draws = sample(family, np.array(natural), 5000, rng)
    assert all(np.isfinite(value).all() for value in draws.values())
    assert np.isfinite(statistics(family, draws)).all()
