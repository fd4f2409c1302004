"""`write_report`: the summary of a fusion as one self-contained HTML page."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from klfusion.fusion.result import Fusion
from klfusion.io import atomic as _files
from klfusion.posteriors.posterior import Posterior
from klfusion.report.charts import path_points, trace_points
from klfusion.report.summarize import summarize

# What a page can show and still be read; it says so where it leaves something out.
_MAX_SILOS = 200  # in the map, which has a column for every component
_MAX_LISTED = 2000  # in the table of silos
_MAX_COMPONENTS = 100
_MAX_SOURCES = 24
_MAX_ROWS = 12  # in a notebook
_SHADES = 5
# Before anything is laid out: the page has tabs, and long tables behind them need not be.
_EARLY = 'document.documentElement.classList.add("alive")'


def write_report(
    fusion: Fusion, path: str | os.PathLike[str], silos: Sequence[Posterior] | None = None
) -> Path:
    """Write an HTML report, whole or not at all, that needs no network.

    Parameters
    ----------
    fusion : Fusion
    path : str or path
        An existing file is replaced.
    silos : sequence of Posterior, optional
        What was fused: a fusion does not keep it, and the map of local components needs it to be
        more than distances from each to its match.

    Returns
    -------
    pathlib.Path

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
    page = render(summarize(fusion, silos))
    _files.write_atomically(path, [memoryview(page.encode())])
    return Path(path)


def render(summary: dict[str, Any]) -> str:
    """Turn a summary into a page."""
    scripts = [_static("echarts.min.js"), _static("report.js")]
    path = None if summary["path"] is None else path_points(summary["path"])
    trace = trace_points(summary["trace"])
    data = {
        "path": path,
        "trace": trace,
        "map": summary["map"],
        "view": summary["view"],
        "components": [component["n_silos"] for component in summary["components"]],
    }
    return (
        _environment()
        .get_template("report.html")
        .render(
            **summary,
            scripts=[Markup(script) for script in scripts],  # ours, not from outside
            early=Markup(_EARLY),
            allowed=" ".join(f"'{_hash(script)}'" for script in [_EARLY, *scripts]),
            data=Markup(_json(data)),
            path_points=path,
            trace_points=trace,
            mapped_silos=_rows(_best_and_worst(summary["silos"], _MAX_SILOS)),
            listed_silos=_rows(_best_and_worst(summary["silos"], _MAX_LISTED)),
            shown_components=summary["components"][:_MAX_COMPONENTS],
            max_sources=_MAX_SOURCES,
            shade=_shade,
        )
    )


def fragment(fusion: Fusion) -> str:
    """What a notebook shows of a fusion: the facts and a short table, escaped like the page."""
    return (
        _environment()
        .get_template("fragment.html")
        .render(
            fusion=fusion,
            rows=[
                {
                    "n_silos": int((contributions > 0).sum()),
                    "n_local": int(contributions.sum()),
                    "count": None
                    if fusion.posterior.counts is None
                    else fusion.posterior.counts[g],
                    "sources": fusion.sources(g),
                }
                for g, contributions in enumerate(fusion.contributions.T[:_MAX_ROWS])
            ],
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("klfusion.report"),
        autoescape=True,  # names of silos come from outside
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "count": count}
    return environment


@cache
def _static(name: str) -> str:
    # As a browser sees it: line ends count in a hash.
    text = (files("klfusion.report") / "static" / name).read_text(encoding="utf-8")
    return "\n".join(text.splitlines()) + "\n"


@cache
def _hash(script: str) -> str:
    """What the page's policy calls a script: nothing else may run on it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _json(data: dict[str, Any]) -> str:
    """JSON that cannot end the element it stands in, whatever the names in it."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def number(value: float | None, digits: int = 4) -> str:
    """A number as people read it: a few digits, a true minus sign; a dash for none."""
    if value is None:
        return "–"
    if value != 0 and not 1e-3 <= abs(value) < 1e6:
        text = f"{value:.{digits - 1}e}"
    else:
        whole = len(str(int(abs(value))))
        text = f"{value:,.{max(0, digits - whole)}f}"
    return text.replace("-", "−") if float(text.replace(",", "")) else "0"


def count(value: float | None) -> str:
    """A number of things, which may be fractional, rounded."""
    return "–" if value is None else f"{value:,.0f}"


def _best_and_worst(silos: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """All silos, or the best and the worst matched ones of very many, each in their order."""
    if len(silos) <= most:
        return silos
    misfit = [silo["mean_divergence"] or 0.0 for silo in silos]
    order = sorted(range(len(silos)), key=misfit.__getitem__)
    half = most // 2
    return [silos[i] for i in sorted(order[:half] + order[-half:])]


def _rows(silos: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Silos with their matches by component and their misfit as a share of the largest."""
    worst = max((silo["mean_divergence"] or 0.0 for silo in silos), default=0.0)
    return [
        {
            **silo,
            "cells": {match["component"]: match for match in silo["matches"]},
            "misfit": (silo["mean_divergence"] or 0.0) / worst if worst else 0.0,
        }
        for silo in silos
    ]


def _shade(confidence: float | None) -> int:
    """From 1 (another component is as near) to 5 (unmistakable, or there is no other)."""
    if confidence is None:
        return _SHADES
    return 1 + min(_SHADES - 1, int(max(0.0, confidence) * _SHADES))
