"""Figures of the network experiment: entropy by digit, images by entropy, accuracy by size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from experiments.images import Images

_COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
_FUSED = "fused, size chosen"
_N_SHOWN = 12  # images in a row of figure 1


def draw(rows: list[dict[str, Any]], networks: dict[str, Any], images: Images, out: Path) -> None:
    """Draw all figures; those by image and by digit show the first split."""
    first = [row for row in rows if row["split"] == rows[0]["split"]]
    accuracy_by_size(rows, out)
    entropy_by_digit(first, out)
    sorted_images(networks, images, out)


def accuracy_by_size(rows: list[dict[str, Any]], out: Path) -> None:
    """Accuracy of fused networks against their number of units, one line per split."""
    fused = [r for r in rows if r["method"].startswith("fused") and np.ndim(r["units"]) == 0]
    if not fused:
        return
    figure, panel = plt.subplots(figsize=(6, 4), layout="constrained")
    for number, split in enumerate(sorted({r["split"] for r in fused})):
        own = sorted((r["units"], r["accuracy"]) for r in fused if r["split"] == split)
        chosen = next(r for r in fused if r["split"] == split and r["method"] == _FUSED)
        colour = _COLOURS[number % len(_COLOURS)]
        panel.plot(*zip(*own, strict=True), marker="o", color=colour, label=f"split {split}")
        panel.plot(chosen["units"], chosen["accuracy"], marker="*", markersize=14, color=colour)
    panel.set(xlabel="hidden units of the fused network (star: chosen)", ylabel="accuracy, %")
    panel.legend(frameon=False, fontsize=8)
    _save(figure, out / "accuracy")


def entropy_by_digit(rows: list[dict[str, Any]], out: Path) -> None:
    """The paper's figure 5: entropy by digit minus the mean over the test set."""
    chosen = [r for r in rows if r["method"].startswith("silo") or r["method"] == _FUSED]
    figure, panel = plt.subplots(figsize=(9, 4), layout="constrained")
    for number, row in enumerate(chosen):
        values = np.array([*row["entropy_by_digit"], *row.get("font_entropy_by_digit", [])])
        fused = row["method"] == _FUSED
        panel.step(
            np.arange(len(values)), values - row["entropy"], where="mid",
            color="#000000" if fused else _COLOURS[number % len(_COLOURS)],
            linewidth=2.4 if fused else 1.2, label=row["method"],
        )  # fmt: skip
    n = len(chosen[0]["entropy_by_digit"]) if chosen else 0
    fonts = [f"font {k}" for k in range(len(values) - n)]
    panel.set_xticks(np.arange(len(values)), [*map(str, range(n)), *fonts], rotation=60, fontsize=8)
    panel.set_ylabel("entropy minus its mean on the test set")
    panel.axhline(0.0, color="#999999", linewidth=0.8)
    panel.legend(frameon=False, fontsize=8)
    _save(figure, out / "entropy")


def sorted_images(networks: dict[str, Any], images: Images, out: Path) -> None:
    """The paper's figure 1: images by the entropy of a local network and of the fused one."""
    x = images.test[:1000]
    if images.fonts is not None:
        some = np.linspace(0, len(images.fonts) - 1, 1000).astype(int)
        x = np.concatenate([x, images.fonts[some]])
    drawn, side = images.pixels(x), int(np.sqrt(x.shape[1]))
    local = next(name for name in networks if name.startswith("silo"))
    figure, grid = plt.subplots(4, _N_SHOWN, figsize=(_N_SHOWN, 4.6), layout="constrained")
    for block, name in enumerate((local, _FUSED)):
        order = np.argsort(networks[name].entropy(x).total, kind="stable")
        for line, some in enumerate((order[:_N_SHOWN], order[-_N_SHOWN:])):
            for panel, row in zip(grid[2 * block + line], some, strict=True):
                panel.imshow(drawn[row].reshape(side, side), cmap="gray_r")
                panel.set_xticks([])
                panel.set_yticks([])
            which = "least" if line == 0 else "most"
            grid[2 * block + line, 0].set_ylabel(f"{name}\n{which} entropy", fontsize=7)
    _save(figure, out / "images")


def _save(figure: Any, path: Path) -> None:
    for suffix in (".png", ".svg"):
        figure.savefig(path.with_suffix(suffix), dpi=120)
    plt.close(figure)
