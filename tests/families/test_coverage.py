"""Every registered family has cases, so that no property silently skips one."""

import numpy as np

from klfusion.families import Tempered
from tests.families.cases import CASES, GENERATORS, every_case, families_of_the_package
from tests.helpers.loops import for_each

from .sampling import sample, statistics


@for_each("name", sorted(families_of_the_package()))
def test_family_has_a_case(name):
    assert name in GENERATORS and GENERATORS[name][0], (
        f"add a case for {name}: a generator in tests/families/cases.py"
    )


def test_no_case_is_of_a_family_that_is_gone():
    assert set(GENERATORS) == set(families_of_the_package())
    assert {case.family.name for case in CASES} == set(GENERATORS)


@every_case
@for_each("spread", [0.0, 0.1, 1.0, 2.0])
def test_draws_are_valid_and_repeatable(case, spread):
    natural = case.draw(np.random.default_rng(0), 7, spread)
    assert natural.shape == (7, case.family.size) and natural.dtype == np.float64
    case.family.check(natural)
    np.testing.assert_array_equal(natural, case.draw(np.random.default_rng(0), 7, spread))


@every_case
def test_shapes_of_every_method(case):
    family, rng = case.family, np.random.default_rng(1)
    natural = case.draw(rng, 4)
    assert family.log_partition(natural).shape == (4,)
    assert family.mean(natural).shape == (4, family.size)
    assert family.kl(natural, natural[:3]).shape == (4, 3)
    assert family.barycenter(natural).shape == (family.size,)
    assert all(len(value) == 4 for value in family.params(natural).values())
    draws = sample(family, natural, 6, rng)
    assert all(value.shape[:2] == (6, 4) for value in draws.values())
    assert statistics(family, draws).shape == (6, 4, family.size)


@every_case
def test_inputs_are_left_as_they_were(case):
    family, rng = case.family, np.random.default_rng(2)
    natural = case.draw(rng, 4)
    natural.flags.writeable = False
    before = natural.copy()
    for value in family.params(natural).values():
        np.add(value, 1.0, out=value)
    family.kl(natural, natural)
    family.check(natural)
    if isinstance(family, Tempered):
        family.comparable(natural)
        family.tempered(natural, np.full(4, 2.0))
    np.testing.assert_array_equal(natural, before)
