"""Terminal output of the commands: text and tables, plain text without a terminal."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from klfusion._utils.text import printable
from klfusion.families import Product
from klfusion.fusion.result import Fusion
from klfusion.posteriors.budgets import AUDITED, described
from klfusion.posteriors.coefficients import is_regression
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import head

if TYPE_CHECKING:  # the demo imports scikit-learn
    from klfusion.cli.demo import Result

_MAX_ROWS = 50
_MAX_NAMES = 8
_AUDITED = "The site says that it audited this file; what it found stays there."
_FEW_OBSERVATIONS = 10.0  # a mean of fewer than this is close to the observations


def make() -> Console:
    """A console for standard output; 100 characters wide without a terminal."""
    return Console(width=None if sys.stdout.isatty() else 100, highlight=False)


def _say(console: Console, text: str = "") -> None:
    """Print text without markup; only the terminal breaks lines."""
    console.print(Text(text), soft_wrap=True)


def _table(*columns: str, right: Iterable[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table of the first rows, with these columns to the right."""
    table = Table(header_style="bold", title_justify="left")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows[:_MAX_ROWS]:
        table.add_row(*(Text(printable(cell)) for cell in row))
    if len(rows) > _MAX_ROWS:
        table.add_row(f"and {len(rows) - _MAX_ROWS} more")
    return table


def _plural(n: int, word: str) -> str:
    return f"{n} {word}{'' if n == 1 else 's'}"


def show_fusion(console: Console, summary: Mapping[str, Any], written: Sequence[Path]) -> None:
    """Show the result of a fusion and the files written."""
    unmatched, merged = summary["n_unmatched"], summary["n_merged_within_silos"]
    text = (
        f"{_plural(summary['n_silos'], 'silo')}, "
        f"{_plural(summary['n_local_components'], 'local component')} -> "
        f"{_plural(summary['n_components'], 'global component')}"
    )
    if unmatched:
        text += f" ({unmatched} unmatched: few observations, or two components in one)"
    if merged:
        text += f" ({merged} merged with another of the same silo)"
    _say(console, text)
    _say(console, f"status     {summary['status']['text']}")
    _say(console, f"objective  {_number(summary['objective'])} nats")
    gap = "unknown" if summary["gap"] is None else f"{summary['gap']:.2%}"
    meaning = "no assignment to these global components is better by more"
    if summary["status"]["code"] == "kept":
        meaning = "to a rough bound: the assignment was kept, not optimised"
    _say(console, f"gap        {gap}, {meaning}")
    for k, sentence in enumerate(summary["why"]["sentences"]):
        _say(console, f"{'' if k else 'why':<9}  {sentence}")
    rows = []
    for g, c in enumerate(summary["components"]):
        count, mean = _number(c["n_observations"], ",.0f"), _number(c["mean_divergence"])
        sources = [f"{source['silo']}:{source['local_component']}" for source in c["sources"]]
        rest = len(sources) - _MAX_NAMES
        more = f" and {rest} more" if rest > 0 else ""
        rows.append((str(g), count, mean, ", ".join(sources[:_MAX_NAMES]) + more))
    numbers = ("global", "observations", "mean divergence")
    console.print(_table(*numbers, "sources silo:component", right=numbers, rows=rows))
    if summary["view"]["kind"] == "regression":
        console.print(_coefficient_table(summary["view"]["coefficients"]))
    for finding in summary["findings"][:_MAX_ROWS]:
        _say(console, f"look at {printable(finding)}")
    for path in written:
        _say(console, f"written: {path}")


def _coefficient_table(coefficients: Sequence[Mapping[str, Any]]) -> Table:
    """Global coefficients with their intervals, and how silos differ."""
    rows = []
    for one in coefficients:
        fused = one["fused"]
        interval = f"{_number(fused['low'], '.4g')} to {_number(fused['high'], '.4g')}"
        differ = [_number(one.get(key), ".3g") for key in ("tau2", "i2", "q", "q_p_value")]
        rows.append((one["name"], _number(fused["mean"], ".4g"), interval, *differ))
    numbers = ("global", "95 % interval", "tau2", "I2", "Q", "p of Q")
    return _table("coefficient", *numbers, right=numbers, rows=rows)


def _number(value: float | None, style: str = ".5g") -> str:
    return "-" if value is None else format(value, style)


