"""Progress bars."""

from __future__ import annotations

import threading

import pytest

from klfusion._utils.running import progress_bar


def test_an_interrupted_bar_leaves_no_thread(capsys):
    before = threading.enumerate()
    with pytest.raises(KeyboardInterrupt), progress_bar(show=True) as report:
        report("matching", 1, 3)
        assert threading.enumerate() == before  # it has none to leave
        raise KeyboardInterrupt
    assert threading.enumerate() == before
