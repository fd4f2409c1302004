"""Files, functions and changes of file behind ``kf.fuse`` on the README's example.

A change of file is a call from one file of klfusion into another. Frames of other libraries between
them and returns do not count. The second call is traced, so imports do not count either. Every run
counts the same.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
from rich.table import Table
from sklearn.mixture import BayesianGaussianMixture

import klfusion as kf

SOURCE = Path(kf.__file__).parent
# Frames that are no functions; which of them exist depends on the version of Python.
_PARTS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>")


@dataclass
class Trace:
    """Calls of functions of klfusion, and calls from one of its files into another."""

    calls: Counter[CodeType] = field(default_factory=Counter)
    changes: Counter[tuple[str, str]] = field(default_factory=Counter)  # from file, into file

    @property
    def files(self) -> list[str]:
        """The files entered, in the order of their first call."""
        return list(dict.fromkeys(code.co_filename for code in self.calls))

    @property
    def functions(self) -> list[CodeType]:
        """The functions called, comprehensions and generator expressions not counted."""
        return [code for code in self.calls if code.co_name not in _PARTS]

    def summary(self) -> dict[str, int]:
        """The figures."""
        return {
            "files": len(self.files),
            "functions": len(self.functions),
            "file_changes": self.changes.total(),
        }

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Count one event of the interpreter: for `sys.setprofile`."""
        own = frame.f_code.co_filename
        if event != "call" or not _is_ours(own):
            return
        self.calls[frame.f_code] += 1
        caller = frame.f_back
        while caller is not None and not _is_ours(caller.f_code.co_filename):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != own:
            self.changes[caller.f_code.co_filename, own] += 1


def _is_ours(file: str) -> bool:
    return file.startswith(f"{SOURCE}/")


def trace(call: Callable[[], Any]) -> Trace:
    """Run, and count what is called in this thread."""
    found, before = Trace(), sys.getprofile()
    sys.setprofile(found)
    try:
        call()
    finally:
        sys.setprofile(before)
    return found


def hospitals() -> dict[str, BayesianGaussianMixture]:
    """Fit the three models of the README's example: seven local components."""
    rng = np.random.default_rng(0)
    kinds = np.array([[-6.0, 0.0], [0.0, 6.0], [6.0, 0.0], [0.0, -6.0]])
    sees = {"hospital-a": [0, 1], "hospital-b": [1, 2], "hospital-c": [0, 2, 3]}
    data = {name: kinds[rng.choice(k, 300)] + rng.normal(size=(300, 2)) for name, k in sees.items()}
    return {
        name: BayesianGaussianMixture(n_components=len(sees[name]), random_state=0).fit(x)
        for name, x in data.items()
    }


def run() -> Trace:
    """Trace the second fusion of the README's models."""
    models = hospitals()
    kf.fuse(models)
    return trace(lambda: kf.fuse(models))


def table(found: Trace) -> Table:
    """One row per file, in the order of entry, and the sums."""
    shown = Table("file", "functions", "calls", "calls from other files", title="trace")
    for file in found.files:
        own = [code for code in found.calls if code.co_filename == file]
        shown.add_row(
            Path(file).relative_to(SOURCE).as_posix(),
            str(sum(code.co_filename == file for code in found.functions)),
            str(sum(found.calls[code] for code in own)),
            str(sum(n for (_, into), n in found.changes.items() if into == file)),
        )
    figures = found.summary()
    shown.add_section()
    shown.add_row(
        f"{figures['files']} files", f"{figures['functions']}", f"{found.calls.total()}",
        f"{figures['file_changes']}",
    )  # fmt: skip
    return shown
