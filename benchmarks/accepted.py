"""Accepted figures and the changes since: a regression in a ratio is visible."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.measure import Row

PATH = Path(__file__).parent / "accepted.json"
TOLERANCE = 0.2  # relative change of a figure that counts as noise
Accepted = dict[str, dict[str, Any]]  # per benchmark: the machine, and figures by row


@dataclass(frozen=True)
class Change:
    """A row with a changed figure, a new row or a missing one."""

    benchmark: str
    row: str
    before: float | None
    now: float | None
    verdict: str


def figures(rows: Iterable[Row]) -> dict[str, dict[str, float]]:
    """Per benchmark, the ratio or the exponent of growth of each row, by name."""
    out: dict[str, dict[str, float]] = {}
    for row in rows:
        name = f"{row['problem']} | {row['peer']}"
        out.setdefault(row["benchmark"], {})[name] = round(_figure(row), 4)
    return out


def _figure(row: Row) -> float:
    return float(row["exponent"] if "exponent" in row else row["ratio"])


def changes(rows: list[Row], accepted: Accepted, benchmarks: Iterable[str]) -> list[Change]:
    """Rows of the benchmarks run that changed by more than `TOLERANCE`, are new, or are missing."""
    now, out = figures(rows), []
    growth = {f"{r['problem']} | {r['peer']}" for r in rows if "exponent" in r}
    for benchmark in benchmarks:
        before = accepted.get(benchmark, {}).get("figures", {})
        found = now.get(benchmark, {})
        for name in [*found, *(n for n in before if n not in found)]:
            old, new = before.get(name), found.get(name)
            verdict = _verdict(old, new, less_is_better=name in growth)
            if verdict:
                out.append(Change(benchmark, name, old, new, verdict))
    return out


def _verdict(before: float | None, now: float | None, less_is_better: bool) -> str:
    if before is None or now is None:
        return "new" if before is None else "gone"
    if abs(now - before) <= TOLERANCE * abs(before):
        return ""
    if less_is_better:
        return "grows slower" if now < before else "grows faster"
    return "faster" if now > before else "slower"


def table(moved: list[Change]) -> Table:
    """A table of changes, worst first."""
    order = ["slower", "grows faster", "gone", "faster", "grows slower", "new"]
    shown = Table("", "benchmark", "row", "accepted", "now", title="Changed by more than 20 %")
    for change in sorted(moved, key=lambda c: order.index(c.verdict)):
        numbers = ("" if v is None else f"{v:.3g}" for v in (change.before, change.now))
        shown.add_row(change.verdict, change.benchmark, change.row, *numbers)
    return shown


def load(path: Path | None = None) -> Accepted:
    """Accepted figures by benchmark; empty without a file."""
    path = path or PATH
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def accept(rows: list[Row], machine: Mapping[str, Any], path: Path | None = None) -> None:
    """Accept the figures of these rows; other benchmarks keep theirs."""
    new = {
        benchmark: {"machine": dict(machine), "figures": found}
        for benchmark, found in figures(rows).items()
    }
    text = json.dumps({**load(path), **new}, indent=1, sort_keys=True, ensure_ascii=False)
    (path or PATH).write_text(text + "\n", encoding="utf-8")
