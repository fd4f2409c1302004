"""Shared by all commands: one-line errors with names of options, and exit codes."""

import errno
import os
import re
import warnings
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from klfusion._utils.ending import ending_in_order
from klfusion._utils.text import printable
from klfusion.errors import KLFusionError

FILE = click.Path(path_type=Path)
EPILOG = """\b
Exit codes:
  0    done
  1    the input cannot be used, or the output cannot be written
  2    wrong usage
  130  interrupted
  143  terminated
"""


def modules(*names: str) -> list[Any]:
    """Modules of klfusion, imported where they are used because they are slow to import."""
    return [import_module(f"klfusion.{name}") for name in names]


class Commands(click.Group):
    """Commands that report an error as one line and an exit code, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command and turn exceptions into messages; a request to end is no kill."""
        ctx.with_resource(ending_in_order())
        ctx.with_resource(warnings.catch_warnings())

        warnings.showwarning = _warn
        try:
            return super().invoke(ctx)
        except KLFusionError as error:
            _fail(ctx, in_options(str(error), self.commands.values()))
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader of the output is gone: click exits quietly
                raise
            _fail(ctx, f"{error.filename or 'input or output'}: {error.strerror or error}")
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(130)


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """Without the line of a module, which says nothing to who types commands."""
    click.echo(f"warning: {printable(str(message))}", err=True)


def _fail(ctx: click.Context, message: str) -> None:
    click.echo(f"error: {printable(message)}", err=True)
    ctx.exit(1)


def in_options(message: str, commands: Iterable[click.Command]) -> str:
    """Names of arguments as options, ``keep_silos=True`` as ``--keep-silos``; quotes stay."""
    options = {str(p.name): p for c in commands for p in c.params if isinstance(p, click.Option)}
    every, long = "|".join(options), "|".join(name for name in options if "_" in name)
    kept = r"\w+\([^()]*\)|(?<!\w)'[^']*'(?!\w)"
    setting = (
        rf"(?P<set>{every})=(?!\.)(?P<value>-?\w*)|(?<=expected )(?P<single>{every})(?= to be)"
    )
    alone = rf"(?P<long>{long})(?![\w/-]|\.\w)"

    def translated(match: re.Match[str]) -> str:
        name = match["set"] or match["single"] or match["long"]
        if name is None:
            return match[0]
        option, value = options[name], match["value"]
        if option.is_flag:
            named = option.secondary_opts if value == "False" else option.opts
            return named[-1] if named else f"no {option.opts[-1]}"
        return f"{option.opts[-1]} {value}" if value else option.opts[-1]

    text = re.sub(rf"{kept}|(?<![\w/.-])(?:{setting}|{alone})", translated, message)
    return text.replace("--penalty to be a number > 0 or 'auto'", "--penalty to be a number > 0")


def check_targets(targets: list[Path], inputs: list[Path] | tuple[Path, ...]) -> None:
    """Refuse targets that are inputs or cannot be written, before any work."""
    taken = {_real(path): "an input file" for path in inputs}
    for target in targets:
        if _real(target) in taken:
            raise click.UsageError(f"{target} is {taken[_real(target)]} and would be overwritten.")
        taken[_real(target)] = "the output file"
        parent = target.resolve().parent
        if not parent.is_dir():
            raise KLFusionError(f"{target}: cannot be written (there is no directory {parent})")
        if target.is_dir():
            raise KLFusionError(f"{target}: expected the name of a file, got a directory")
        if not os.access(parent, os.W_OK):
            raise KLFusionError(f"{target}: cannot be written (no permission in {parent})")


def _real(path: Path) -> tuple[int, int] | Path:
    """Identity of the file behind a path; links to one file have the same identity."""
    try:
        status = path.stat()
    except OSError:
        return path.resolve()
    return status.st_dev, status.st_ino
