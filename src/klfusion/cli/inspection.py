"""Commands that look at files: ``klfusion inspect | report | check | diagnose | share | audit``."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

import klfusion as kf
from klfusion._utils.text import printable
from klfusion.cli.shell import EPILOG, FILE, check_targets, modules
from klfusion.errors import KLFusionError

_Files = tuple[Path, ...]


def load_fusion(file: Path) -> Any:
    """The fusion in a file."""
    fusion = kf.load(file)
    if not isinstance(fusion, kf.Fusion):
        message = f"{file}: expected a fusion, got the posterior of one silo; see klfusion inspect"
        raise KLFusionError(message)
    return fusion


def read_files(files: Sequence[Path], *, skip_bad: bool = False) -> tuple[list[Any], list[str]]:
    """Silos of all files, and the reason for each that is skipped; else every reason is shown."""
    silos, bad = usable(files)
    if not (skip_bad and silos):
        refuse(bad)
    return silos, bad


def refuse(reasons: Sequence[str]) -> None:
    """Fail with one line per reason, if there is any."""
    for reason in reasons[:-1]:
        click.echo(f"error: {printable(reason)}", err=True)
    if reasons:
        raise KLFusionError(reasons[-1])


def usable(files: Sequence[Path]) -> tuple[list[Any], list[str]]:
    """The silos that can be read and fused with each other, and the reasons for all others.

    Whichever order the files have: those of one silo are all refused, but for copies of one file.
    """
    read, compatible = modules("_fuse", "federation.compatible")
    bad: list[str] = []
    found: dict[str, list[tuple[Path, Any]]] = {}
    for number, file in enumerate(files):
        try:
            silo = read.posterior_of(file, None, number)
        except KLFusionError as error:
            bad.append(str(error))
        else:
            found.setdefault(silo.name, []).append((file, silo))
    silos, where = [], {}
    for name, own in found.items():
        (first, silo), *others = own
        if all(_same_bytes(first, other) for other, _ in others):
            bad += [f"{other}: another file is of silo {name!r}, a copy" for other, _ in others]
            silos.append(silo)
            where[name] = first
        else:
            bad += [f"{file}: another file is of silo {name!r}, too" for file, _ in own]
    _, refused = compatible.compatible(silos)
    bad += [f"{where[name]}: silo {name!r} {reason}" for name, reason in refused.items()]
    return [silo for silo in silos if silo.name not in refused], bad


def _same_bytes(one: Path, other: Path) -> bool:
    return one.is_file() and other.is_file() and one.read_bytes() == other.read_bytes()


@click.command(epilog=EPILOG)
@click.argument("file", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def inspect(file: Path, as_json: bool) -> None:
    """Show exactly what FILE gives away, before it is sent.

    \b
    Example:
      klfusion inspect hospital-a.safetensors
    """  # noqa: D301 (click reads the character)
    storage, console = modules("io.storage", "cli.console")
    header = {"file": str(file), "bytes": file.stat().st_size, **storage.read_header(file)}
    loaded = storage.load(file)  # checks the hash, too
    if as_json:
        click.echo(json.dumps(header))
        return
    console.show_file(console.make(), header, loaded)


@click.command(epilog=EPILOG)
@click.argument("file", type=FILE)
@click.argument("silos", nargs=-1, type=FILE)
@click.option("-o", "--output", type=FILE, metavar="FILE", help="Where the page goes.")
@click.option("--json", "as_json", is_flag=True, help="Print what the page shows as JSON instead.")
@click.option("--local/--no-local", default=True, help="Draw the silos' components, or leave "
              "out all that they sent.")  # fmt: skip
@click.option("--one-page", is_flag=True, help="Of phenotypes: a page to print.")
@click.option("--min-cell", type=click.IntRange(0), default=5, show_default=True,
              help="Of phenotypes: suppress numbers of fewer patients.")  # fmt: skip
def report(
    file: Path,
    silos: _Files,
    output: Path | None,
    as_json: bool,
    local: bool,
    one_page: bool,
    min_cell: int,
) -> None:
    """Write the HTML report of the fusion in FILE.

    Given the SILOS that were fused, its map of local components is computed from them.

    \b
    Examples:
      klfusion report global.safetensors -o fusion.html
      klfusion report global.safetensors -o public.html --no-local
      klfusion report global.safetensors site-*.safetensors -o fusion.html
      klfusion report global.safetensors -o phenotypes.html --one-page --min-cell 10
    """  # noqa: D301 (click reads the character)
    report_of, read = modules("report", "_fuse")
    if (output is None) is not as_json:
        raise click.UsageError("Give either --output or --json.")
    if output is not None:
        check_targets([output], [file, *silos])
    fusion = load_fusion(file)
    fused = read.read_silos(silos) if silos and local else None
    if not local:
        fusion = fusion.without_silos()
    if output is None:
        click.echo(json.dumps(report_of.summarize(fusion, fused, min_cell=min_cell)))
    else:
        how = {"min_cell": min_cell, "one_page": one_page}
        click.echo(f"report: {report_of.write_report(fusion, output, fused, **how)}")


@click.command(epilog=EPILOG)
@click.argument("files", nargs=-1, required=True, type=FILE)
def check(files: _Files) -> None:
    """Say of all FILES whether they can be read and fused with each other.

    \b
    Example:
      klfusion check site-*.safetensors
    """  # noqa: D301 (click reads the character)
    silos, bad = usable(files)
    for silo in silos:
        click.echo(f"usable: {printable(str(silo))}")
    refuse(bad)


@click.command(epilog=EPILOG)
@click.argument("fusion", type=FILE)
@click.option("--resamples", type=click.IntRange(min=0), default=0, show_default=True,
              help="How often to fuse a random half of the silos, for stability.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON; with "
              "--resamples, beside the stability of each silo's components.")  # fmt: skip
def diagnose(fusion: Path, resamples: int, as_json: bool) -> None:
    """Look for doubtful matches, silos that do not fit and components that look made up.

    Findings are reasons to ask, not errors: the exit code is 0.

    \b
    Example:
      klfusion diagnose global.safetensors
    """  # noqa: D301 (click reads the character)
    given = load_fusion(fusion)
    found = kf.diagnose(given, resamples=resamples)
    if as_json:
        shown: Any = [vars(finding) for finding in found.findings]
        if found.stability is not None:
            known = [
                [None if math.isnan(v) else v for v in own.tolist()] for own in found.stability
            ]
            shown = {
                "findings": shown,
                "stability": dict(zip(given.silo_names, known, strict=True)),
            }
        click.echo(json.dumps(shown))
        return
    for line in str(found).splitlines():
        click.echo(printable(line))


@click.command(epilog=EPILOG)
@click.argument("fusion", type=FILE)
@click.option("-o", "--output", required=True, type=FILE, metavar="FILE",
              help="Where the file to share goes.")  # fmt: skip
@click.option("--min-support", type=click.IntRange(min=1), default=1, show_default=True,
              help="Leave out components of fewer silos.")  # fmt: skip
def share(fusion: Path, output: Path, min_support: int) -> None:
    """Write the fusion in FUSION without what its silos sent.

    A component that one silo alone has is that silo's, number by number: --min-support 3 leaves
    out components that a silo could be read from.

    \b
    Example:
      klfusion share global.safetensors -o public.safetensors --min-support 3
    """  # noqa: D301 (click reads the character)
    check_targets([output], [fusion])
    found = load_fusion(fusion)
    if min_support > 1:
        found = found.with_min_support(min_support)
    kf.save(output, found.without_silos())
    alone = int(((found.contributions > 0).sum(axis=0) < 3).sum())
    click.echo(f"written: {output}")
    if alone:
        click.echo(
            f"{alone} of {found.n_components} components are of one or two silos, whose "
            "parameters can be read from them: see --min-support"
        )


@click.command(epilog=EPILOG)
@click.argument("file", type=FILE)
@click.argument("rows", type=FILE)
@click.option("--outcome", default="y", show_default=True, help="Column of ROWS with the outcome.")
@click.option("-o", "--output", type=FILE, metavar="FILE",
              help="Also write FILE with a note that it was audited, and no number.")  # fmt: skip
def audit(file: Path, rows: Path, outcome: str, output: Path | None) -> None:
    """Say how well FILE gives away whether one of the site's own ROWS was there.

    ROWS is a table with column names, CSV: the model's columns, numbers, and the outcome. Other
    columns are left out. It is read here and goes nowhere.

    \b
    Example:
      klfusion audit hospital-a.safetensors patients.csv --outcome died
    """  # noqa: D301 (click reads the character)
    tables, audits = modules("privacy.tables", "privacy.audit")
    posterior = kf.load(file)
    if isinstance(posterior, kf.Fusion):
        raise KLFusionError(f"{file}: expected the posterior of one silo, got a fusion")
    if output is not None:
        check_targets([output], [rows])
    audits.kind_of(posterior)  # before the rows are read
    words = audits.has_classes(posterior)
    found = kf.audit(posterior, tables.read(rows, outcome, audits.columns(posterior), words=words))
    click.echo(str(found))
    if output is not None:
        kf.save(output, found.noted(posterior))
        click.echo(f"written: {output}")


COMMANDS = (inspect, report, check, diagnose, share, audit)
