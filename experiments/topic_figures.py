"""Figures of the topics experiment: colour-blind safe, as PNG and SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from experiments.figures import COLOURS

MARKERS = "o^sDvPX*<>"


def draw(out: Path, runs: list[dict[str, Any]], curve: list[dict[str, Any]]) -> None:
    """Log-likelihood against the time of fusion, and against the number of topics."""
    _times(out, [row for row in runs if row["split"] == "by subject"])
    _sizes(out, curve, [row for row in runs if row["split"] == "by subject"])


def _times(out: Path, runs: list[dict[str, Any]]) -> None:
    """The paper's scatter plot; a pooled model has no fusion time and is a line."""
    figure, panel = plt.subplots(figsize=(8, 4.5), layout="constrained")
    methods = list(dict.fromkeys(row["method"] for row in runs))
    for number, method in enumerate(methods):
        own = [row for row in runs if row["method"] == method]
        colour, y = COLOURS[number % len(COLOURS)], [row["log_likelihood"] for row in own]
        if method.startswith("pooled"):
            style = ":" if "ten" in method else "--"
            panel.axhline(sum(y) / len(y), color="#777777", linestyle=style, label=method)
        else:
            x = [row["cpu_seconds"] for row in own]
            panel.scatter(x, y, color=colour, marker=MARKERS[number], label=method)
    panel.set(
        xlabel="CPU seconds to fuse", ylabel="log-likelihood of a held-out word", xscale="log"
    )
    figure.legend(loc="outside right upper", fontsize=7)
    _save(figure, out, "time")


def _sizes(out: Path, curve: list[dict[str, Any]], runs: list[dict[str, Any]]) -> None:
    figure, panel = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
    for within, label, colour, marker in (
        (False, "a silo's topics stay separate", COLOURS[0], "o"),
        (True, "topics of one silo may merge", COLOURS[1], "^"),
    ):
        own = [row for row in curve if row["within_silos"] == within]
        x, y = [row["topics"] for row in own], [row["log_likelihood"] for row in own]
        panel.plot(x, y, color=colour, marker=marker, label=label)
    seed = runs[0]["seed"]
    pooled = [r for r in runs if r["method"].startswith("pooled") and r["seed"] == seed]
    x, y = [row["topics"] for row in pooled], [row["log_likelihood"] for row in pooled]
    panel.scatter(x, y, color="black", marker="x", label="pooled LDA", zorder=3)
    panel.set(xlabel="global topics", ylabel="log-likelihood of a held-out word")
    panel.legend()
    _save(figure, out, "sizes")


def _save(figure: Any, out: Path, name: str) -> None:
    for kind in ("png", "svg"):
        figure.savefig(out / f"{name}.{kind}", dpi=130)
    plt.close(figure)
