"""``python -m experiments NAME --out DIR``: run an experiment of the paper."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments import simulated


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument("name", choices=["simulated"])
    parser.add_argument("--out", type=Path, default=Path("out/experiments"))
    parser.add_argument("--seeds", type=int, default=10, help="runs of each point")
    parser.add_argument("--quick", action="store_true", help="few points, two seeds")
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 is one a core")
    args = parser.parse_args()
    rows = simulated.main(args.out, args.seeds, args.quick, args.jobs)
    console = Console()
    console.print(table(rows))
    console.print(f"written to {args.out}")


def table(rows: list[dict[str, Any]]) -> Table:
    """Rows for people."""
    shown = Table("separation", "noise", "method", "right size", "size error", "Hausdorff", "ARI")
    for row in sorted(rows, key=lambda r: (r["separation"], r["noise"], r["method"])):
        shown.add_row(
            f"{row['separation']:g}",
            f"{row['noise']:g}",
            row["method"],
            f"{row['right_size']:.0%}",
            f"{row['size_error']:.2f}",
            f"{row['hausdorff']:.2f} ± {row['hausdorff_se']:.2f}",
            f"{row['ari']:.3f}",
        )
    return shown


if __name__ == "__main__":
    main()
