"""`write_report`: the summary of a fusion as one self-contained HTML page.

Its content security policy allows its own scripts by their hashes, and nothing else.
"""

import base64
import hashlib
import json
import math
import os
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from klfusion._utils.checks import check_flag, check_integer
from klfusion._utils.text import printable
from klfusion.errors import KLFusionError
from klfusion.fusion.result import Fusion
from klfusion.io.atomic import write_atomically
from klfusion.posteriors.posterior import Posterior
from klfusion.report.charts import evidence_points, path_points, trace_points
from klfusion.report.phenotypes import MIN_CELL, has_phenotypes
from klfusion.report.summarize import summarize

# Limits of what a page lists; it says where it leaves something out.
_MAX_SILOS = 200  # rows of the table of silos by components
_MAX_LISTED = 2000  # rows of the table of silos
_MAX_COMPONENTS = 100
_MAX_SOURCES = 24
_MAX_ROWS = 12  # in a notebook
_NOTHING = 1e-12  # in any unit: rounding of numbers around one
_SHADES = 5  # of confidence
# Runs before layout: tabs hide long tables, which then need no layout.
_EARLY = 'document.documentElement.classList.add("alive")'


def write_report(
    fusion: Fusion,
    path: str | os.PathLike[str],
    silos: Sequence[Posterior] | None = None,
    *,
    local: bool = True,
    min_cell: int = MIN_CELL,
    one_page: bool = False,
) -> Path:
    """Write an HTML report in one file that needs no network, completely or not at all.

    Parameters
    ----------
    fusion : Fusion
    path : str or path
    silos : sequence of Posterior, optional
        The posteriors that were fused, for a fusion with ``keep_silos=False``.
    local : bool
        Draw the silos' components. Without them, the page has none of their parameters.
    min_cell : int
        Of phenotypes: numbers of fewer patients are suppressed.
    one_page : bool
        A printable page with the phenotypes of a fusion of `klfusion.learners.MixedMixture` alone.

    Examples
    --------
    >>> import tempfile, klfusion as kf
    >>> rates = kf.families.Gamma()
    >>> a = kf.Posterior(rates, rates.natural(shape=[30, 900], rate=[10, 10]), name="a")
    >>> b = kf.Posterior(rates, rates.natural(shape=[910, 32], rate=[10, 10]), name="b")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(kf.fuse([a, b]), f"{folder}/fusion.html", silos=[a, b]).name
    'fusion.html'
    """
    check_flag("local", local)
    check_flag("one_page", one_page)
    check_integer("min_cell", min_cell, least=0)
    if one_page and not has_phenotypes(fusion.posterior):
        raise KLFusionError("one_page: expected a fusion of MixedMixture models, with a schema")
    if not local:
        fusion, silos = fusion.without_silos(), None
    return write_page(summarize(fusion, silos, min_cell=min_cell), path, one_page=one_page)


def write_page(
    summary: dict[str, Any], path: str | os.PathLike[str], *, one_page: bool = False
) -> Path:
    """Write the page of a summary, for callers that need both."""
    page = _environment().get_template("one_page.html").render(summary) if one_page else None
    write_atomically(path, [memoryview((page or render(summary)).encode())])
    return Path(path)


def render(summary: dict[str, Any]) -> str:
    """The page of a summary."""
    scripts = [_static("echarts.min.js"), _static("report.js")]
    path = None if summary["path"] is None else path_points(summary["path"])
    trace = trace_points(summary["trace"])
    evidence = evidence_points(summary["why"], summary["n_components"])
    data = {"path": path, "trace": trace, "map": summary["map"], "view": summary["view"]}
    data["evidence"] = evidence
    data["components"] = [component["n_silos"] for component in summary["components"]]
    template = _environment().get_template("report.html")
    return template.render(
        **summary,
        scripts=[Markup(script) for script in scripts],
        early=Markup(_EARLY),
        allowed=" ".join(f"'{_hash(script)}'" for script in [_EARLY, *scripts]),
        data=Markup(_json(data)),
        path_points=path,
        evidence=evidence,
        trace_points=trace,
        mapped_silos=_rows(summary["silos"], _MAX_SILOS),
        listed_silos=_rows(summary["silos"], _MAX_LISTED),
        shown_components=summary["components"][:_MAX_COMPONENTS],
        max_sources=_MAX_SOURCES,
        shade=_shade,
    )


def fragment(fusion: Fusion) -> str:
    """A fusion in a notebook: its main figures and a short table of components."""
    counts, rows = fusion.posterior.counts, []
    for g, contributions in enumerate(fusion.contributions.T[:_MAX_ROWS]):
        sizes = {"n_silos": int((contributions > 0).sum()), "n_local": int(contributions.sum())}
        count = None if counts is None else counts[g]
        rows.append({**sizes, "count": count, "sources": fusion.sources(g)})
    return _environment().get_template("fragment.html").render(fusion=fusion, rows=rows)


@cache
def _environment() -> Environment:
    how: dict[str, Any] = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    # Escaped, because names of silos are untrusted.
    how["finalize"] = lambda value: printable(value) if type(value) is str else value
    environment = Environment(loader=PackageLoader("klfusion.report"), autoescape=True, **how)
    environment.filters |= {"number": number, "count": count, "percent": percent}
    return environment


@cache
def _static(name: str) -> str:
    # Browsers normalise line ends before they hash a script.
    text = (files("klfusion.report") / "static" / name).read_text(encoding="utf-8")
    return "\n".join(text.splitlines()) + "\n"


@cache
def _hash(script: str) -> str:
    """A script's hash in the form of a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _json(data: dict[str, Any]) -> str:
    """JSON without characters that could end its HTML element."""
    text = json.dumps(_finite(data), allow_nan=False, separators=(",", ":"))
    for character in "<>&\x7f":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _finite(value: Any) -> Any:
    """JSON values with None for numbers that JSON lacks."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def number(value: float | None, digits: int = 4) -> str:
    """A number with a few digits and a true minus sign; a dash for None."""
    if value is None:
        return "–"
    if 0 < abs(value) < _NOTHING:
        return "≈ 0"
    text = f"{value:.{digits - 1}e}"
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        text = f"{value:,.{max(0, digits - len(str(int(abs(value)))))}f}"
    return text.replace("-", "−") if float(text.replace(",", "")) else "0"


def count(value: float | None) -> str:
    """A rounded count; expected counts may be fractional."""
    return "–" if value is None else f"{value:,.0f}"


def percent(probability: float) -> str:
    """A probability in percent, never rounded to certainty."""
    if 0.001 <= probability <= 0.999:
        return f"{100 * probability:.1f} %"
    return "< 0.1 %" if probability < 0.5 else "> 99.9 %"


def _rows(silos: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Silos with matches by component; of more than ``most`` silos, the extremes in order."""
    if len(silos) > most:
        order = sorted(range(len(silos)), key=lambda i: silos[i]["mean_divergence"] or 0.0)
        silos = [silos[i] for i in sorted(order[: most // 2] + order[-(most // 2) :])]
    worst = max((silo["mean_divergence"] or 0.0 for silo in silos), default=0.0)
    rows = []
    for silo in silos:
        share = (silo["mean_divergence"] or 0.0) / worst if worst else 0.0
        cells = {match["component"]: match for match in silo["matches"]}
        rows.append({**silo, "cells": cells, "share_of_worst": share})
    return rows


def _shade(confidence: float | None) -> int:
    """From 1, another component is as near, to 5, the match is clear or the only component."""
    if confidence is None:
        return _SHADES
    return 1 + min(_SHADES - 1, int(max(0.0, confidence) * _SHADES))
