"""What `make bench` says of a ratio that moved."""

from __future__ import annotations

import io
import json

from rich.console import Console

from benchmarks import __main__ as command
from benchmarks import accepted


def row(problem, ratio, benchmark="kl", **more):
    return {"benchmark": benchmark, "problem": problem, "peer": "peer", "ratio": ratio, **more}


def growth(value):
    return {"benchmark": "growth", "problem": "silos", "peer": "itself", "exponent": value}


def verdicts(before, now, tmp_path, benchmarks=("kl", "growth")):
    path = tmp_path / "accepted.json"
    accepted.accept(before, {"cores": 2}, path)
    found = accepted.changes(now, accepted.load(path), benchmarks)
    return {(c.benchmark, c.row.partition(" | ")[0]): c.verdict for c in found}


def test_what_moved_is_named_and_the_rest_is_not(tmp_path):
    before = [row("a", 10.0), row("b", 10.0), row("c", 10.0), row("d", 10.0), row("e", 10.0)]
    now = [row("a", 7.9), row("b", 8.1), row("c", 12.1), row("d", 11.9), row("new one", 1.0)]
    assert verdicts(before, now, tmp_path) == {
        ("kl", "a"): "slower",
        ("kl", "c"): "faster",
        ("kl", "e"): "gone",
        ("kl", "new one"): "new",
    }


def test_a_larger_exponent_is_worse(tmp_path):
    assert verdicts([growth(1.0)], [growth(1.3)], tmp_path) == {("growth", "silos"): "grows faster"}
    assert verdicts([growth(2.0)], [growth(1.1)], tmp_path) == {("growth", "silos"): "grows slower"}
    assert verdicts([growth(1.0)], [growth(1.1)], tmp_path) == {}


def test_the_peer_is_part_of_the_name(tmp_path):
    other = {**row("a", 10.0), "peer": "another"}
    assert verdicts([row("a", 10.0)], [row("a", 10.0), other], tmp_path) == {("kl", "a"): "new"}


def test_benchmarks_that_did_not_run_are_not_gone(tmp_path):
    assert verdicts([row("a", 1.0), growth(1.0)], [row("a", 1.0)], tmp_path, ["kl"]) == {}


def test_accepting_one_benchmark_keeps_the_others(tmp_path):
    path = tmp_path / "accepted.json"
    accepted.accept([row("a", 1.0), growth(1.5)], {"cores": 2}, path)
    accepted.accept([row("b", 2.0)], {"cores": 8}, path)
    assert accepted.load(path) == {
        "kl": {"machine": {"cores": 8}, "figures": {"b | peer": 2.0}},
        "growth": {"machine": {"cores": 2}, "figures": {"silos | itself": 1.5}},
    }


def test_the_table_has_the_worst_first(tmp_path):
    path = tmp_path / "accepted.json"
    accepted.accept([row("a", 1.0), row("b", 4.0)], {}, path)
    moved = accepted.changes([row("a", 2.0), row("b", 1.0)], accepted.load(path), ["kl"])
    console = Console(width=120, file=io.StringIO())
    console.print(accepted.table(moved))
    shown = console.file.getvalue()
    assert shown.index("slower") < shown.index("faster")


def test_the_accepted_figures_are_of_benchmarks_that_exist():
    kept = json.loads(accepted.PATH.read_text())
    assert set(kept) <= set(command.NAMES)
    for entry in kept.values():
        assert {"cores", "python", "numpy"} <= set(entry["machine"])
        assert all(figure > 0 for figure in entry["figures"].values())
