"""``python -m benchmarks NAME --out FILE.json``: run, print a table, keep the figures."""

from __future__ import annotations

import argparse
import json
import platform
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

NAMES = ("assignment", "hmm", "membership", "topics")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=[*NAMES, "all"])
    parser.add_argument("--out", type=Path, help="write the rows as JSON")
    parser.add_argument("--quick", action="store_true", help="leave out the large problems")
    args = parser.parse_args()
    names = NAMES if args.name == "all" else (args.name,)
    rows = [
        {"benchmark": name, **row}
        for name in names
        for row in import_module(f"benchmarks.{name}").run(quick=args.quick)
    ]
    Console(width=160).print(table(rows))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        versions = {"python": platform.python_version(), "numpy": np.__version__}
        args.out.write_text(json.dumps({"versions": versions, "rows": rows}, indent=1) + "\n")


def table(rows: list[dict[str, Any]]) -> Table:
    """Rows for people: how many times faster than the peer, and both objectives."""
    shown = Table("problem", "peer", "ours", "peer", "ratio", "objective", "peer's", "gap")
    for row in rows:
        value, peer, gap = (row.get(k) for k in ("objective", "peer_objective", "gap"))
        shown.add_row(
            row["problem"],
            row["peer"],
            f"{1e3 * row['ours_s']:.1f} ms",
            f"{1e3 * row['peer_s']:.1f} ms",
            f"{row['ratio']:.1f}x",
            "" if value is None else f"{value:.5g}",
            "" if peer is None else f"{peer:.5g}",
            "" if gap is None else f"{gap:.2%}",
        )
    return shown


if __name__ == "__main__":
    main()
