"""Point estimates, and moving a posterior to one, where a family can."""

from __future__ import annotations

import numpy as np

from klfusion.families import Located
from tests.families.cases import every_case_with


@every_case_with(Located)
def test_relocated_is_where_it_was_asked_to_be(case):
    rng = np.random.default_rng(0)
    natural, other = case.draw(rng, 4), case.draw(rng, 4)
    location = case.family.location(other)
    assert location.shape[0] == 4
    moved = case.family.relocated(natural, location)
    assert case.family.in_domain(moved)
    np.testing.assert_allclose(case.family.location(moved), location, rtol=1e-8)
    np.testing.assert_allclose(
        case.family.relocated(natural, case.family.location(natural)), natural, rtol=1e-8
    )
