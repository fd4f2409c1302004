"""What the command line shows, in words and tables; plain text where there is no terminal."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from klfusion._utils.text import printable
from klfusion.fusion.result import Fusion
from klfusion.posteriors.posterior import Posterior

if TYPE_CHECKING:  # the demo imports scikit-learn
    from klfusion.cli.demo import Result, Score

_MOST_ROWS = 50
_MOST_NAMES = 8
_FEW_OBSERVATIONS = 10.0


def make() -> Console:
    """Make a console for standard output; 100 characters wide where no terminal says otherwise."""
    return Console(width=None if sys.stdout.isatty() else 100, highlight=False)


def _say(console: Console, text: str = "") -> None:
    """Print text as it is: no markup, and no line is broken but by the terminal."""
    console.print(Text(text), soft_wrap=True)


def _table(*columns: str, right: Iterable[str] = ()) -> Table:
    table = Table(header_style="bold", title_justify="left")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def _rows(table: Table, rows: Sequence[Sequence[str]]) -> Table:
    for row in rows[:_MOST_ROWS]:
        table.add_row(*(Text(printable(cell)) for cell in row))
    if len(rows) > _MOST_ROWS:
        table.add_row(f"and {len(rows) - _MOST_ROWS} more")
    return table


def _plural(n: int, word: str) -> str:
    return f"{n} {word}{'' if n == 1 else 's'}"


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")


# fuse -------------------------------------------------------------------------------------------


def show_fusion(console: Console, summary: Mapping[str, Any], written: Sequence[Path]) -> None:
    """Tell what a fusion came to, and where it is."""
    left_out, together = summary["n_unmatched"], summary["n_merged_within_silos"]
    _say(
        console,
        f"{_plural(summary['n_silos'], 'silo')}, "
        f"{_plural(summary['n_local_components'], 'local component')} -> "
        f"{_plural(summary['n_components'], 'global component')}"
        + (f" ({left_out} left out: next to no data, or two blended into one)" if left_out else "")
        + (f" ({together} put together with another of the same silo)" if together else ""),
    )
    _say(console, f"status     {summary['status']['text']}")
    _say(console, f"objective  {_number(summary['objective'])} nats")
    gap = summary["gap"]
    bound = "a rough" if summary["status"]["code"] == "kept" else "the certified"
    _say(console, f"gap        {'unknown' if gap is None else f'{gap:.2%}'} to {bound} bound")
    rows = [
        (
            str(g),
            "-" if c["n_observations"] is None else f"{c['n_observations']:,.0f}",
            _number(c["mean_divergence"]),
            _some([f"{source['silo']}:{source['local_component']}" for source in c["sources"]]),
        )
        for g, c in enumerate(summary["components"])
    ]
    table = _table("global", "observations", "mean divergence", "made of silo:component",
                   right=("global", "observations", "mean divergence"))  # fmt: skip
    console.print(_rows(table, rows))
    for path in written:
        _say(console, f"written: {path}")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}"


# inspect ----------------------------------------------------------------------------------------


def show_file(console: Console, header: Mapping[str, Any], loaded: Posterior | Fusion) -> None:
    """Tell everything that a file gives away."""
    posterior = loaded.posterior if isinstance(loaded, Fusion) else loaded
    document = header["posterior"]
    fusion = dict(header.get("fusion", {}))
    if "silos" in fusion:
        kept = _plural(len(fusion["silos"]["each"]), "silo")
        fusion["silos"] = f"what {kept} sent is in this file, for klfusion add and remove"
    facts = {
        "file": f"{header['file']} ({header['bytes']:,} bytes)",
        "kind": f"{header['kind']} (klfusion format {header['version']})",
        "name": document["name"],
        "family": str(posterior.family),
        "components": str(posterior.n_components),
        "sha256": f"{header['sha256']} (checked)",
        **_flat("provenance", document["provenance"]),
        **_flat("structure", document["structure"] or {}),
        **_flat("fusion", fusion),
    }
    width = max(map(len, facts))
    for key, value in facts.items():
        _say(console, f"{printable(key):<{width}}  {printable(value)}")
    arrays = [
        (name, a["dtype"], " x ".join(map(str, a["shape"])) or "one number",
         f"{8 * math.prod(a['shape']):,}")
        for name, a in header["arrays"].items()
    ]  # fmt: skip
    console.print(_rows(_table("array", "type", "shape", "bytes", right=("bytes",)), arrays))
    console.print(_component_table(posterior))
    _say(console, _verdict(posterior))


def _verdict(posterior: Posterior) -> str:
    text = (
        "This file contains no observations. It holds parameters and counts of components; the "
        "arrays and words above are all there is in it."
    )
    counts = posterior.counts
    few = 0 if counts is None else int(((counts > 0) & (counts < _FEW_OBSERVATIONS)).sum())
    if few:
        text += (
            f" Parameters still come from data: {_plural(few, 'component')} of "
            f"{posterior.n_components} rest{'s' if few == 1 else ''} on fewer than "
            f"{_FEW_OBSERVATIONS:.0f} observations, and the mean of very few is close to them."
        )
    return text


def _component_table(posterior: Posterior) -> Table:
    from klfusion.report.summarize import flat_parameters  # noqa: PLC0415 (jinja2 is slow)

    params = flat_parameters(posterior.params())
    table = _table("component", "count", *params, right=("component", "count"))
    counts = posterior.counts
    rows = [
        (
            str(i),
            "-" if counts is None else f"{counts[i]:.1f}",
            *(_shortened(array[i]) for array in params.values()),
        )
        for i in range(min(posterior.n_components, _MOST_ROWS + 1))
    ]
    return _rows(table, rows)


def _shortened(array: Any) -> str:
    """The first numbers of a parameter; of a matrix only its shape."""
    if array.ndim == 2:
        return f"{array.shape[0]} x {array.shape[1]} matrix"
    numbers = array.ravel()
    return " ".join(f"{value:.3g}" for value in numbers[:3]) + (" ..." if numbers.size > 3 else "")


def _flat(name: str, value: Any) -> dict[str, str]:
    """Every fact by its dotted name."""
    if isinstance(value, Mapping):
        return {
            k: v for key, part in value.items() for k, v in _flat(f"{name}.{key}", part).items()
        }
    if isinstance(value, list):
        few = [str(part) for part in value[:_MOST_ROWS]]
        rest = len(value) - len(few)
        return {name: ", ".join(few) + (f" and {rest} more (all with --json)" if rest else "")}
    return {name: str(value)}


# demo -------------------------------------------------------------------------------------------


def show_demo(console: Console, result: Result) -> None:
    """Tell what the demo found, in a table and plain words."""
    fused, pooled, sites, seconds = result.fused, result.pooled, result.sites, result.seconds
    fields = ("log_likelihood", "rand_index", "purity")
    best = [max(getattr(site, field) for site in sites) for field in fields]
    mean = [sum(getattr(site, field) for site in sites) / len(sites) for field in fields]
    size = result.fusion.n_components
    table = _table("model", "log-likelihood", "Rand index", "purity",
                   right=("log-likelihood", "Rand index", "purity"))  # fmt: skip
    table.title = "On images no site has seen, of all ten digits (higher is better)"
    rows = [
        ("fused from ten files", _values(fused)),
        (f"pooled training, {size} components", _values(pooled)),
        ("best single site, in each column", best),
        ("mean single site", mean),
    ]
    for name, values in rows:
        table.add_row(name, f"{values[0]:.2f}", f"{values[1]:.3f}", f"{values[2]:.3f}")
    console.print(table)
    local = sum(len(labels) for labels in result.fusion.labels)
    gained = (fused.log_likelihood - best[0]) / (pooled.log_likelihood - best[0])
    for sentence in (
        f"Each site has three digits, is told so, and sends three components and no image. "
        f"{local} local components became {size} global ones"
        f"{'.' if size == 10 else ': told nothing of digits, it let some share one.'}",
        f"On all ten digits the fused model closes {gained:.0%} of the gap in log-likelihood "
        f"between the best site and training on all images in one place.",
        f"Its components agree with the true digits with an adjusted Rand index of "
        f"{fused.rand_index:.2f}; the best site reaches {best[1]:.2f}, pooled training "
        f"{pooled.rand_index:.2f}. A site has only three digits to tell apart, a help that pooled "
        f"training does not have.",
        f"Fusing took {seconds['fusion']:.2f} s, fitting the sites {seconds['sites']:.2f} s, "
        f"pooled training {seconds['pooled']:.2f} s.",
        f"Report: {result.report}",
    ):
        _say(console, sentence)


def _values(score: Score) -> list[float]:
    return [score.log_likelihood, score.rand_index, score.purity]
