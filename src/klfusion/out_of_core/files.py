"""Silos in files, read some at a time: for more than fits into memory."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from klfusion._fuse import named_silos, posterior_of
from klfusion._utils.arrays import IntArray
from klfusion._utils.ending import ending_in_order
from klfusion._utils.running import progress_bar
from klfusion.errors import FileFormatError, KLFusionError
from klfusion.families import Family
from klfusion.fusion.result import Fusion
from klfusion.io.atomic import locked
from klfusion.methods import Method
from klfusion.objective.batches import ProblemBatches
from klfusion.objective.problem import FusionProblem
from klfusion.out_of_core.batches import fuse_batches
from klfusion.posteriors.posterior import Posterior

_T = TypeVar("_T")
_File = tuple[int, str | None, Any]  # number, name if it was given, and path of a silo
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# A batch's files, its posteriors, its components stacked, cleaned, centred and comparable, with
# temporary copies.
_COPIES = 16
_LEAST = 64 * 2**20
_SCRATCH, _LOCK = "klfusion-scratch-", "lock"


def parse_bytes(limit: int | str) -> int:
    """A number of bytes from a number or words such as ``"2GB"``."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*([KMGT]?)i?B?\s*", str(limit), re.IGNORECASE)
    try:
        value = int(float(match[1]) * _UNITS[match[2].upper()]) if match else -1
    except (OverflowError, ValueError):
        value = -1
    if isinstance(limit, bool) or value < _LEAST:
        raise KLFusionError(
            f"expected memory_limit to be bytes or words such as '2GB', at least 64MB, "
            f"got {limit!r}"
        )
    return value


def fuse_files(
    paths: Sequence[str | os.PathLike[str]] | Mapping[str, str | os.PathLike[str]],
    *,
    memory_limit: int | str = "1GB",
    method: str | Method = "auto",
    n_components: int | None = None,
    weights: ArrayLike | Mapping[str, float] | None = None,
    min_support: int = 1,
    random_state: int | np.random.Generator | None = 0,
    progress: bool | None = None,
) -> Fusion:
    """Fuse silos in files, reading some at a time: for more than fits into memory.

    Components in comparable form are kept in a scratch folder. Pooling is ``"average"``, or
    ``"product"`` where components have names, as in regressions. What the silos sent is not kept.

    Parameters
    ----------
    paths : sequence, or mapping of silo to path
        Files that `klfusion.save` wrote.
    memory_limit : int or str
        Bytes, or text such as ``"2GB"``; at least 64 MB. A file needs sixteen times its size.
    method : "auto", `klfusion.Auto` or `klfusion.Penalised`
    n_components, weights, random_state, progress
        As for `klfusion.fuse`.
    min_support : int
        Leave out global components that fewer silos have.

    Examples
    --------
    >>> import tempfile, klfusion as kf
    >>> rates = kf.families.Gamma()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     paths = {name: f"{folder}/{name}.safetensors" for name in ("a", "b")}
    ...     for name, shape in {"a": [30, 900], "b": [910, 32]}.items():
    ...         kf.save(paths[name], kf.Posterior(rates, rates.natural(shape, [10, 10]), name=name))
    ...     kf.fuse_files(paths).labels
    (array([0, 1]), array([1, 0]))
    """
    limit, named = parse_bytes(memory_limit), named_silos(paths)
    for number, (name, path) in enumerate(named):
        if not isinstance(path, str | os.PathLike):
            raise KLFusionError(
                f"silo {name or str(number)!r}: fuse_files expected the path of a file, "
                f"got {type(path).__name__}: save it first, with kf.save"
            )
        if not Path(path).is_file():
            raise FileFormatError(f"{path}: expected a klfusion file, got none")
    asked: dict[str, Any] = {"n_components": n_components, "weights": weights}
    asked |= {"min_support": min_support, "random_state": random_state}
    try:
        ending, files = ending_in_order(), Files(named, limit)
        with ending, files as batches, progress_bar(progress) as report:
            return fuse_batches(batches, method, report=report, few_in_memory=True, **asked)
    except OSError as error:
        raise KLFusionError(
            f"memory_limit needs room for the silos' components in {tempfile.gettempdir()} "
            f"({error}): set TMPDIR to a folder with more"
        ) from error


