"""Location of the experiments' data sets."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

VARIABLE = "KLFUSION_DATA"


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--data-dir``, which overrides the environment variable."""
    parser.add_argument(
        "--data-dir", type=Path, default=None, help=f"folder of the data sets (else ${VARIABLE})"
    )


def find(name: str, data_dir: Path | None = None) -> Path:
    """Path of a data file.

    Parameters
    ----------
    name
        Relative to the data folder, such as ``"mocap6/dataset.npz"``.
    data_dir
        The data folder; ``None`` reads the environment variable ``KLFUSION_DATA``.

    Raises
    ------
    FileNotFoundError
        If there is no such file; the message says what to set.
    """
    folder = data_dir or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if folder is None:
        raise FileNotFoundError(
            f"{name} is needed: pass --data-dir or set {VARIABLE} to the folder that holds it"
        )
    path = folder / name
    if not path.is_file():
        raise FileNotFoundError(f"{path} is needed and does not exist (--data-dir or {VARIABLE})")
    return path
