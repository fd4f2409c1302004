"""Coverage and width of credible regions of fused components under heterogeneity."""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from joblib import Parallel, delayed
from rich.console import Console
from rich.table import Table
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import chi2, norm
from scipy.stats import f as f_distribution
from scipy.stats import t as student_t
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture
from threadpoolctl import threadpool_limits

import klfusion as kf
from experiments.simulation import FloatArray
from klfusion.pooling.pool import Pooling

matplotlib.use("Agg")
import matplotlib.pyplot as plt

DESCRIPTION = "coverage of credible regions of means and regression coefficients, per pooling"
HETEROGENEITY = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0)
LEVELS = (0.5, 0.8, 0.95)
POOLED = "pooled data"
POOLINGS: tuple[Pooling, ...] = ("auto", "average", "product", "hierarchical")
# First of consecutive seeds, none of which served development.
FIRST_SEED = 7000
_PRIOR_VARIANCE = 100.0  # of a regression coefficient
_STYLES = {
    "auto": ("#CC79A7", "s"),
    "average": ("#D55E00", "^"),
    "product": ("#009E73", "D"),
    "hierarchical": ("#0072B2", "o"),
    POOLED: ("#000000", "x"),
}


@dataclass(frozen=True)
class Setting:
    """Well-separated components in every silo, so that errors come from the pooling.

    Parameters
    ----------
    heterogeneity : float
        Standard deviation of a silo's means around the global ones; components have 0.7 to 1.4.
    model : {"mixture", "regression"}
        A regression is logistic, with one component of ``dim`` coefficients, which vary.
    n_silos, n_components, dim : int
    n_points : int
        Expected observations per component and silo.
    """

    heterogeneity: float
    model: str = "mixture"
    n_silos: int = 15
    n_components: int = 5
    dim: int = 2
    n_points: int = 60


def simulate(setting: Setting, rng: np.random.Generator) -> tuple[FloatArray, list[FloatArray]]:
    """True means (G, D), and the observations of each silo."""
    g, d = setting.n_components, setting.dim
    means = np.zeros((g, d))
    angle = 2.0 * np.pi * (np.arange(g) + rng.random()) / g
    means[:, 0], means[:, 1] = 20.0 * np.cos(angle), 20.0 * np.sin(angle)
    basis = np.linalg.qr(rng.normal(size=(g, d, d)))[0]
    half = basis * np.sqrt(rng.uniform(0.5, 2.0, size=(g, 1, d)))
    data = []
    for _ in range(setting.n_silos):
        local = rng.normal(means, setting.heterogeneity)
        which = rng.integers(g, size=g * setting.n_points)
        noise = rng.normal(size=(len(which), d))
        data.append(local[which] + np.einsum("nij,nj->ni", half[which], noise))
    return means, data


def fit(x: FloatArray, n_components: int, seed: int, name: str) -> kf.Posterior:
    """Variational inference with a weak prior that all silos share.

    The default prior of scikit-learn is the covariance of all observations of a silo. It is far
    wider than a component and dominates the posteriors of small ones.
    """
    dim = x.shape[1]
    model = BayesianGaussianMixture(
        n_components=n_components, random_state=seed, max_iter=500,
        mean_prior=np.zeros(dim), mean_precision_prior=1e-3,
        covariance_prior=np.eye(dim), degrees_of_freedom_prior=float(dim),
    )  # fmt: skip
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return kf.extract(model.fit(x), name=name)


def probabilities(posterior: kf.Posterior, true: FloatArray) -> FloatArray:
    """Probability of the smallest credible region of a mean that holds the true one, (G,).

    Under a Normal-Wishart the mean has a multivariate t distribution. Each true mean is compared
    with the nearest component.
    """
    p = posterior.params()
    nearest = np.linalg.norm(true[:, None] - p["mean"], axis=2).argmin(axis=1)
    dim = true.shape[1]
    freedom = p["dof"][nearest] - dim + 1.0
    difference = true - p["mean"][nearest]
    shape = p["scale_inv"][nearest] / (p["kappa"][nearest] * freedom)[:, None, None]
    square = np.einsum(
        "gi,gi->g", difference, np.linalg.solve(shape, difference[..., None])[..., 0]
    )
    return np.asarray(f_distribution.cdf(square / dim, dim, freedom))


