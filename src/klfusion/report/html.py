"""`write_report`: the summary of a fusion as one self-contained HTML page."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from klfusion import _files
from klfusion.fusion import Fusion
from klfusion.report.charts import path_chart, trace_chart
from klfusion.report.summarize import summarize

# What a page can show and still be read; it says so where it leaves something out.
_MAX_SILOS = 200
_MAX_COMPONENTS = 100
_MAX_SOURCES = 24
_SHADES = 5


def write_report(fusion: Fusion, path: str | os.PathLike[str]) -> Path:
    """Write an HTML report, whole or not at all, that needs no network and runs no script.

    Parameters
    ----------
    fusion : Fusion
    path : str or path
        An existing file is replaced.

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
    ...     write_report(kf.fuse([a, b]), f"{folder}/fusion.html").name
    'fusion.html'
    """
    page = render(summarize(fusion))
    _files.write_atomically(path, [memoryview(page.encode())])
    return Path(path)


def render(summary: dict[str, Any]) -> str:
    """Turn a summary into a page."""
    environment = Environment(
        loader=PackageLoader("klfusion.report"),
        autoescape=True,  # names of silos come from outside
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "count": count}
    silos = _shown_silos(summary["silos"])
    return environment.get_template("report.html").render(
        **summary,
        trace_chart=trace_chart(summary["trace"]),
        path_chart=None if summary["path"] is None else path_chart(summary["path"]),
        shown_silos=_rows(silos),
        shown_components=summary["components"][:_MAX_COMPONENTS],
        max_sources=_MAX_SOURCES,
        shade=_shades(silos),
    )


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


def _shown_silos(silos: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All silos, or the best and the worst matched ones of very many, each in their order."""
    if len(silos) <= _MAX_SILOS:
        return silos
    misfit = [silo["mean_divergence"] or 0.0 for silo in silos]
    order = sorted(range(len(silos)), key=misfit.__getitem__)
    half = _MAX_SILOS // 2
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


def _shades(silos: list[dict[str, Any]]) -> Any:
    """Make a function from a divergence to a shade, 1 (far) to 5 (near), in equal log-steps."""
    found = [match["divergence"] for silo in silos for match in silo["matches"]]
    positive = [math.log(value) for value in found if value]
    low, high = min(positive, default=0.0), max(positive, default=0.0)

    def shade(divergence: float | None) -> int:
        if not divergence or high == low:
            return _SHADES
        place = (high - math.log(divergence)) / (high - low)
        return 1 + min(_SHADES - 1, int(place * _SHADES))

    return shade
