"""One array per silo, by position or name."""

from __future__ import annotations

from collections.abc import Sequence

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
    assert dict(LABELS.items())["b"].tolist() == LABELS[1].tolist() == LABELS["b"].tolist() == [1]


def test_it_is_a_sequence_of_views():
    assert isinstance(LABELS, Sequence)
    assert len(LABELS) == 2
    assert [own.tolist() for own in LABELS[:1]] == [[0, 1]]
    assert LABELS[-1].tolist() == [1]
    assert repr(LABELS) == "(array([0, 1]), array([1]))"
    assert np.concatenate(LABELS).tolist() == [0, 1, 1]
    again = BySilo(LABELS, ["c", "d"])
    assert again["d"].base is LABELS["b"].base
    assert len(BySilo([], [])) == 0


def test_unknown_silos_are_named():
    with pytest.raises(kf.KLFusionError, match="expected a silo of 'a', 'b'"):
        LABELS["c"]
