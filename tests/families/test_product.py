"""A product of one factor behaves like the factor, in every method and capability."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from klfusion.families import Product, capabilities
from tests.families.cases import CASES, case_for, every_case
from tests.families.sampling import jensen_gap
from tests.helpers.loops import for_each

CAPABILITIES = [
    found
    for found in vars(capabilities).values()
    if isinstance(found, type)
    and issubclass(found, capabilities.Capability)
    and found is not capabilities.Capability
]
LABELS = np.array([0, 0, 1, 1, 1, 2])


def full(covariance):
    """Covariance matrices, whether given whole or by their diagonals."""
    return (
        covariance if covariance.ndim == 3 else covariance[:, :, None] * np.eye(covariance.shape[1])
    )


# Results of every method for natural parameters ``x``, some of them with others, ``y``.
METHODS = {
    "Family": {
        "log_partition": lambda f, x, y: f.log_partition(x),
        "log_partition_of_average": lambda f, x, y: f.log_partition_of_average(
            x + y, np.full(6, 2.0)
        ),
        "mean": lambda f, x, y: f.mean(x),
        "kl": lambda f, x, y: f.kl(x, y),
        "barycenter": lambda f, x, y: f.barycenter(x),
        "jensen_gap": lambda f, x, y: jensen_gap(f, x),
        "in_domain": lambda f, x, y: f.in_domain(x),
        "least_count": lambda f, x, y: f.least_count,
        "n_parameters": lambda f, x, y: f.n_parameters(x),
        "separation": lambda f, x, y: f.separation(x, y),
    },
    "Tempered": {
        "effective_size": lambda f, x, y: f.effective_size(x),
        "tempered": lambda f, x, y: f.tempered(x, np.arange(1.0, 7.0)),
        "comparable": lambda f, x, y: f.comparable(x),
        "comparable to others": lambda f, x, y: f.comparable(x, y),
    },
    "Centred": {
        "centred": lambda f, x, y: f.centred(x),
        "centred like others": lambda f, x, y: f.centred(x, y),
    },
    "Located": {
        "location": lambda f, x, y: f.location(x),
        "relocated": lambda f, x, y: f.relocated(x, f.location(y)),
    },
    "UncertainLocation": {
        "location_covariance": lambda f, x, y: f.location_covariance(x),
        "relocated": lambda f, x, y: f.relocated(x, f.location(y), full(f.location_covariance(y))),
    },
    "GaussianObservations": {
        "observation_moments": lambda f, x, y: np.concatenate(
            [f.observation_moments(x)[0], full(f.observation_moments(x)[1]).reshape(6, -1)], axis=1
        ),
    },
    "EmpiricalPrior": {
        "with_empirical_prior": lambda f, x, y: np.concatenate(
            f.with_empirical_prior(x, y[:2], np.repeat([0, 1], 3), np.array([True, False]))
        ),
        "typical_prior": lambda f, x, y: f.typical_prior(y),
    },
    "SiloVariation": {
        "variation_size": lambda f, x, y: f.variation_size,
        "variation": lambda f, x, y: f.variation(x, LABELS),
        "varied": lambda f, x, y: f.varied(y, f.variation(x, LABELS)),
        "varying": lambda f, x, y: f.varying(y).varied(f.varying(x).variation(LABELS)),
    },
    "DiscreteOutcomes": {
        "coarser": lambda f, x, y: f.coarser(x, np.arange(1.0, 7.0), 3)[1],
        "without_prior": lambda f, x, y: f.without_prior(x),
    },
}


def test_every_capability_and_method_is_compared():
    assert set(METHODS) == {"Family", *(found.__name__ for found in CAPABILITIES)}
    for found in CAPABILITIES:
        public = {name for name in vars(found) if not name.startswith("_")}
        public -= set(METHODS["Family"])
        assert public <= set(METHODS[found.__name__]), found


@every_case
def test_a_product_of_one_factor_has_its_capabilities(case):
    one = Product(x=case.family)
    for found in CAPABILITIES:
        assert isinstance(one, found) == isinstance(case.family, found), found


@every_case
@for_each("kind", METHODS)
def test_a_product_of_one_factor_behaves_like_it(case, kind):
    family, one = case.family, Product(x=case.family)
    if kind != "Family" and not isinstance(family, getattr(capabilities, kind)):
        return
    rng = np.random.default_rng(0)
    x, y = case.draw(rng, 6), case.draw(rng, 6)
    for name, method in METHODS[kind].items():
        expected = method(family, x, y)
        np.testing.assert_allclose(
            method(one, x, y), expected, rtol=1e-10, atol=1e-12, err_msg=name
        )


def test_parts_of_a_product_keep_their_own_way():
    family = Product(
        place=kf.families.NormalWishart(2),
        words=kf.families.Dirichlet(9),
        state=kf.families.Categorical(2),
    )
    natural = case_for(family).draw(np.random.default_rng(1), 4)
    place, words, state = np.split(natural, [7, 16], axis=1)
    seen = family.without_prior(natural)
    np.testing.assert_array_equal(seen[:, :7], place)
    np.testing.assert_array_equal(seen[:, 7:16], kf.families.Dirichlet(9).without_prior(words))
    np.testing.assert_array_equal(seen[:, 16:], state)
    coarse, few = family.coarser(natural, np.ones(4), 2)
    assert coarse.factors[0][1] == kf.families.NormalWishart(2)
    assert coarse.factors[1][1].dim < 9 and few.shape == (4, coarse.size)
    assert family.coarser(natural, np.ones(4), 9)[0] == family
    assert not isinstance(family, capabilities.Located)  # a category has no point to move


def test_locations_of_several_factors():
    family = Product(a=kf.families.NormalWishart(2), b=kf.families.NormalGamma(1))
    rng = np.random.default_rng(2)
    natural, other = case_for(family).draw(rng, 3), case_for(family).draw(rng, 3)
    covariance = family.location_covariance(natural)
    assert covariance.shape == (3, 3, 3)
    np.testing.assert_array_equal(covariance[:, 2, :2], 0.0)
    moved = family.relocated(natural, family.location(other), 2.0 * covariance)
    np.testing.assert_allclose(family.location(moved), family.location(other), rtol=1e-8)
    np.testing.assert_allclose(family.location_covariance(moved), 2.0 * covariance, rtol=1e-8)
    parts = zip(family.factors, np.split(natural, [7], axis=1), strict=True)
    first, second = (f.separation(x[:1], x[1:2]) for (_, f), x in parts)
    both = family.separation(natural[:1], natural[1:2])
    np.testing.assert_allclose(both, np.hypot(first, second))


@pytest.mark.parametrize("wrapped", [False, True])
def test_one_component_silos_far_apart_stay_apart(wrapped):
    family = kf.families.NormalWishart(2)
    natural = family.natural(
        mean=[[0.0, 0.0], [100.0, 0.0]], kappa=[50.0, 50.0],
        scale_inv=np.stack([50.0 * np.eye(2)] * 2), dof=[50.0, 50.0],
    )  # fmt: skip
    shown = Product(x=family) if wrapped else family
    silos = [
        kf.Posterior(shown, row[None], name=name) for row, name in zip(natural, "ab", strict=True)
    ]
    assert kf.fuse(silos).n_components == 2


# Dirichlets without a structure are fused as topics; products are not.
PLAIN = [case for case in CASES if case.family.name not in ("dirichlet", "product")]


@pytest.mark.filterwarnings("ignore:expected 3 components")  # one outcome: all are equal
@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_fusing_products_of_one_factor_gives_the_same_plan(case):
    rng = np.random.default_rng(3)
    natural = case.draw(rng, 6, 2.0)
    plans = []
    for family in (case.family, Product(x=case.family)):
        silos = [
            kf.Posterior(family, rows, name=f"s{j}")
            for j, rows in enumerate(natural.reshape(3, 2, -1))
        ]
        plans.append(kf.fuse(silos, n_components=3))
    for first, second in zip(*(plan.labels for plan in plans), strict=True):
        np.testing.assert_array_equal(first, second)
