"""Labels are numbered without gaps, and ordered by size."""

from __future__ import annotations

import numpy as np

from klfusion._utils.arrays import by_size, numbering, relabel


def test_relabel_keeps_the_order_of_labels_and_leaves_no_gap():
    labels = np.array([9, 4, 4, 12, 9])
    assert relabel(labels).tolist() == [1, 0, 0, 2, 1]


def test_largest_labels_come_first_then_the_first_to_appear():
    labels = np.array([3, -1, 1, 0, 1, 2])
    assert by_size(np.array([1, 2, 1, 1]), labels).tolist() == [1, 3, 0, 2]


def test_positions_decide_what_appears_first():
    labels = np.array([0, 1, 2])
    assert by_size(np.ones(3, dtype=int), labels, np.array([5, 7, 1])).tolist() == [2, 0, 1]


def test_numbering_inverts_an_order_and_keeps_missing_labels_missing():
    order = np.array([2, 0])
    assert numbering(order, 4)[[0, 1, 2, 3, -1]].tolist() == [1, -1, 0, -1, -1]