def radii(posterior: kf.Posterior, true: FloatArray, level: float) -> FloatArray:
    """Geometric mean radius of each mean's region, (G,)."""
    p = posterior.params()
    nearest = np.linalg.norm(true[:, None] - p["mean"], axis=2).argmin(axis=1)
    dim = true.shape[1]
    freedom = p["dof"][nearest] - dim + 1.0
    shape = p["scale_inv"][nearest] / (p["kappa"][nearest] * freedom)[:, None, None]
    quantile = dim * f_distribution.ppf(level, dim, freedom)
    return np.asarray(np.sqrt(quantile) * np.linalg.det(shape) ** (0.5 / dim))


def simulate_regression(
    setting: Setting, rng: np.random.Generator
) -> tuple[FloatArray, list[tuple[FloatArray, FloatArray]]]:
    """True coefficients (1, D), and the columns and outcomes of each silo."""
    true = rng.uniform(-1.0, 1.0, size=(1, setting.dim))
    data = []
    for _ in range(setting.n_silos):
        own = rng.normal(true[0], setting.heterogeneity)
        x = rng.normal(size=(setting.n_points, setting.dim))
        x[:, 0] = 1.0
        data.append((x, (rng.random(len(x)) < expit(x @ own)).astype(np.float64)))
    return true, data


def fit_regression(data: tuple[FloatArray, FloatArray], name: str) -> kf.Posterior:
    """Laplace approximation of a logistic regression with a weak prior that all silos share."""
    x, y = data
    prior = np.eye(x.shape[1]) / _PRIOR_VARIANCE
    mean = np.zeros(x.shape[1])
    for _ in range(50):
        p = expit(x @ mean)
        precision = (x.T * (p * (1.0 - p))) @ x + prior
        step = np.linalg.solve(precision, x.T @ (y - p) - prior @ mean)
        mean = mean + step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-10:
            break
    names = [f"x{k}" for k in range(len(mean))]
    covariance = np.linalg.inv(precision)
    return kf.coefficients(mean, covariance, names, name=name, prior_sd=_PRIOR_VARIANCE**0.5)


