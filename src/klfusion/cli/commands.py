"""The command line: ``klfusion demo | fuse | add | remove``; the rest is in `inspection`."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

import klfusion as kf
from klfusion._utils.package import library_version
from klfusion._utils.text import printable
from klfusion.cli import federation, inspection
from klfusion.cli.shell import EPILOG, FILE, Commands, check_targets, modules

_SIZE = click.IntRange(min=1)
_Files = tuple[Path, ...]
_Command = TypeVar("_Command", bound=Callable[..., Any])


@click.group(cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(library_version(), prog_name="klfusion")
def main() -> None:
    """Fuse Bayesian models that were trained apart, in one communication round.

    Each silo saves the posterior of its model to a file; the files are fused into one global model.
    No observations leave a silo.

    \b
    Try it:
      klfusion demo
    With your own files:
      klfusion inspect hospital-a.safetensors
      klfusion fuse hospital-*.safetensors -o global.safetensors --report fusion.html
    Over a shared folder:
      klfusion coordinator /mnt/consortium --n-silos 3
      klfusion site send hospital-a.safetensors --to /mnt/consortium
    """  # noqa: D301 (click reads the character)


@main.command(epilog=EPILOG)
@click.option(
    "--out", type=FILE, default=Path("out/demo"), show_default=True, metavar="DIR",
    help="Directory for the files and the report.",
)  # fmt: skip
@click.option("--quick", is_flag=True, help="One start of each fit instead of five.")
def demo(out: Path, quick: bool) -> None:
    """Fuse ten sites that each know three of the ten handwritten digits.

    The images are scikit-learn's. Every site fits a mixture to its own and saves the posterior; the
    files are fused, and the result is compared with every site and with pooled training.

    \b
    Example:
      klfusion demo --out out/demo
    """  # noqa: D301 (click reads the character)
    console, demo = modules("cli.console", "cli.demo")
    terminal = console.make()
    result = demo.run(out, quick=quick, say=lambda text: terminal.print(text, markup=False))
    console.show_demo(terminal, result)


_METHODS = ("auto", "binary", "relaxed", "homogeneous")
_MEASURES = ["kl", "kl-reverse", "jeffreys", "euclidean-natural", "euclidean-mean", "wasserstein"]
_POOLINGS = ("auto", "average", "product", "random-effects", "hierarchical", "robust")
_FUSE_HELP = {
    "--output": "Where the fusion goes.",
    "--method": "auto finds the size by itself. relaxed: the paper to the letter.",
    "--max-loss": "Smallest model whose estimated loss is at most this many nats per observation.",
    "--within-silos": "Let components of one silo become one: sizes below the largest silo's.",
    "--divergence": "What is minimised; kl is the paper's, and the only one with every pooling.",
    "--pooling": "product: as certain as all data together. hierarchical: where silos vary. "
    "robust: no silo can move others' components far.",
    "--min-support": "Leave out global components of fewer silos.",
    "--random-state": "Equal states give equal results.",
    "--keep-silos/--forget-silos": "Keep what each silo sent in the file, for klfusion add and "
    "remove.",
    "--skip-bad": "Fuse without files that cannot be used; the result lists them, with reasons.",
    "--memory-limit": "Read files some at a time, with at most so much in memory: 2GB, say.",
    "--scheduler": "Fuse on the Dask cluster of this scheduler: tcp://127.0.0.1:8786, say.",
}


def _option(*names: str, **how: Any) -> Callable[[_Command], _Command]:
    """An option of ``fuse``, with its default in its help."""
    how |= {"show_default": True} if "default" in how else {}
    return click.option(*names, help=_FUSE_HELP[names[-1]], **how)


@main.command(epilog=EPILOG)
@click.argument("files", nargs=-1, required=True, type=FILE)
@_option("-o", "--output", required=True, type=FILE, metavar="FILE")
@click.option("--report", type=FILE, metavar="FILE", help="Also write an HTML report.")
@_option("--method", type=click.Choice(_METHODS), default="auto")
@click.option("--n-components", type=_SIZE, help="Size of the global model, where it is known.")
@click.option("--penalty", type=float, help="Price of a component in nats; larger gives fewer.")
@_option("--max-loss", type=float)
@_option("--within-silos", is_flag=True)
@_option("--divergence", type=click.Choice(_MEASURES), default="kl")
@_option("--pooling", type=click.Choice(_POOLINGS), default="auto")
@_option("--min-support", type=_SIZE, default=1)
@click.option("--n-init", type=_SIZE, help="Number of starts.")
@click.option("--max-iter", type=_SIZE, help="Most sweeps of one start.")
@_option("--random-state", type=click.IntRange(min=0), default=0)
@_option("--keep-silos/--forget-silos", default=True)
@_option("--skip-bad", is_flag=True)
@_option("--memory-limit", metavar="BYTES")
@_option("--scheduler", metavar="ADDRESS")
@click.option("--json", "as_json", is_flag=True, help="Print a summary as JSON and nothing else.")
def fuse(files: _Files, output: Path, report: Path | None, as_json: bool, **settings: Any) -> None:
    """Fuse the posteriors saved in FILES into one global model.

    \b
    Examples:
      klfusion fuse site-*.safetensors -o global.safetensors --report fusion.html
      klfusion fuse a.safetensors b.safetensors -o global.safetensors --n-components 5
      klfusion fuse sites/*.safetensors -o global.safetensors --memory-limit 2GB
      klfusion fuse site-a.nc site-b.nc -o global.safetensors
    """  # noqa: D301 (click reads the character)
    names = ("cli.console", "report", "report.html", "updates.findings")
    console, report_of, pages, findings = modules(*names)
    targets = [output] if report is None else [output, report]
    check_targets(targets, files)
    settings["progress"] = False if as_json else None
    # Not all in memory: the report does without what the silos sent, too.
    silos: list[Any] | None = None
    skipped: list[str] = []
    if not (settings["scheduler"] or settings["memory_limit"]):
        silos, skipped = inspection.read_files(files, skip_bad=settings["skip_bad"])
    if silos is None:
        fusion = _fuse_out_of_core(files, settings)
    else:
        known = {name: settings[name] for name in _IN_MEMORY}
        fusion = kf.fuse(silos, method=_method(settings), **known)
        if settings["min_support"] > 1:
            fusion = fusion.with_min_support(settings["min_support"])
        if not settings["keep_silos"]:
            fusion = fusion.without_silos()
        if skipped:
            fusion = replace(fusion, provenance={**fusion.provenance, "skipped": skipped})
    summary = report_of.summarize(fusion, silos)  # before anything is written, should that fail
    kf.save(output, fusion)
    if report is not None:
        pages.write_page(summary, report)
    if as_json:
        click.echo(json.dumps({**summary, "output": str(output)}))
        return
    for reason in skipped:
        click.echo(f"skipped: {printable(reason)}", err=True)
    for finding in findings.of_draws(silos or ()):
        click.echo(f"note: {finding}", err=True)
    console.show_fusion(console.make(), summary, targets)


_IN_MEMORY = ("n_components", "pooling", "random_state", "progress")
_OUT_OF_CORE = ("n_components", "min_support", "random_state", "progress")
_METHOD = ("method", "penalty", "max_loss", "within_silos", "divergence", "n_init", "max_iter")


def _method(settings: dict[str, Any]) -> Any:
    """The method that the options configure."""
    name, penalty, max_loss = settings["method"], settings["penalty"], settings["max_loss"]
    given = {key: settings[key] for key in ("n_init", "max_iter") if settings[key] is not None}
    given["divergence"] = settings["divergence"]
    compresses = max_loss is not None or settings["within_silos"]
    if compresses and penalty is not None:
        raise click.UsageError("--penalty cannot be used with --max-loss or --within-silos")
    if compresses and name != "auto":
        raise click.UsageError(f"--max-loss and --within-silos need --method auto, got {name}")
    if compresses:
        loss = {} if max_loss is None else {"max_loss": max_loss}
        return kf.MaxLoss(**loss, within_silos=settings["within_silos"], **given)
    if penalty is not None and settings["n_components"] is not None:
        raise click.UsageError("--penalty cannot be used with --n-components")
    if name == "auto":
        return kf.Auto(**given) if penalty is None else kf.Penalised(penalty, **given)
    if penalty is not None and name == "homogeneous":
        raise click.UsageError("--penalty cannot be used with --method homogeneous")
    if penalty is not None:
        given["penalty"] = penalty
    return getattr(kf, name.capitalize())(**given)  # Binary, Relaxed or Homogeneous


def _fuse_out_of_core(files: _Files, settings: dict[str, Any]) -> Any:
    """Fuse files some at a time, or on a Dask cluster; both have fewer settings."""
    given, scheduler = click.get_current_context().get_parameter_source, settings["scheduler"]
    option = "--scheduler" if scheduler else "--memory-limit"
    for name in settings.keys() - {*_OUT_OF_CORE, *_METHOD, "memory_limit", "scheduler"}:
        if given(name) == click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')} cannot be used with {option}")
    known = {name: settings[name] for name in _OUT_OF_CORE}
    method = _method(settings)
    if scheduler is None:
        return kf.fuse_files(files, memory_limit=settings["memory_limit"], method=method, **known)
    (dask,) = modules("out_of_core.dask")
    if settings["memory_limit"]:
        raise click.UsageError("--memory-limit cannot be used with --scheduler")
    with dask.connect(scheduler) as client:
        return dask.fuse([str(path.resolve()) for path in files], client, method=method, **known)


_FUSION_OUTPUT = click.option(
    "-o", "--output", required=True, type=FILE, metavar="FILE",
    help="Where the new fusion goes; may be the old one.",
)  # fmt: skip
_REMATCH = click.option(
    "--rematch", is_flag=True, help="Match all silos anew; default: the others' matching stays."
)


@main.command(epilog=EPILOG)
@click.argument("fusion", type=FILE)
@click.argument("files", nargs=-1, required=True, type=FILE)
@_FUSION_OUTPUT
@_REMATCH
def add(fusion: Path, files: _Files, output: Path, rematch: bool) -> None:
    """Add the silos in FILES to the fusion in FUSION, one assignment each.

    \b
    Example:
      klfusion add global.safetensors hospital-d.safetensors -o global.safetensors
    """  # noqa: D301 (click reads the character)
    check_targets([output], files)
    _change(fusion, "add", files, output, rematch)


@main.command(epilog=EPILOG)
@click.argument("fusion", type=FILE)
@click.argument("names", nargs=-1, required=True)
@_FUSION_OUTPUT
@_REMATCH
def remove(fusion: Path, names: tuple[str, ...], output: Path, rematch: bool) -> None:
    """Remove the silos NAMES from the fusion in FUSION, as if they had never been there.

    Their posteriors leave the file, too; that they were there stays in its history.

    \b
    Example:
      klfusion remove global.safetensors hospital-b -o global.safetensors
    """  # noqa: D301 (click reads the character)
    check_targets([output], [])
    again = [name for number, name in enumerate(names) if name in names[:number]]
    if again:
        raise click.UsageError(f"Silo {again[0]!r} is named twice.")
    _change(fusion, "remove", names, output, rematch)


def _change(file: Path, action: str, silos: Sequence[Any], output: Path, rematch: bool) -> None:
    """Add or remove silos one by one; all are matched anew after the last."""
    console, report_of = modules("cli.console", "report")
    fusion = inspection.load_fusion(file)
    for number, silo in enumerate(silos):
        fusion = getattr(fusion, action)(silo, rematch=rematch and number == len(silos) - 1)
    summary = report_of.summarize(fusion)
    kf.save(output, fusion)
    console.show_fusion(console.make(), summary, [output])


for _command in (*inspection.COMMANDS, *federation.COMMANDS):
    main.add_command(_command)


if __name__ == "__main__":
    main()
