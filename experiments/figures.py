"""Figures of the simulated experiments: colour-blind safe, as PNG and SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import Ellipse

import klfusion as kf
from experiments.simulation import FloatArray, Simulation, fit_mixture, simulate

# The palette of Okabe and Ito, with a marker per line: no line depends on colour alone.
STYLES = {
    "klfusion": ("#0072B2", "o"),
    "klfusion, random effects": ("#56B4E9", "s"),
    "paper's letter": ("#D55E00", "^"),
    "SPAHM": ("#009E73", "D"),
    "DP clustering": ("#CC79A7", "v"),
    "pooled VI, one start": ("#E69F00", "*"),
    "pooled VI, true size": ("#000000", "x"),
    "true assignment": ("#999999", "+"),
}
SIZE_IS_GIVEN = {"pooled VI, one start", "pooled VI, true size", "true assignment"}
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000"]


def curves(rows: list[dict[str, Any]], out: Path) -> None:
    """Hausdorff distance and size error against separation, and against noise."""
    for axis, fixed, at in (("separation", "noise", 0.5), ("noise", "separation", 0.5)):
        figure, panels = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
        for method, (colour, marker) in STYLES.items():
            own = [r for r in rows if r["method"] == method and r[fixed] == at]
            own.sort(key=lambda r: r[axis])
            x = [r[axis] for r in own]
            for panel, value in zip(panels, ("hausdorff", "size_error"), strict=True):
                if own and not (value == "size_error" and method in SIZE_IS_GIVEN):
                    panel.errorbar(
                        x, [r[value] for r in own], yerr=[r[f"{value}_se"] for r in own],
                        color=colour, marker=marker, markersize=5, linewidth=1.4, capsize=2,
                        label=method,
                    )  # fmt: skip
        for panel, label in zip(panels, ("Hausdorff distance", "error of the size"), strict=True):
            panel.set(xlabel=f"{axis} ({fixed} {at})", ylabel=label)
            panel.set_yscale("log" if label.startswith("H") else "symlog")
            panel.grid(alpha=0.25)
            panel.spines[["top", "right"]].set_visible(False)
        panels[0].legend(fontsize=8, frameon=False)
        _save(figure, out / axis)


def illustration(out: Path) -> None:
    """The paper's figures 6 and 7 in two dimensions: a silo, the clustering, the fused model."""
    settings = Simulation(separation=1.0, noise=0.15, n_components=3, dim=2, n_silos=10)
    silos = simulate(settings, np.random.default_rng(17))
    models = {
        f"silo-{j}": fit_mixture(x, len(c), seed=0, n_init=4)
        for j, (x, c) in enumerate(zip(silos.data, silos.components, strict=True))
    }
    fusion = kf.fuse(models)
    figure, (left, middle, right) = plt.subplots(
        1, 3, figsize=(13, 4.2), layout="constrained", sharex=True, sharey=True
    )
    first = models["silo-0"]
    left.scatter(*silos.data[0].T, s=4, color="#E69F00", alpha=0.6, label="observations")
    _ellipses(left, silos.means, silos.covariances, "#D55E00", "true global components")
    _ellipses(left, first.means_, first.covariances_, "#0072B2", "one silo's components")
    left.set_title("One silo and its fit")
    for name, labels in zip(fusion.silo_names, fusion.labels, strict=True):
        model = models[name]
        for k, g in enumerate(labels):
            if g < 0:  # unmatched
                continue
            colour = COLOURS[g % len(COLOURS)]
            _ellipses(middle, model.means_[k : k + 1], model.covariances_[k : k + 1], colour)
    middle.set_title(f"Local components, matched: {fusion.n_components} clusters")
    fused = fusion.model()
    _ellipses(right, silos.means, silos.covariances, "#D55E00", "true")
    _ellipses(right, fused.means_, fused.covariances_, "#0072B2", "fused")
    right.set_title("Fused model")
    for panel in (left, right):
        panel.legend(fontsize=8, frameon=False)
    for panel in (left, middle, right):
        panel.set_aspect("equal", adjustable="box")
        panel.spines[["top", "right"]].set_visible(False)
    _save(figure, out / "illustration")


def _ellipses(
    panel: Any, means: FloatArray, covariances: FloatArray, colour: str, label: str | None = None
) -> None:
    """Ellipses of two standard deviations with their centres."""
    for mean, covariance in zip(means, covariances, strict=True):
        values, vectors = np.linalg.eigh(covariance)
        width, height = 4.0 * np.sqrt(values)
        angle = float(np.degrees(np.arctan2(vectors[1, 0], vectors[0, 0])))
        panel.add_patch(
            Ellipse(mean, width, height, angle=angle, fill=False, color=colour, linewidth=1.3)
        )
    panel.scatter(*means.T, marker="*", s=50, color=colour, label=label, zorder=3)


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    for suffix in (".png", ".svg"):
        figure.savefig(path.with_suffix(suffix), dpi=150)
    plt.close(figure)
