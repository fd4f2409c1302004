"""A round over a shared folder: ``klfusion site ...`` and ``klfusion coordinator``."""

import time
from pathlib import Path
from typing import Any

import click

import klfusion as kf
from klfusion._utils.text import printable
from klfusion.cli.shell import EPILOG, FILE, check_targets, modules
from klfusion.errors import KLFusionError

_KEY = click.option("--key", type=FILE, metavar="FILE", help="Sign with this secret key.")
_SIZE = click.IntRange(min=1)


@click.group(epilog=EPILOG)
def site() -> None:
    """Take part in a round over a shared folder: fit, send, receive.

    \b
    Example:
      klfusion site fit patients.csv --name hospital-a --n-components 5 -o hospital-a.safetensors
      klfusion inspect hospital-a.safetensors
      klfusion site send hospital-a.safetensors --to /mnt/consortium
      klfusion site receive /mnt/consortium -o fused.safetensors
    """  # noqa: D301 (click reads the character)


@site.command(epilog=EPILOG)
@click.argument("folder", type=FILE)
def example(folder: Path) -> None:
    """Write tables of three cellars to try it with: cellar-1.csv, cellar-2.csv, cellar-3.csv.

    Each has wines of two of three growers, from scikit-learn: logarithms of five measurements.
    """
    (examples,) = modules("cli.example")
    for path in examples.write(folder):
        click.echo(f"written: {path}")


@site.command(epilog=EPILOG)
@click.argument("file", type=FILE)
def key(file: Path) -> None:
    """Make a key pair: the secret FILE stays here, FILE.pub goes to the coordinator.

    The keys and signatures are those of minisign, whose program can check them, too.
    """
    (signing,) = modules("federation.signing")
    click.echo(f"written: {file} (keep it secret) and {signing.make_keys(file)}")


@site.command(epilog=EPILOG)
@click.argument("source", type=FILE)
@click.option("--name", required=True, help="Name of this site, the same in every round.")
@click.option("-o", "--output", required=True, type=FILE, metavar="FILE", help="Where it goes.")
@click.option("--n-components", type=_SIZE, help="Components of the mixture, for a table.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
              help="Configuration of this site, for a Python file; may be repeated.")  # fmt: skip
@click.option("--after", type=FILE, metavar="FOLDER",
              help="Answer the second request of this folder, for a Python file.")  # fmt: skip
def fit(source: Path, name: str, output: Path, n_components: int | None,
        settings: tuple[str, ...], after: Path | None) -> None:  # fmt: skip
    """Fit a model to this site's data and save its posterior; nothing is sent.

    SOURCE is a table, a CSV file of numbers with a header, to which a Gaussian mixture is fitted;
    or a Python file that defines a klfusion.federation.Round with its own fit.

    \b
    Examples:
      klfusion site fit patients.csv --name hospital-a --n-components 5 -o a.safetensors
      klfusion site fit wines.py --name cellar-1 --set folder=/srv/wines -o a.safetensors
    """  # noqa: D301 (click reads the character)
    check_targets([output], [source])
    if source.suffix == ".py":
        rounds, folders = modules("federation.round", "federation.folder")
        config = dict(word.partition("=")[::2] for word in settings)
        asked = [] if after is None else [rounds.SECOND, folders.second_request(after)]
        posterior = rounds.Round.load(str(source)).posterior(rounds.Site(name, config), *asked)
    elif n_components is None or settings or after is not None:
        raise click.UsageError("a table needs --n-components and neither --set nor --after")
    else:
        posterior = kf.extract(_mixture_of(source, n_components), name=name)
    kf.save(output, posterior)
    click.echo(f"{posterior}; written: {output}")
    click.echo(f"see all of it with: klfusion inspect {output}")


def _mixture_of(table: Path, n_components: int) -> Any:
    """A Gaussian mixture of a table's rows; its columns keep their names."""
    import numpy as np  # noqa: PLC0415 (slow to import)
    from sklearn.mixture import BayesianGaussianMixture  # noqa: PLC0415

    (tables,) = modules("io.table")
    given = tables.Table.read(table)
    if any(_is_number(name) for name in given.names) or len({*given.names}) < len(given.names):
        text = f"{table}: expected a first row with the names of columns, each once"
        raise KLFusionError(f"{text}, got numbers or a name twice")  # never shows the row
    x = given.numbers(given.names)
    if len(x) < n_components:
        text = f"{table}: expected at least {n_components} rows, one per component"
        raise KLFusionError(f"{text}, got {len(x)}")
    with np.errstate(over="ignore"):
        sizes = np.square(2.0 * x).sum(axis=0)  # squared distances are no larger
    if not np.isfinite(sizes.sum()):
        text = f"{table}: expected numbers whose squares floats can hold"
        raise KLFusionError(f"{text}, got larger ones in column {given.names[sizes.argmax()]!r}")
    model = BayesianGaussianMixture(
        n_components=n_components, n_init=5, max_iter=1000, random_state=0
    ).fit(x)
    model.feature_names_in_ = np.array(given.names, dtype=object)
    return model


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


