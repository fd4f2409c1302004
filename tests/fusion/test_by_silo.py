"""One array per silo, by position or name."""

from __future__ import annotations

import numpy as np
import pytest

import klfusion as kf
from klfusion.fusion.by_silo import BySilo

LABELS = BySilo([np.array([0, 1]), np.array([1])], ["a", "b"])


def test_names_work_as_those_of_a_mapping():
    assert "a" in LABELS
    assert "c" not in LABELS
    assert LABELS.keys() == ("a", "b")
    assert [own.tolist() for own in LABELS.values()] == [[0, 1], [1]]
    assert dict(LABELS.items())["b"] is LABELS[1] is LABELS["b"]


def test_unknown_silos_are_named():
    with pytest.raises(kf.KLFusionError, match="expected a silo of 'a', 'b'"):
        LABELS["c"]
