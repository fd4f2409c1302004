"""Files of a shared folder, which others can change: read with care, and within bounds."""

import json
import os
import stat
from pathlib import Path
from typing import Any

from klfusion.errors import FileFormatError, KLFusionError

MAX_JSON = 2**20  # bytes of a file other than a posterior


def mark_of(path: Path) -> tuple[int, int, str]:
    """Time, size and name of a file; zeros and no name if there is none."""
    try:
        about = path.lstat()
    except OSError:
        return 0, 0, ""
    return about.st_mtime_ns, about.st_size, path.name


def bounded(path: Path, limit: int) -> bytes:
    """A regular file of bounded size; a link is not followed, a pipe does not block."""
    careful = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        with open(path, "rb", opener=lambda p, flags: os.open(p, flags | careful)) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode) or about.st_size > limit:
                text = f"{path.name}: expected a file of at most {limit} bytes"
                raise FileFormatError(f"{text}, got {about.st_size} bytes or no file")
            return file.read(limit + 1)
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read ({error.strerror})") from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of bounded size."""
    try:
        found = json.loads(bounded(path, MAX_JSON))
    except ValueError as error:
        if isinstance(error, KLFusionError):
            raise
        raise FileFormatError(f"{path}: expected JSON ({error})") from error
    if not isinstance(found, dict):
        raise FileFormatError(f"{path}: expected a JSON object, got {type(found).__name__}")
    return found
