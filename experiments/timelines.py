"""Labels of sequences over time as coloured bars: human labels above the model's."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import Patch

IntArray = NDArray[np.intp]
FRAMES_PER_SECOND = 10.0


def draw(
    out: Path, truth: IntArray, found: IntArray, lengths: list[int], exercises: list[str]
) -> None:
    """One panel per sequence; the colour of a state is its most frequent exercise.

    Hatching distinguishes states of the same exercise.
    """
    colours = plt.get_cmap("tab20")(np.linspace(0.0, 1.0, 20))[: len(exercises)]
    counts = np.zeros((int(found.max()) + 1, len(exercises)), dtype=np.intp)
    np.add.at(counts, (found, truth), 1)
    main = counts.argmax(axis=1)
    nth = np.array([int((main[:k] == main[k]).sum()) for k in range(len(main))])
    hatches = ["", "///", "...", "xxx", "|||", "ooo"]
    figure, panels = plt.subplots(len(lengths), 1, figsize=(12, 8.5), layout="constrained")
    edges = np.cumsum([0, *lengths])
    for number, panel in enumerate(np.atleast_1d(panels)):
        rows = slice(edges[number], edges[number + 1])
        for values, base in ((truth[rows], 1.0), (found[rows], 0.0)):
            starts = np.concatenate([[0], np.flatnonzero(np.diff(values)) + 1, [len(values)]])
            for a, b in pairwise(starts):
                label = int(values[a])
                model = base == 0.0
                panel.barh(
                    base, (b - a) / FRAMES_PER_SECOND, left=a / FRAMES_PER_SECOND, height=0.9,
                    color=colours[main[label] if model else label], edgecolor="white",
                    linewidth=0.6, hatch=hatches[nth[label] % len(hatches)] if model else "",
                )  # fmt: skip
        panel.set_yticks([0.0, 1.0], ["fused", "human"])
        panel.set_title(f"sequence {number + 1}", fontsize=9, loc="left")
        panel.set_xlim(0, max(lengths) / FRAMES_PER_SECOND)
        panel.spines[["top", "right", "left"]].set_visible(False)
    panel.set_xlabel("seconds")
    keys = [
        Patch(color=colour, label=name) for colour, name in zip(colours, exercises, strict=True)
    ]
    figure.legend(handles=keys, loc="outside right upper", fontsize=9, frameon=False)
    for suffix in (".png", ".svg"):
        figure.savefig((out / "timelines").with_suffix(suffix), dpi=130)
    plt.close(figure)
