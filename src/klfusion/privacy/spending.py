"""The site's record of releases, a file of JSON lines that is only ever appended to."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from klfusion._utils.checks import is_number
from klfusion._utils.text import brief, few
from klfusion.errors import KLFusionError
from klfusion.privacy.mechanism import ADD_REMOVE, REPLACE, Budget, epsilon_of, multiplier

_FIELDS = ("epsilon", "delta", "rho")
# A row replaced is one removed and one added, which costs the square of two.
_REPLACED = 4.0


class RecordWarning(UserWarning):
    """A record has releases of other silos alone."""


def spent(
    record: str | os.PathLike[str], delta: float, neighbours: str = ADD_REMOVE
) -> dict[str, Any]:
    """What all releases of a record spend: their number, the sum of ``rho``, and epsilon.

    Epsilon at ``delta`` is the less of two: that of the sum of ``rho``, and, if the sum of deltas
    is at most ``delta``, the sum of epsilons. Where one row is replaced, releases for one added or
    removed have four times their ``rho``. Those for one replaced hold for one added or removed.
    """
    return _total(_read(Path(record)), delta, neighbours)


def spend(
    record: str | os.PathLike[str] | None,
    limit: tuple[float, float] | None,
    name: str,
    budget: Budget,
) -> dict[str, Any] | None:
    """Add a release to the record, and return what all spend; refuse one above the limit."""
    if record is None:
        if limit is not None:
            raise KLFusionError("limit: expected record=, the site's earlier releases, got none")
        return None
    if limit is not None:
        numbers = isinstance(limit, tuple | list) and len(limit) == 2 and all(map(is_number, limit))
        if not (numbers and limit[0] > 0 and 0 < limit[1] < 1):
            raise KLFusionError(
                f"limit: expected epsilon > 0 and delta between 0 and 1, got {brief(limit)}"
            )
    if not isinstance(record, str | os.PathLike):
        raise KLFusionError(f"record: expected the path of a file, got {brief(record)}")
    path = Path(record)
    entry = {
        "silo": name,
        "epsilon": float(budget.epsilon),
        "delta": float(budget.delta),
        "neighbours": budget.neighbours,
        "rho": 0.5 / multiplier(budget.epsilon, budget.delta) ** 2,
    }
    try:
        # Locked while the limit is checked, so that no two releases are granted for one budget.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise KLFusionError(f"{path}: cannot be written ({error.strerror})") from error
    try:
        _lock(handle)
        before = _read(path)
        every = [*before, entry]
        kind = budget.neighbours
        if limit is not None and (total := _total(every, limit[1], kind)["epsilon"]) > limit[0]:
            raise KLFusionError(
                f"{path}: expected releases within epsilon {limit[0]:g} at delta {limit[1]:g}, "
                f"got {total:.4g} with this one"
            )
        _warn_others(before, name, path)
        line = json.dumps(entry) + "\n"
        if before and not path.read_bytes().endswith(b"\n"):  # by an editor
            line = "\n" + line
        os.write(handle, line.encode())  # to the end: nothing is overwritten
        os.fsync(handle)
    finally:
        os.close(handle)
    return _total(every, budget.delta, kind)


def _warn_others(before: Sequence[dict[str, Any]], name: str, path: Path) -> None:
    others = sorted({str(own.get("silo")) for own in before})
    if others and name not in others:
        warnings.warn(
            f"{path}: all releases so far are of {few(others)}, this one is of {name!r}; expected "
            "one record per site: what is spent on other people's rows would add up, too",
            RecordWarning,
            stacklevel=2,
        )


def _lock(handle: int) -> None:
    """Wait until no other process has the file locked; the lock ends when it is closed."""
    try:
        import fcntl  # noqa: PLC0415 (absent from Windows)
    except ImportError:
        return
    fcntl.flock(handle, fcntl.LOCK_EX)


def _total(entries: Sequence[dict[str, Any]], delta: float, neighbours: str) -> dict[str, Any]:
    other = [neighbours == REPLACE and e.get("neighbours") != REPLACE for e in entries]
    each = zip(entries, other, strict=True)
    rho = sum(entry["rho"] * (_REPLACED if more else 1.0) for entry, more in each)
    epsilon = epsilon_of(rho, delta) if entries else 0.0
    if sum(entry["delta"] for entry in entries) <= delta and not any(other):
        epsilon = min(epsilon, sum(entry["epsilon"] for entry in entries))
    total = {"releases": len(entries), "rho": rho, "epsilon": epsilon, "delta": delta}
    return {**total, "neighbours": neighbours}


def _read(path: Path) -> list[dict[str, Any]]:
    """All releases; a damaged record is refused, for what it spent is unknown."""
    if not path.exists():
        return []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise KLFusionError(f"{path}: expected a record of releases ({error})") from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            good = all(
                isinstance(entry[key], float) and 0 < entry[key] < math.inf for key in _FIELDS
            )
        except (ValueError, KeyError, TypeError):
            good = False
        if not good:
            raise KLFusionError(f"{path}, line {number}: expected a release, got {line[:80]!r}")
        found.append(entry)
    return found
