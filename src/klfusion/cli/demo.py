"""The demo: ten sites fuse models of handwritten digits without sharing images."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from scipy.fft import dctn
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.cluster import contingency_matrix
from sklearn.mixture import BayesianGaussianMixture
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

import klfusion as kf
from klfusion._utils.arrays import FloatArray, IntArray

N_SITES = 10
# Site i has the digits i, i + 1 and i + 3 modulo 10, so that three sites have each digit.
DIGITS_OF_SITE = [[(site + k) % 10 for k in (0, 1, 3)] for site in range(N_SITES)]
LOW_FREQUENCIES = np.add.outer(np.arange(8), np.arange(8)) < 5  # 15 of 64
N_FEATURES = int(LOW_FREQUENCIES.sum())


@dataclass(frozen=True)
class Score:
    """Quality of a model on held-out images of all ten digits."""

    log_likelihood: float
    rand_index: float
    purity: float


@dataclass(frozen=True)
class Result:
    """Result of the demo."""

    fusion: kf.Fusion
    report: Path
    fused: Score
    pooled: Score
    sites: list[Score]
    seconds: dict[str, float]


def features(images: FloatArray) -> FloatArray:
    """Low frequencies (n, 15) of each image; the transform is fixed, so no data is shared."""
    return np.asarray(dctn(images, axes=(1, 2), norm="ortho")[:, LOW_FREQUENCIES])


def fit(x: FloatArray, n_components: int, n_init: int) -> Any:
    """Fit a mixture with a prior that all sites share: 8 per pixel, standard deviation 8."""
    model = BayesianGaussianMixture(
        n_components=n_components,
        mean_prior=features(np.full((1, 8, 8), 8.0))[0],
        mean_precision_prior=0.01,
        covariance_prior=8.0**2 * np.eye(N_FEATURES),
        degrees_of_freedom_prior=N_FEATURES + 2,
        n_init=n_init,
        max_iter=1000,
        random_state=0,
    )
    with threadpool_limits(limits=1):  # threads slow down a problem this small
        return model.fit(x)


def split() -> tuple[list[FloatArray], FloatArray, IntArray]:
    """Training images per site; held-out images and their digits."""
    images, digits = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(
        features(images.reshape(-1, 8, 8)), digits, test_size=0.25, stratify=digits, random_state=0
    )
    parts: list[list[FloatArray]] = [[] for _ in range(N_SITES)]
    for digit in range(10):
        owners = [site for site in range(N_SITES) if digit in DIGITS_OF_SITE[site]]
        for site, part in zip(owners, np.array_split(x[y == digit], len(owners)), strict=True):
            parts[site].append(part)
    return [np.concatenate(part) for part in parts], x_test, y_test


def score(model: Any, x: FloatArray, y: IntArray) -> Score:
    """Held-out log-likelihood, and agreement of the components with the digits."""
    found = model.predict(x)
    purity = contingency_matrix(y, found).max(axis=0).sum() / len(y)
    return Score(float(model.score(x)), float(adjusted_rand_score(y, found)), float(purity))


def run(out: Path, *, quick: bool = False, say: Callable[[str], None] = lambda _: None) -> Result:
    """Fit at ten sites, fuse their files, compare; write all files into ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    n_init = 1 if quick else 5
    x_sites, x_test, y_test = split()
    seconds = {}

    start = perf_counter()
    models, files, posteriors = [], [], []
    for site, x in enumerate(x_sites):
        name = f"site-{site + 1:02d}"
        model = fit(x, len(DIGITS_OF_SITE[site]), n_init)
        posteriors.append(kf.extract(model, name=name))
        kf.save(out / f"{name}.safetensors", posteriors[-1])
        files.append(out / f"{name}.safetensors")
        say(f"{name} fitted {len(x)} images of the digits {DIGITS_OF_SITE[site]}")
        models.append(model)
    seconds["sites"] = perf_counter() - start

    start = perf_counter()
    fusion = kf.fuse(files)  # its only input
    seconds["fusion"] = perf_counter() - start
    kf.save(out / "global.safetensors", fusion)
    report = Path(fusion.report(str(out / "fusion.html"), silos=posteriors))
    say(f"fused the ten files: {fusion}")

    start = perf_counter()
    pooled = fit(np.concatenate(x_sites), fusion.n_components, n_init)
    seconds["pooled"] = perf_counter() - start
    say("fitted all images in one place, for comparison")

    fused, pooled, *sites = (score(m, x_test, y_test) for m in (fusion.model(), pooled, *models))
    return Result(fusion, report, fused, pooled, sites, seconds)
