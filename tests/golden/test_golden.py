"""`fuse` returns on small problems of every kind what it returned when `golden.json` was written.

A change of results is a change of its own, with its reason: ``python -m tests.golden`` renews the
file and prints what changed.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from klfusion.families import registered_families

from . import results
from .__main__ import main
from .problems import FAMILIES, PROBLEMS

GOLDEN = results.load()


@pytest.mark.parametrize("name", PROBLEMS)
def test_results_are_the_golden_ones(name):
    problem = PROBLEMS[name]
    if problem.needs is not None:
        pytest.importorskip(problem.needs)
    changed = results.differences(GOLDEN[name], results.record(problem.solve()))
    assert not changed, "\n".join(
        [*changed, f"If this is meant: python -m tests.golden {name!r}, with its reason."]
    )


def test_every_problem_has_a_golden_result_and_every_family_a_problem():
    assert list(GOLDEN) == list(PROBLEMS)
    covered = {type(family).__name__ for family in FAMILIES.values()}
    ours = [f for f in registered_families().values() if f.__module__.startswith("klfusion.")]
    assert covered == {family.__name__ for family in ours}


def test_differences_are_named():
    name = "silos: 3"
    fusion = PROBLEMS[name].solve()
    before = results.record(fusion)
    assert results.differences(before, before, tolerance=0.0) == []
    labels = (fusion.labels[0][::-1], *fusion.labels[1:])
    natural = fusion.posterior.natural[::-1]
    exchanged = replace(fusion.posterior, natural=natural)
    after = results.record(
        replace(fusion, labels=labels, penalty=fusion.penalty * (1 + 1e-6), posterior=exchanged)
    )
    lines = results.differences(before, after)
    assert any(line.startswith("labels of silo 0: ") for line in lines)
    assert any(line.startswith("penalty: ") and "relative change 1.0e-06" in line for line in lines)
    assert any(line.startswith("natural by place: ") for line in lines)
    assert not any(line.startswith("natural positive") for line in lines)


def test_renewing_prints_what_changed_and_keeps_the_rest(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(results, "PATH", tmp_path / "golden.json")
    wrong = {**GOLDEN["silos: 2"], "n_components": 99}
    (tmp_path / "golden.json").write_text(json.dumps({**GOLDEN, "silos: 2": wrong}))
    with pytest.raises(SystemExit) as stopped:
        main(["silos: 2", "--check"])
    assert stopped.value.code == 1
    assert results.load()["silos: 2"] == wrong
    main(["silos: 2"])
    assert "n_components: 99 -> " in capsys.readouterr().out
    renewed = results.load()
    assert list(renewed) == list(GOLDEN)
    assert renewed["silos: 2"]["n_components"] == GOLDEN["silos: 2"]["n_components"]
    assert renewed["silos: 3"] == GOLDEN["silos: 3"]
    with pytest.raises(SystemExit):
        main(["no such problem"])


def test_sums_do_not_cancel():
    found = results.sums(np.array([[1e8, -1e8], [1.0, 0.0]]))
    assert found["positive"] == 1e8 + 1.0
    assert found["negative"] == -1e8
