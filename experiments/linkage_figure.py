"""The picture of `docs/how-it-works.md`: densities of *same* and *different*, and the evidence.

``python -m experiments probabilities --picture docs/images/linkage.png`` draws it. Eight sites have
images of some of the ten digits each, as the first eight principal components of all. Each fits a
mixture with a component per digit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.mixture import BayesianGaussianMixture

import klfusion as kf
from experiments.simulation import FloatArray
from klfusion.model_size.evidence import leave_one_out, pairs_within
from klfusion.model_size.linked import Linked, at_labels
from klfusion.pooling.pool import matched

SITES = 8
DIGITS = 4  # of each site
DIRECTIONS = 8
BLUE, ORANGE = "#0072B2", "#D55E00"  # of Okabe and Ito


def sites() -> dict[str, kf.Posterior]:
    """A mixture of each site's images."""
    images, digit = load_digits(return_X_y=True)
    x = PCA(DIRECTIONS, random_state=0).fit_transform(images)
    rng, found = np.random.default_rng(3), {}
    site = rng.integers(SITES, size=len(x))
    for j in range(SITES):
        own = (site == j) & np.isin(digit, rng.permutation(10)[:DIGITS])
        model = BayesianGaussianMixture(n_components=DIGITS, random_state=0, n_init=3).fit(x[own])
        found[f"site-{j}"] = kf.extract(model, f"site-{j}")
    return found


def model_of(fusion: kf.Fusion) -> Linked:
    """The default's model of a fusion."""
    assert fusion.silos is not None and isinstance(fusion.settings.method, kf.Auto)
    units = matched(fusion.silos, fusion.labels, fusion.settings.weight_array())
    problem = fusion.settings.method.compared_for_linkage(units.problem)
    problem = problem.with_variation(fusion.settings.variation_array(problem.family))
    return at_labels(problem, fusion.settings.method.linkage, units.labels)


def densities(linked: Linked, panel: Any) -> None:
    """Log-distances within silos and within clusters, with their densities."""
    different, same = linked.different, linked.same
    assert different is not None and same is not None
    apart, weights = pairs_within(linked.problem)
    _, matches, _ = leave_one_out(linked.problem, linked.labels)
    low, high = min(matches.min(), apart.min()) - 1.0, apart.max() + 1.0
    edges, x = np.linspace(low, high, 34), np.linspace(low, high, 400)
    alike = np.ones(len(matches))
    curves: list[tuple[FloatArray, FloatArray, FloatArray, str, str]] = [
        (matches, alike, same.log_density(x), ORANGE, "same: matched components, f1"),
        (apart, weights, different.log_density(x), BLUE, "different: pairs within silos, f0"),
    ]
    for values, each, log_density, colour, label in curves:
        panel.hist(values, edges, weights=each, density=True, color=colour, alpha=0.3)
        panel.plot(x, np.exp(log_density), color=colour, linewidth=2, label=label)
    panel.set(xlabel="log-distance", ylabel="density", ylim=(0.0, 2.4))
    panel.legend(frameon=False, fontsize=8, loc="upper center")


def evidence(fusion: kf.Fusion, panel: Any) -> None:
    """Log-evidence against size."""
    path = fusion.path
    assert path is not None and path.evidence is not None
    panel.plot(path.n_components, path.evidence, color=BLUE, marker="o", markersize=3)
    best = int(path.evidence.argmax())
    panel.plot(path.n_components[best], path.evidence[best], "o", ms=11, mfc="none", mec=ORANGE)
    panel.annotate(
        f"{path.n_components[best]} components",
        (path.n_components[best], path.evidence[best]),
        (10, 0), textcoords="offset points", color=ORANGE, va="center",
    )  # fmt: skip
    panel.set(xlabel="global components", ylabel="log-evidence (nats)")


def draw(out: Path) -> kf.Fusion:
    """Fuse the sites and draw."""
    fusion = kf.fuse(sites(), progress=False)
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    densities(model_of(fusion), panels[0])
    evidence(fusion, panels[1])
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.2)
    figure.savefig(out, dpi=110)
    plt.close(figure)
    return fusion
