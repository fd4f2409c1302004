"""``python -m experiments NAME --out DIR``: run an experiment."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from experiments import (
    attacks,
    bnn,
    calibration,
    density,
    divergences,
    draws,
    head_choices,
    heterogeneity,
    hospitals,
    mocap,
    phenotypes,
    privacy,
    probabilities,
    rounds,
    sharing,
    simulated,
    sizes,
    skew,
    topics,
    units,
    users,
)

# Each module has DESCRIPTION, add_arguments(parser) and main(args, console).
EXPERIMENTS = {
    "simulated": simulated,
    "sizes": sizes,
    "sharing": sharing,
    "users": users,
    "probabilities": probabilities,
    "mocap": mocap,
    "topics": topics,
    "bnn": bnn,
    "skew": skew,
    "head_choices": head_choices,
    "calibration": calibration,
    "density": density,
    "divergences": divergences,
    "rounds": rounds,
    "attacks": attacks,
    "units": units,
    "hospitals": hospitals,
    "heterogeneity": heterogeneity,
    "phenotypes": phenotypes,
    "privacy": privacy,
    "draws": draws,
}


def main(argv: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    commands = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, module in EXPERIMENTS.items():
        command = commands.add_parser(name, help=module.DESCRIPTION, description=module.DESCRIPTION)
        command.add_argument("--out", type=Path, default=Path("out/experiments") / name)
        module.add_arguments(command)
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    console = Console()
    EXPERIMENTS[args.name].main(args, console)
    console.print(f"written to {args.out}")


if __name__ == "__main__":
    main()
