"""``python -m benchmarks NAME --out FILE.json``: run, print a table, list the changes.

``trace`` counts files, functions and changes of file instead of measuring time.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import accepted, trace
from benchmarks.measure import Row, machine

NAMES = (
    "assignment", "bounds", "fusion", "growth", "hmm", "homogeneous", "kl", "limit", "local",
    "membership", "mixed", "neurons", "scale", "topics",
)  # fmt: skip
DRAWN = ("scale",)
TRACE = "trace"  # without a peer; not part of "all"


def main(argv: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=[*NAMES, TRACE, "all"])
    parser.add_argument("--out", type=Path, help="write the rows as JSON")
    parser.add_argument("--figure", type=Path, help=f"draw the rows ({', '.join(DRAWN)} only)")
    parser.add_argument("--quick", action="store_true", help="leave out the large problems")
    parser.add_argument(
        "--accept", action="store_true", help=f"store these figures in {accepted.PATH.name}"
    )
    args = parser.parse_args(argv)
    if args.accept and args.quick:
        parser.error("--accept is for whole runs, not for --quick")
    if args.figure and args.name not in DRAWN:
        parser.error(f"--figure is for {', '.join(DRAWN)}, not for {args.name}")
    if args.accept and args.name == TRACE:
        parser.error("--accept is for ratios, not for trace")
    names = NAMES if args.name == "all" else (args.name,)
    console = Console(width=180, highlight=False)
    console.print(", ".join(f"{key} {value}" for key, value in machine().items()))
    if args.name == TRACE:
        traced = trace.run()
        console.print(trace.table(traced))
        if args.out:
            _write(args.out, {"machine": machine(), **traced.summary()})
        return
    rows: list[Row] = []
    for name in names:
        module = import_module(f"benchmarks.{name}")
        with console.status(name):
            rows += (found := [{"benchmark": name, **row} for row in module.run(quick=args.quick)])
        console.print(table(name, found))
        if args.out:  # rows so far are kept if a later benchmark fails
            _write(args.out, {"machine": machine(), "rows": rows})
    if args.figure:
        import_module(f"benchmarks.{args.name}").draw(rows, args.figure)
    if args.accept:
        accepted.accept(rows, machine())
        console.print(f"accepted: {len(rows)} figures, in {accepted.PATH.name}")
    elif not args.quick:  # quick problems have no accepted figures
        moved = accepted.changes(rows, accepted.load(), names)
        console.print(accepted.table(moved) if moved else "No figure changed by more than 20 %.")


def _write(path: Path, values: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=1) + "\n")


def table(title: str, rows: list[Row]) -> Table:
    """A table of rows: times of both sides, their ratio, memory of both sides."""
    shown = Table(
        "problem", "peer", "ours", "CPU", "peer's", "CPU", "ratio", "MB", "peer's", "", title=title
    )
    for row in rows:
        times = (_time(row.get(key)) for key in ("ours_s", "cpu_s", "peer_s", "peer_cpu_s"))
        memory = (row.get(key) for key in ("peak_mb", "peer_peak_mb"))
        ratio = f"n^{row['exponent']:.2f}" if "exponent" in row else f"{row['ratio']:.3g}x"
        megabytes = ("" if mb is None else f"{mb:,.0f}" for mb in memory)
        shown.add_row(row["problem"], row["peer"], *times, ratio, *megabytes, row.get("note", ""))
    return shown


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{1e3 * seconds:.3g} ms" if seconds < 1.0 else f"{seconds:.3g} s"


if __name__ == "__main__":
    main()
