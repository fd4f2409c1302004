"""The trace of the README's example: what it counts, and that every run counts the same."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("threadpoolctl")
import klfusion as kf
from benchmarks import __main__ as command
from benchmarks import trace


def test_one_call_into_one_file():
    gamma = kf.families.Gamma()
    found = trace.trace(lambda: gamma.natural(shape=[1.0], rate=[2.0]))
    assert Path(found.files[0]).name == "gamma.py"
    assert "Gamma.natural" in [code.co_qualname for code in found.functions]
    # What is called by this file, which is not one of klfusion, is no change.
    assert all(caller in found.files for caller, _ in found.changes)
    assert {into for _, into in found.changes} == set(found.files[1:])


def test_a_call_through_another_library_is_a_change():
    gamma = kf.families.Gamma()
    found = trace.trace(lambda: sorted([2.0, 1.0], key=lambda x: gamma.natural([x], [x])[0, 0]))
    twice = trace.trace(lambda: [gamma.natural([x], [x]) for x in (2.0, 1.0)])
    assert found.changes == twice.changes
    assert found.summary()["functions"] == twice.summary()["functions"]


def test_the_profile_is_given_back():
    def fail():
        raise ValueError("expected")

    with pytest.raises(ValueError, match="expected"):
        trace.trace(fail)
    assert sys.getprofile() is None


def test_the_command_prints_and_writes_the_figures(tmp_path, capsys):
    out = tmp_path / "trace.json"
    command.main(["trace", "--out", str(out)])
    written = json.loads(out.read_text())
    again = trace.run().summary()
    assert {key: written[key] for key in again} == again
    printed = capsys.readouterr().out
    assert f"{again['files']} files" in printed
    assert str(again["file_changes"]) in printed
    assert 0 < again["files"] < again["functions"] < again["file_changes"]


def test_a_trace_is_not_accepted(capsys):
    with pytest.raises(SystemExit):
        command.main(["trace", "--accept"])
    assert "--accept" in capsys.readouterr().err
