"""`plot`: a fusion as a matplotlib figure, for notebooks and papers."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from klfusion.errors import MissingDependencyError
from klfusion.fusion.result import Fusion
from klfusion.posteriors.posterior import Posterior
from klfusion.report.charts import path_points
from klfusion.report.summarize import summarize

try:
    from matplotlib.figure import Figure
except ImportError as error:
    message = "plot needs matplotlib, which is not installed: pip install 'klfusion[plot]'"
    raise MissingDependencyError(message) from error

# The palette of Okabe and Ito, safe for colour-blind readers; the same as in the report.
_COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a7f00", "#7a7a7a"]
_MARKS = ["o", "s", "^", "D", "v", "P"]
_MAX_SILOS = 60  # rows with a name


def plot(fusion: Fusion, silos: Sequence[Posterior] | None = None) -> Any:
    """Plot size against penalty, silos by components, and the map of components.

    Arguments are those of `klfusion.report.write_report`. The figure is not registered with pyplot.

    Examples
    --------
    >>> import klfusion as kf
    >>> family = kf.families.Gamma()
    >>> posterior = kf.Posterior(family, family.natural(shape=[30, 900], rate=[10, 10]))
    >>> figure = plot(kf.fuse({"a": posterior, "b": posterior}))
    >>> [axes.get_title() for axes in figure.axes][:3]
    ['size against penalty', 'silo x component', 'local around global']
    """
    summary = summarize(fusion, silos)
    figure = Figure(figsize=(13, 4), layout="constrained")
    size, who, where = figure.subplots(1, 3)
    _size(size, summary)
    _contributions(who, fusion, summary)
    _map(where, summary["map"])
    return figure


def _size(axes: Any, summary: dict[str, Any]) -> None:
    axes.set(title="size against penalty", xlabel="penalty (nats)", ylabel="components")
    path = None if summary["path"] is None else path_points(summary["path"])
    if path is None:
        axes.text(0.5, 0.5, "the method has no path", ha="center", transform=axes.transAxes)
        return
    penalties, sizes = zip(*path["points"], strict=True)
    chosen = path["chosen"]
    at = None if chosen is None else (chosen["penalty"], chosen["n_components"])
    right = 1.5 * max(penalties[-1], at[0] if at else 0.0)
    axes.step([*penalties, right], [*sizes, sizes[-1]], where="post", color=_COLOURS[0])
    axes.set_xscale("log")
    if at is not None:
        axes.plot(*at, "o", mfc="none", mec=_COLOURS[5], mew=2, ms=10)
        place = {"xytext": (0, 10), "textcoords": "offset points", "ha": "center"}
        axes.annotate(f"{at[1]} components", at, **place)
    axes.set_ylim(0, None)


def _contributions(axes: Any, fusion: Fusion, summary: dict[str, Any]) -> None:
    axes.set(title="silo x component", xlabel="global component")
    sure = np.full((fusion.n_silos, fusion.n_components), np.nan)
    for row, silo in zip(sure, summary["silos"], strict=True):
        for match in silo["matches"]:
            value = match["confidence"]
            row[match["component"]] = 1.0 if value is None else max(0.0, value)
    scale = {"vmin": 0, "vmax": 1, "cmap": "viridis_r"}
    image = axes.imshow(sure, aspect="auto", interpolation="nearest", **scale)
    axes.figure.colorbar(image, ax=axes, label="confidence of the match")
    if fusion.n_silos <= _MAX_SILOS:
        # Matplotlib parses text between dollars as mathematics.
        names = [name.replace("$", r"\$") for name in fusion.silo_names]
        axes.set_yticks(range(fusion.n_silos), names, fontsize=7)
    else:
        axes.set_ylabel("silo")


def _map(axes: Any, places: dict[str, Any]) -> None:
    axes.set(title="local around global", xticks=[], yticks=[], aspect="equal")
    axes.set_xlabel("distance: log(1 + sqrt of symmetrised KL)")
    for g, (x, y) in enumerate(places["global"]):
        colour, mark = _COLOURS[g % 8], _MARKS[g // 8 % len(_MARKS)]
        of_g = np.array([p["at"] for p in places["local"] if p["component"] == g]).reshape(-1, 2)
        for at in of_g:
            axes.plot([x, at[0]], [y, at[1]], color=colour, lw=0.6, alpha=0.4)
        axes.plot(*of_g.T, mark, color=colour, ms=4, alpha=0.8)
        axes.plot(x, y, mark, mfc="white", mec=colour, mew=2, ms=10)
        axes.annotate(str(g), (x, y), ha="center", va="center", fontsize=7)