def intervals(posterior: kf.Posterior, true: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Probability of the smallest interval that holds each true coefficient, and deviations."""
    p = posterior.params()
    deviation = np.sqrt(np.einsum("nii->ni", p["covariance"]))
    return np.asarray(chi2.cdf(((true - p["mean"]) / deviation) ** 2, 1))[0], deviation[0]


def run_one(setting: Setting, seed: int) -> dict[str, Any]:
    """One set of silos: for each pooling, credible levels of the truth and 95 % radii."""
    rng = np.random.default_rng([seed, round(1000 * setting.heterogeneity)])
    g, names = setting.n_components, [f"silo-{j}" for j in range(setting.n_silos)]
    if setting.model == "mixture":
        true, data = simulate(setting, rng)
        silos = [fit(x, g, seed, name) for x, name in zip(data, names, strict=True)]
        pooled = fit(np.concatenate(data), g, seed, POOLED)
    else:
        true, sets = simulate_regression(setting, rng)
        silos = [fit_regression(one, name) for one, name in zip(sets, names, strict=True)]
        x, y = (np.concatenate(parts) for parts in zip(*sets, strict=True))
        pooled = fit_regression((x, y), POOLED)

    def regions(posterior: kf.Posterior) -> tuple[FloatArray, FloatArray]:
        if setting.model == "mixture":
            return probabilities(posterior, true), radii(posterior, true, 0.95)
        found, deviation = intervals(posterior, true)
        return found, norm.ppf(0.975) * deviation

    found: dict[str, list[float]] = {}
    width: dict[str, float] = {}
    inside, against = regions(pooled)
    size = 0
    with threadpool_limits(1):
        for pooling in POOLINGS:
            fusion = kf.fuse(silos, pooling=pooling)
            own, radius = regions(fusion.posterior)
            found[pooling], width[pooling] = own.tolist(), float((radius / against).mean())
            size = fusion.n_components
    found[POOLED], width[POOLED] = inside.tolist(), 1.0
    return {**vars(setting), "seed": seed, "size": size, "found": found, "width": width}


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Coverage at each level, with standard errors over the runs, and widths."""
    rows = []
    cells = {(run["model"], run["n_silos"], run["heterogeneity"]) for run in runs}
    for model, n_silos, heterogeneity in sorted(cells):
        keys = {"model": model, "n_silos": n_silos, "heterogeneity": heterogeneity}
        own = [run for run in runs if keys.items() <= run.items()]
        for pooling in (*POOLINGS, POOLED):
            inside = np.array([run["found"][pooling] for run in own])
            width = float(np.mean([run["width"][pooling] for run in own]))
            for level in LEVELS:
                shares = (inside <= level).mean(axis=1)
                rows.append(
                    {
                        **keys, "pooling": pooling, "level": level,
                        "coverage": float(shares.mean()), "runs": len(own), "width": width,
                        "standard_error": float(shares.std(ddof=1) / np.sqrt(len(own))),
                    }
                )  # fmt: skip
    return rows


def figure(rows: list[dict[str, Any]], out: Path) -> None:
    """Coverage against heterogeneity, one panel per level; the dotted line is the level."""
    drawn, panels = plt.subplots(1, len(LEVELS), figsize=(12, 3.8), layout="constrained")
    for panel, level in zip(panels, LEVELS, strict=True):
        panel.axhline(level, color="#999999", linestyle=":")
        for pooling, (colour, marker) in _STYLES.items():
            own = [r for r in rows if r["pooling"] == pooling and r["level"] == level]
            panel.errorbar(
                [r["heterogeneity"] for r in own], [r["coverage"] for r in own],
                yerr=[2 * r["standard_error"] for r in own], color=colour, marker=marker,
                markersize=5, linewidth=1.4, capsize=2, label=pooling,
            )  # fmt: skip
        panel.set(title=f"{level:.0%} regions", xlabel="heterogeneity", ylim=(-0.03, 1.03))
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("share that contains the true mean")
    panels[0].legend(fontsize=8, frameon=False)
    for suffix in (".png", ".svg"):
        drawn.savefig(out / f"calibration{suffix}", dpi=150)
    plt.close(drawn)


def run(out: Path, seeds: int, n_jobs: int, settings: list[Setting]) -> list[dict[str, Any]]:
    """Run everything; write ``results.json`` and the figure of the first setting's model."""
    start = time.perf_counter()
    tasks = [(setting, FIRST_SEED + k) for k in range(seeds) for setting in settings]
    runs = Parallel(n_jobs=n_jobs)(delayed(run_one)(setting, seed) for setting, seed in tasks)
    rows = summary(runs)
    right = float(np.mean([run["size"] == run["n_components"] for run in runs]))
    protocol = {
        "seeds": seeds, "first_seed": FIRST_SEED, "right_size": right,
        "seconds": time.perf_counter() - start,
    }  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps({"settings": protocol, "rows": rows}, indent=1))
    drawn = settings[0].model, settings[0].n_silos
    figure([r for r in rows if (r["model"], r["n_silos"]) == drawn], out)
    return rows