def remove_abandoned() -> None:
    """Remove scratch folders that no process holds, as a killed one leaves them."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"):
        with suppress(OSError), (folder / _LOCK).open("r+") as lock:
            if locked(lock):
                shutil.rmtree(folder, ignore_errors=True)


def _scratch() -> tuple[Path, IO[str]]:
    """A new folder, and the lock that says it is in use."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_SCRATCH))
        lock = (folder / _LOCK).open("w")
        # Before it was locked, another process may have taken it for abandoned.
        if locked(lock) and folder.exists():
            return folder, lock
        lock.close()


class Files:
    """Batches of files within ``limit`` bytes, and a scratch folder for their components."""

    def __init__(self, named: Sequence[tuple[str | None, Any]], limit: int) -> None:
        self._batches: list[list[_File]] = []
        room = 0
        for number, (name, path) in enumerate(named):
            size = _COPIES * Path(path).stat().st_size
            if size > limit:
                raise KLFusionError(
                    f"{path}: expected memory_limit to be at least {size:,} bytes for this file, "
                    f"got {limit:,}"
                )
            if size > room:
                self._batches.append([])
                room = limit
            self._batches[-1].append((number, name, path))
            room -= size
        self._scratch: Path | None = None
        self._lock: IO[str]  # held as long as the folder is used

    def __enter__(self) -> Self:
        remove_abandoned()
        self._scratch, self._lock = _scratch()
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(str(self._scratch), ignore_errors=True)
        self._lock.close()

    def some(self, numbers: IntArray) -> list[Posterior]:
        """Read some silos."""
        chosen = set(numbers.tolist())
        return [_read(one) for batch in self._batches for one in batch if one[0] in chosen]

    def map(self, task: Callable[..., _T], *arguments: Sequence[Any]) -> Iterator[_T]:
        """Read a batch, run the task, forget the batch."""
        for batch, *own in zip(self._batches, *arguments, strict=True):
            yield task([_read(one) for one in batch], *own)

    def parts(self, make: Callable[..., FusionProblem], *arguments: Sequence[Any]) -> OnDisk:
        """Write what is made of each batch to the scratch folder."""
        assert self._scratch is not None  # `with` has made it
        paths, family = [], None
        for number, problem in enumerate(self.map(make, *arguments)):
            family = problem.family
            paths.append(self._scratch / str(number))
            paths[-1].mkdir()
            for field in _FIELDS:
                if (value := getattr(problem, field)) is not None:
                    np.save(paths[-1] / f"{field}.npy", value)
        assert family is not None  # there is a silo at least
        return OnDisk(family, paths)


def _read(one: _File) -> Posterior:
    number, name, path = one
    return posterior_of(path, name, number)


_FIELDS = ("natural", "silo", "weights", "counts", "given", "tied", "log_partition")


@dataclass(frozen=True)
class OnDisk(ProblemBatches):
    """Parts in folders of a disk, mapped into memory one at a time."""

    family: Family
    folders: Sequence[Path]

    def map(self, task: Callable[..., _T], *arguments: Sequence[Any]) -> Iterable[_T]:
        """One part after the other, each let go before the next."""
        return map(task, map(self._open, self.folders), *arguments)

    def _open(self, folder: Path) -> FusionProblem:
        found = {path.stem: np.load(path, mmap_mode="r") for path in folder.iterdir()}
        log_partition = found.pop("log_partition")
        problem = FusionProblem(self.family, **found)
        vars(problem)["log_partition"] = log_partition
        return problem
