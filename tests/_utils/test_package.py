"""Functions of later packages are found by name."""

from __future__ import annotations

import pytest

from klfusion._utils.package import provide, provided


def test_a_name_leads_to_its_function():
    provide({"a test's function": "_utils.text:few"})
    assert provided("a test's function")(["a"]) == "'a'"


def test_a_name_that_nobody_gave():
    with pytest.raises(KeyError):
        provided("nothing")