def shown(rows: list[dict[str, Any]]) -> Table:
    """A table of coverage at 50 / 80 / 95 %, and of widths relative to pooled data's."""
    names = (*POOLINGS, POOLED)
    table = Table("model", "silos", "heterogeneity", *names, "width of auto")
    for model, n_silos, heterogeneity in dict.fromkeys(
        (r["model"], r["n_silos"], r["heterogeneity"]) for r in rows
    ):
        keys = {"model": model, "n_silos": n_silos, "heterogeneity": heterogeneity}
        own = [r for r in rows if keys.items() <= r.items()]
        cells = [
            " / ".join(f"{100 * r['coverage']:.1f}" for r in own if r["pooling"] == name)
            for name in names
        ]
        width = next(r["width"] for r in own if r["pooling"] == "auto")
        table.add_row(model, str(n_silos), f"{heterogeneity:g}", *cells, f"{width:.2f}")
    return table


def narrowest(n_silos: int, least: float = 0.93, gap: float = 0.0) -> dict[str, float]:
    """Width, over that of pooled data where silos agree, of the default and of any right interval.

    Silos have one location each, ``m_j ~ N(m, V + T)`` with ``V = 1`` known. An interval may depend
    on the variance of the locations. The narrowest on average at ``T = 0`` that covers ``least`` at
    every ``T`` is found numerically, or at zero and from ``gap`` on. Coverages are at any ``T``.
    """
    freedom = n_silos - 1
    square = np.exp(np.linspace(np.log(0.02), np.log(60.0), 90))  # sample variances
    edges = np.concatenate([[0.0], np.sqrt(square[1:] * square[:-1]), [np.inf]])
    between = np.concatenate([[0.0], np.exp(np.linspace(-3.0, 2.5, 25))])
    held = (between == 0.0) | (between >= gap)
    scale = np.sqrt(1.0 + between)[:, None]
    weights = np.diff(chi2.cdf(freedom * edges / scale**2, freedom), axis=1)

    def covered(half: FloatArray) -> FloatArray:
        return np.asarray((weights * (2.0 * norm.cdf(half / scale) - 1.0)).sum(axis=1))

    z, quantile = norm.ppf(0.975), student_t.ppf(0.975, freedom)
    default = np.sqrt(z**2 + quantile**2 * np.maximum(square - 1.0, 0.0))
    options: Any = {
        "jac": lambda _: weights[0], "method": "SLSQP", "options": {"maxiter": 500},
        "bounds": [(1e-3, None)] * len(square),
        "constraints": {
            "type": "ineq",
            "fun": lambda half: covered(half)[held] - least,
            "jac": lambda half: (weights * 2.0 * norm.pdf(half / scale) / scale)[held],
        },
    }  # fmt: skip
    best: Any = minimize(weights[0].dot, default, **options)
    found = covered(default)
    return {
        "narrowest": float(weights[0] @ best.x / z),
        "its_least_coverage": float(covered(best.x).min()),
        "default": float(weights[0] @ default / z),
        "least_coverage": float(found.min()),
        "most_coverage": float(found.max()),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m experiments calibration``."""
    parser.add_argument("--seeds", type=int, default=200, help="runs per heterogeneity")
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 is one per core")
    parser.add_argument("--bound", type=int, metavar="SILOS", help="only the narrowest interval")
    parser.add_argument("--gap", type=float, default=0.0, help="right at T = 0 and from this on")


def main(args: argparse.Namespace, console: Console) -> None:
    """Run everything, show the table."""
    if args.bound is not None:
        console.print(narrowest(args.bound, gap=args.gap))
        return
    kinds: list[dict[str, Any]] = [{"n_silos": n} for n in (15, 5)]
    regression = {"model": "regression", "n_components": 1, "dim": 4, "n_points": 1000}
    kinds += [{**regression, "n_silos": n} for n in (15, 5)]
    settings = [Setting(h, **kind) for kind in kinds for h in HETEROGENEITY]
    console.print(shown(run(args.out, args.seeds, args.jobs, settings)))
