"""Renew the golden results on purpose: ``python -m tests.golden [NAME ...]``."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec

from rich.console import Console

from . import results
from .problems import PROBLEMS


def main(argv=None):
    """Solve, print what changed, write. Problems whose library is missing stay as they are."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="problems; default: all")
    parser.add_argument("--check", action="store_true", help="to the last digit; write nothing")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    args = parser.parse_args(argv)
    console = Console(highlight=False, soft_wrap=True, markup=False)
    if args.list:
        return console.print("\n".join(PROBLEMS))
    if unknown := set(args.names) - set(PROBLEMS):
        parser.error(f"no problem has the name {', '.join(sorted(unknown))}; --list prints all")
    before, changed = results.load(), 0
    after = {name: before[name] for name in PROBLEMS if name in before}
    for name in args.names or PROBLEMS:
        needs = PROBLEMS[name].needs
        if needs is not None and find_spec(needs) is None:
            console.print(f"{name}: left as it is, {needs} is not installed")
            continue
        after[name] = results.record(PROBLEMS[name].solve())
        if name not in before:
            lines = ["new"]
        else:
            lines = results.differences(before[name], after[name], tolerance=0.0)
        if lines:
            changed += 1
            console.print("\n  ".join([name, *lines]))
    gone = [] if args.names else [name for name in before if name not in PROBLEMS]
    for name in gone:
        console.print(f"{name}: gone")
    console.print(f"{changed + len(gone)} of {len(PROBLEMS)} problems changed")
    if args.check:
        sys.exit(bool(changed or gone))
    results.write({name: after[name] for name in PROBLEMS if name in after})
    return None


if __name__ == "__main__":
    main()