def show_file(console: Console, header: Mapping[str, Any], loaded: Posterior | Fusion) -> None:
    """Show everything that a file contains."""
    posterior = loaded.posterior if isinstance(loaded, Fusion) else loaded
    document = header["posterior"]
    fusion = dict(header.get("fusion", {}))
    if "silos" in fusion:
        n_silos = _plural(len(fusion["silos"]["each"]), "silo")
        fusion["silos"] = f"posteriors of {n_silos}, for klfusion add and remove"
        _say(
            console,
            f"This file holds what its {n_silos} sent, number by number: who has it has the files "
            "of all silos. klfusion share writes it without.",
        )
    fields = {
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
    width = max(map(len, fields))
    for key, value in fields.items():
        _say(console, f"{printable(key):<{width}}  {printable(value)}")
    arrays = [
        (name, a["dtype"], " x ".join(map(str, a["shape"])) or "one number",
         f"{8 * math.prod(a['shape']):,}")
        for name, a in header["arrays"].items()
    ]  # fmt: skip
    console.print(_table("array", "type", "shape", "bytes", right=("bytes",), rows=arrays))
    console.print(_component_table(posterior))
    _say(console, _privacy_note(posterior))
    members = loaded.n_silos if isinstance(loaded, Fusion) else None
    for sentence in described(posterior.provenance, members):
        _say(console, printable(sentence))
    if members is None:
        audited = posterior.provenance.get(AUDITED) is True
        _say(console, _AUDITED if audited else "No audit was made: see klfusion audit.")


def _privacy_note(posterior: Posterior) -> str:
    text = (
        "This file contains no observations. It contains parameters and counts of components: the "
        "arrays and fields listed above, and nothing else."
    )
    counts = posterior.counts
    few = 0 if counts is None else int(((counts > 0) & (counts < _FEW_OBSERVATIONS)).sum())
    if few:
        text += (
            f" Parameters depend on data: {_plural(few, 'component')} of "
            f"{posterior.n_components} {'has' if few == 1 else 'have'} fewer than "
            f"{_FEW_OBSERVATIONS:.0f} observations, and the mean of very few is close to them."
        )
    is_head = posterior.structure is not None and posterior.structure.kind == head.KIND
    if is_head and counts is not None:
        rows, n_features = counts.sum(), posterior.params()["mean"].shape[1]
        if rows < n_features:
            text += (
                f" The scatter of {n_features} features of {rows:.0f} rows determines the "
                "features of these rows up to a rotation."
            )
    return text


def _component_table(posterior: Posterior) -> Table:
    from klfusion.report.summarize import flat_parameters  # noqa: PLC0415 (jinja2 is slow)

    params = flat_parameters(posterior.params())
    if posterior.structure is not None and is_regression(posterior):
        names = posterior.structure.info["coordinates"]
        deviation = params["covariance"][0].diagonal() ** 0.5
        rows = [
            (name, *(f"{value:.4g}" for value in pair))
            for name, *pair in zip(names, params["mean"][0], deviation, strict=True)
        ]
        numbers = ("mean", "standard deviation")
        return _table("coefficient", *numbers, right=numbers, rows=rows)
    n = min(posterior.n_components, _MAX_ROWS + 1)
    counts = [None] * n if posterior.counts is None else posterior.counts
    if isinstance(posterior.family, Product):  # of many columns: one row per parameter
        some, all_ = min(n, _MAX_NAMES), posterior.n_components
        of_all = [("count", *(_number(count, ".1f") for count in counts[:some]))]
        of_all += [(name, *map(_shortened, array[:some])) for name, array in params.items()]
        names = [f"component {i}" for i in range(some)]
        first = "parameter" if some == all_ else f"parameter ({some} of {all_} components)"
        return _table(first, *names, right=names, rows=of_all)
    rows = [
        (str(i), _number(counts[i], ".1f"), *(_shortened(array[i]) for array in params.values()))
        for i in range(n)
    ]
    return _table("component", "count", *params, right=("component", "count"), rows=rows)


def _shortened(array: Any) -> str:
    """First entries of a vector, or the shape of a matrix."""
    if array.ndim == 2:
        return f"{array.shape[0]} x {array.shape[1]} matrix"
    numbers = array.ravel()
    return " ".join(f"{value:.3g}" for value in numbers[:3]) + (" ..." if numbers.size > 3 else "")


def _flat(name: str, value: Any) -> dict[str, str]:
    """Fields by dotted name."""
    if isinstance(value, Mapping):
        parts = [_flat(f"{name}.{key}", part) for key, part in value.items()]
        return {key: text for part in parts for key, text in part.items()}
    if isinstance(value, list):
        rest = len(value) - _MAX_ROWS
        listed = ", ".join(map(str, value[:_MAX_ROWS]))
        return {name: listed + (f" and {rest} more (all with --json)" if rest > 0 else "")}
    return {name: str(value)}


def show_demo(console: Console, result: Result) -> None:
    """Show the result of the demo: a table and its explanation."""
    fused, pooled, sites, seconds = result.fused, result.pooled, result.sites, result.seconds
    columns = list(zip(*map(astuple, sites), strict=True))
    best, mean = [max(own) for own in columns], [sum(own) / len(own) for own in columns]
    size = result.fusion.n_components
    names = ("log-likelihood", "Rand index", "purity")
    scores = {
        "fused from ten files": astuple(fused),
        f"pooled training, {size} components": astuple(pooled),
        "best single site per column": best,
        "mean single site": mean,
    }
    rows = [(name, f"{v[0]:.2f}", f"{v[1]:.3f}", f"{v[2]:.3f}") for name, v in scores.items()]
    table = _table("model", *names, right=names, rows=rows)
    table.title = "Held-out images of all ten digits (higher is better)"
    console.print(table)
    local = sum(len(labels) for labels in result.fusion.labels)
    gained = (fused.log_likelihood - best[0]) / (pooled.log_likelihood - best[0])
    sentences = (
        f"Each site has images of three digits. It sends three components and no image. "
        f"{local} local components became {size} global ones"
        f"{'.' if size == 10 else ': without labels, similar digits share a component.'}",
        f"The fused model closes {gained:.0%} of the gap in log-likelihood between the best site "
        f"and training on all images in one place.",
        f"The adjusted Rand index of its components with the true digits is "
        f"{fused.rand_index:.2f}; the best site reaches {best[1]:.2f}, pooled training "
        f"{pooled.rand_index:.2f}. Pooled training must separate ten digits, a site only three.",
        f"Fusing took {seconds['fusion']:.2f} s, fitting the sites {seconds['sites']:.2f} s, "
        f"pooled training {seconds['pooled']:.2f} s.",
        f"Report: {result.report}",
    )
    _say(console, "\n".join(sentences))
