"""A round of networks, and a second one of statistics for a new last layer.

Site ``b`` answers the second request when the file ``go`` exists.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import klfusion as kf
from klfusion.federation import Round

NAMES = ("a", "b")
FOLDER = Path(os.environ.get("HEADS_FOLDER", "."))
SHAPES = {"fc1.weight": (8, 64), "fc1.bias": (8,), "fc2.weight": (10, 8), "fc2.bias": (10,)}
_PAUSE = 0.05  # seconds between two looks for a file


def rows(name):
    """Digits of a site: five classes that the other site has not."""
    x, y = load_digits(return_X_y=True)
    own = y % len(NAMES) == NAMES.index(name)
    return x[own] / 16.0, y[own]


def asked(site, request):
    """Note that a site was asked, where a test looks for it."""
    with (FOLDER / f"asked-{site.name}").open("a", encoding="utf-8") as file:
        file.write(f"{request}\n")


def fit(site):
    """A network with random weights, which stands for a trained one."""
    asked(site, "fit")
    rng = np.random.default_rng(NAMES.index(site.name))
    return {key: (rng.normal(size=n), np.full(n, 0.1)) for key, n in SHAPES.items()}


def second(fused, site):
    """Statistics of the last hidden layer of the fused network."""
    asked(site, "second")
    while site.name == "b" and not (FOLDER / "go").exists():
        time.sleep(_PAUSE)
    return kf.head_statistics(fused, *rows(site.name), name=site.name)


ROUND = Round(
    name="heads",
    fit=fit,
    second=second,
    combine=lambda fusion, heads: kf.fuse(heads),
    silos=NAMES,
    timeout=90.0,
)

if __name__ == "__main__" and "pytest" not in sys.modules:
    from klfusion.federation.nvflare import run_site

    run_site(ROUND)
