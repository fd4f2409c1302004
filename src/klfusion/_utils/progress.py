"""Progress bars on a terminal; silence elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from klfusion._utils.checks import check_flag

Report = Callable[[str, int, int | None], None]


def silent(stage: str, done: int, total: int | None) -> None:
    """Report nothing."""


@contextmanager
def progress_bar(show: bool | None = None) -> Iterator[Report]:
    """Yield ``report(stage, done, total)``; by default a bar appears on terminals only."""
    check_flag("progress", show, optional=True)
    if not (sys.stderr.isatty() if show is None else show):
        yield silent
        return
    from rich.console import Console  # noqa: PLC0415 (only if a bar is shown)
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("fusing", total=None)

        def report(stage: str, done: int, total: int | None) -> None:
            bar.update(task, description=stage, completed=done, total=total)

        yield report