@site.command(epilog=EPILOG)
@click.argument("file", type=FILE)
@click.option("--to", "folder", required=True, type=FILE, help="The shared folder.")
@_KEY
def send(file: Path, folder: Path, key: Path | None) -> None:
    """Send the posterior in FILE: add it to the inbox of a shared folder.

    FILE is of klfusion site fit, or of kf.save. Sending it again is harmless. Of two models of one
    site the first that can be fused counts.

    \b
    Example:
      klfusion site send hospital-a.safetensors --to /mnt/consortium --key hospital-a.key
    """  # noqa: D301 (click reads the character)
    (folders,) = modules("federation.folder")
    posterior = kf.load(file)
    if not isinstance(posterior, kf.Posterior):
        raise KLFusionError(f"{file}: expected the posterior of one silo, got a fusion")
    sent = folders.send(folder, posterior, key)
    click.echo(f"sent: {sent}")
    for other in folders.others_of(sent):
        text = f"there is another model of {posterior.name!r}, {other.name}"
        click.echo(f"note: {text}: the first that can be used counts", err=True)


@site.command(epilog=EPILOG)
@click.argument("folder", type=FILE)
@click.option("-o", "--output", required=True, type=FILE, metavar="FILE", help="Where it goes.")
@click.option("--key", type=FILE, metavar="FILE", help="Public key of the coordinator.")
def receive(folder: Path, output: Path, key: Path | None) -> None:
    """Copy the fused posterior from a shared folder, after checks of manifest and signature."""
    folders, storage = modules("federation.folder", "io.storage")
    posterior = storage.loads(folders.receive(folder, key), source=str(folder))
    check_targets([output], [])
    kf.save(output, posterior)
    click.echo(f"{posterior}; written: {output}")
    if key is None and folders.is_signed(folder):
        click.echo("note: the result is signed, and without --key the signature was not checked")


@click.command(epilog=EPILOG)
@click.argument("folder", type=FILE)
@click.option(
    "--name", help="Name of the round, never used before; default: the folder's, and the time."
)
@click.option("--definition", type=FILE, metavar="FILE",
              help="Python file that defines the round; then no other setting of it.")  # fmt: skip
@click.option("--n-silos", type=_SIZE, help="Wait for so many silos.")
@click.option("--min-silos", type=_SIZE, default=2, show_default=True, help="Fewer are an error.")
@click.option("--silo", "silos", multiple=True, help="Name that may take part; may be repeated.")
@click.option("--keys", type=FILE, metavar="DIR",
              help="Public keys NAME.pub; only messages signed with these count.")  # fmt: skip
@_KEY
@click.option("--timeout", type=float, default=7 * 86400.0, show_default="a week",
              help="Seconds after which the round ends with the silos that have sent.")  # fmt: skip
@click.option("--store", type=FILE, metavar="DIR", help="Folder of its own; default FOLDER/store.")
@click.option("--every", type=float, default=2.0, show_default=True, help="Seconds between looks.")
@click.option("--once", is_flag=True, help="Look once and exit; for a scheduler such as cron.")
def coordinator(folder: Path, store: Path | None, key: Path | None, every: float, once: bool,
                definition: Path | None, **settings: Any) -> None:  # fmt: skip
    """Run a round over a shared FOLDER: check what arrives, fuse, release.

    Open FOLDER/status.html to watch it. Stop it at any time and start it again with the same
    command: nothing is lost. Take a new folder for a new round.

    A round that ends without some silos, at its timeout, is done: they are named, and in the
    result. Fewer than --min-silos are an error, and the exit code is 1.

    \b
    Examples:
      klfusion coordinator /mnt/consortium --n-silos 3
      klfusion coordinator /mnt/consortium --keys keys --key coordinator.key --once
    """  # noqa: D301 (click reads the character)
    folders, rounds = modules("federation.folder", "federation.round")
    if definition is None:
        found = _round_of(folder, store, **settings)
    else:
        source = click.get_current_context().get_parameter_source
        for name in settings:
            if source(name) == click.core.ParameterSource.COMMANDLINE:
                raise click.UsageError(f"--definition says this already: {name}")
        found = rounds.Round.load(str(definition))
    running = folders.Coordinator(found, folder, store, key)
    with running.server.alone():
        if once:
            running.step()
        else:
            running.run(every, click.echo)
    for note in running.server.left_out:
        click.echo(f"set aside: {printable(note)}", err=True)
    for finding in running.server.findings:
        click.echo(f"look at {printable(finding)}", err=True)
    if not running.released:
        click.echo(f"waiting for {running.waiting} more: {folder / 'status.html'}")
        return
    if running.server.fusion is not None:
        click.echo(str(running.server.fusion))
    click.echo(f"released: {folder / 'fused.safetensors'}; {folder / 'status.html'}")


def _round_of(folder: Path, store: Path | None, name: str | None, keys: Path | None,
              silos: tuple[str, ...], n_silos: int | None, **settings: Any) -> Any:  # fmt: skip
    """The round of a folder by options; one that was opened there keeps those that are not given.

    By default its name has the time at which it opened.
    """
    folders, rounds = modules("federation.folder", "federation.round")
    before = folders.opened(folder, store) or {}
    opened = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())
    name = name or before.get("round") or f"{folder.resolve().name} {opened}"
    public, known = None, silos or None
    if keys is not None:
        public = {path.stem: str(path) for path in sorted(keys.glob("*.pub"))}
        if not public:
            got = "an empty one" if keys.is_dir() else "no folder"
            raise KLFusionError(f"--keys {keys}: expected a folder of public keys, got {got}")
    elif not silos:
        known = before.get("silos")
        n_silos = n_silos or before.get("n_silos")
    return rounds.Round(name=name, keys=public, silos=known, n_silos=n_silos, **settings)


COMMANDS = (site, coordinator)
