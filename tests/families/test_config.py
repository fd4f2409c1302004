"""Families travel through JSON, and compare by what they are."""

import copy
import json

import numpy as np
import pytest

from klfusion.errors import KLFusionError
from klfusion.families import Dirichlet, Gamma, Normal, Product, family_from_config
from tests.families.cases import CASES, every_case, families_of_the_package
from tests.helpers.loops import for_each


@every_case
def test_through_json(case):
    config = case.family.to_config()
    again = family_from_config(json.loads(json.dumps(config)))
    assert again == case.family and type(again) is type(case.family)
    assert hash(again) == hash(case.family)
    assert str(again) == str(case.family) and repr(again) == repr(case.family)
    assert again.to_config() == config
    natural = case.draw(np.random.default_rng(0), 3)
    np.testing.assert_array_equal(again.log_partition(natural), case.family.log_partition(natural))


def test_different_families_differ():
    families = [case.family for case in CASES]
    assert len(set(families)) == len(families)
    assert Product(a=Gamma(), b=Gamma(2)) != Product(b=Gamma(2), a=Gamma())


@every_case
def test_families_cannot_be_changed(case):
    with pytest.raises(AttributeError):
        case.family.dim = 7


@for_each("name", sorted(set(families_of_the_package()) - {"product"}))
def test_numpy_sizes_are_plain_in_files(name):
    family = families_of_the_package()[name](np.int64(3))
    assert family == families_of_the_package()[name](3)
    assert json.loads(json.dumps(family.to_config())) == {"name": name, "dim": 3}
    assert "int64" not in repr(family)


@pytest.mark.parametrize("config", [{"name": "cauchy", "dim": 2}, {"dim": 2}, {}, {"name": 3}])
def test_unknown_families(config):
    with pytest.raises(KLFusionError, match=r"unknown family .*; known: beta, categorical, "):
        family_from_config(config)


@for_each(
    "rest", [{}, {"dim": 2, "size": 3}, {"dimension": 2}, {"dim": 0}, {"dim": "2"}, {"dim": 2.0}]
)
@for_each("name", sorted(set(families_of_the_package()) - {"product"}))
def test_malformed_sizes(name, rest):
    with pytest.raises(KLFusionError, match=r"expected"):
        family_from_config({"name": name, **rest})


@for_each(
    "factors",
    [
        None,
        {},
        [],
        ["rate"],
        [["rate"]],
        [["rate", "gamma"]],
        [["rate", None]],
        [[1, {"name": "gamma", "dim": 1}]],
        [["rate", {"name": "cauchy"}]],
        [["rate", {"name": "gamma", "dim": 1}], ["rate", {"name": "gamma", "dim": 2}]],
    ],
)
def test_malformed_products(factors):
    with pytest.raises(KLFusionError, match=r"product|Product"):
        family_from_config({"name": "product", "factors": factors})


def test_a_config_is_left_as_it_was():
    config = {"name": "normal", "dim": 2}
    assert family_from_config(config) == Normal(2)
    assert config == {"name": "normal", "dim": 2}


def test_names_are_unique_and_known_by_the_package():
    from klfusion import families

    for name, family in families_of_the_package().items():
        assert family.name == name
        assert getattr(families, family.__name__) is family and family.__name__ in families.__all__


def test_sizes_are_shown():
    assert str(Dirichlet(3)) == "Dirichlet(dim=3)"
    nested = Product(words=Dirichlet(3), inner=Product(rate=Gamma()))
    assert str(nested) == "Product(words=Dirichlet(dim=3), inner=Product(rate=Gamma(dim=1)))"


@every_case
def test_copies_are_equal(case):
    for again in (copy.copy(case.family), copy.deepcopy(case.family)):
        assert again == case.family and type(again) is type(case.family)
