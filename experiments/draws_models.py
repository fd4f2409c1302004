"""Models of posteriordb in NumPyro, their data dealt to sites, and NUTS at each.

A linear regression depends on its data by a QR decomposition, which is what a site's sampler gets:
the same density, of one shape for all sites, so that it is compiled once. Coefficients are sampled
in the directions of the decomposition.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp
from numpyro.infer.hmc import hmc
from scipy import stats
from scipy.special import log_expit
from sklearn.cluster import KMeans

from experiments import data
from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.draws.transforms import Simplex

CHAINS, WARMUP = 4, 500
CAUCHY = 2.5  # scale of the half-Cauchy prior of kidscore models
Draws = dict[str, FloatArray]  # (chains, draws, ...)


class Prior(NamedTuple):
    """Precisions of Normal priors of coefficients and noise; whether the noise is Cauchy."""

    beta: float = 0.0
    sigma: float = 0.0
    cauchy: float = 0.0

    def for_silos(self) -> dict[str, Any]:
        """As `klfusion.from_draws` takes it."""
        found: dict[str, Any] = {}
        if self.beta:
            found["beta"] = self.beta**-0.5
        if self.sigma:
            found["sigma"] = self.sigma**-0.5
        if self.cauchy:
            found["sigma"] = stats.halfcauchy(0.0, CAUCHY)
        return found


_FLAT = Prior()


@dataclass(frozen=True, eq=False)
class Regression:
    """Design (n, d), outcome (n,), the covariate that sites differ by, and the prior."""

    name: str
    x: FloatArray
    y: FloatArray
    by: FloatArray
    prior: Prior = _FLAT
    logistic: bool = False

    def log_likelihood(self, rows: IntArray, values: Draws) -> FloatArray:
        """Of the rows of a site, at points (m, ...)."""
        predictor = values["beta"] @ self.x[rows].T
        if self.logistic:
            return np.asarray(log_expit((2.0 * self.y[rows] - 1.0) * predictor).sum(axis=1))
        sigma, square = values["sigma"], np.square(self.y[rows] - predictor).sum(axis=1)
        return np.asarray(-len(rows) * np.log(sigma) - 0.5 * square / sigma**2)


def _columns(raw: dict[str, Any], *names: str) -> list[FloatArray]:
    return [np.asarray(raw[name], dtype=np.float64) for name in names]


def _earnings(raw: dict[str, Any], logs: bool) -> tuple[list[FloatArray], FloatArray, FloatArray]:
    earn, height, male = _columns(raw, "earn", "height", "male")
    columns = [np.log(height), male] if logs else [height, male, height * male]
    return columns, np.log(earn), height


def _nes(raw: dict[str, Any]) -> tuple[list[FloatArray], FloatArray, FloatArray]:
    party, ideology, race, educ, gender, income, age = _columns(
        raw, "partyid7", "real_ideo", "race_adj", "educ1", "gender", "income", "age_discrete"
    )
    ages = [(age == level).astype(float) for level in (2, 3, 4)]
    return [ideology, race, *ages, educ, gender, income], party, income


def regressions(data_dir: Path | None) -> dict[str, Regression]:
    """The regressions of posteriordb, by the names of their reference draws."""

    def made(
        name: str, columns: list[FloatArray], y: FloatArray, by: FloatArray, prior: Prior
    ) -> Regression:
        return Regression(name, np.column_stack([np.ones(len(y)), *columns]), y, by, prior)

    out, flat, cauchy = {}, Prior(), Prior(cauchy=1.0)
    earnings = read("data/earnings", data_dir)
    for name, logs in {"logearn_interaction": False, "logearn_logheight_male": True}.items():
        out[f"earnings-{name}"] = made(name, *_earnings(earnings, logs), flat)
    score, hs, iq = _columns(read("data/kidiq", data_dir), "kid_score", "mom_hs", "mom_iq")
    for name, columns in {
        "kidscore_interaction": [hs, iq, hs * iq],
        "kidscore_momhsiq": [hs, iq],
    }.items():
        out[f"kidiq-{name}"] = made(name, columns, score, iq, cauchy)
    score, work, iq = _columns(
        read("data/kidiq_with_mom_work", data_dir), "kid_score", "mom_work", "mom_iq"
    )
    dummies = [(work == level).astype(float) for level in (2, 3, 4)]
    name = "kidscore_mom_work"
    out[f"kidiq_with_mom_work-{name}"] = made(name, dummies, score, iq, flat)
    for year in (1972, 1976, 1980):
        parts = _nes(read(f"data/nes{year}", data_dir))
        out[f"nes{year}-nes"] = made(f"nes{year}", *parts, flat)
    raw = read("data/sblrc", data_dir)
    x, y = _columns(raw, "X", "y")
    out["sblrc-blr"] = Regression("blr", x, y, x[:, 0], Prior(beta=0.01, sigma=0.01))
    switched, near, arsenic, educ = _columns(
        read("data/wells_data", data_dir), "switched", "dist", "arsenic", "educ"
    )
    x = np.column_stack([np.ones(len(near)), near / 100.0, arsenic, educ / 4.0])
    out["wells-dist_arsenic_educ"] = Regression("wells", x, switched, near, flat, logistic=True)
    return out


def read(name: str, data_dir: Path | None) -> Any:
    """A JSON document of posteriordb."""
    path = data.find(f"posteriordb/{name}.json.zip", data_dir)
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read(archive.namelist()[0]))


def reference(name: str, data_dir: Path | None) -> Draws:
    """Reference draws of all data, ``beta[1]`` and the like as one array."""
    chains = read(f"draws/{name}", data_dir)
    table = {key: np.array([chain[key] for chain in chains]) for key in chains[0]}
    out: Draws = {}
    for variable in dict.fromkeys(key.partition("[")[0] for key in table):
        own = [values for key, values in table.items() if key.partition("[")[0] == variable]
        whole = own[0] if variable in table else np.stack(own, axis=-1)
        out[variable] = whole
    return out


def dealt(model: Regression, n_sites: int, how: str, seed: int) -> list[IntArray]:
    """Rows of each site: at random, or most with similar values of the covariate."""
    rng, n = np.random.default_rng(seed), len(model.y)
    score = rng.random(n)
    if how == "covariate":
        score = 0.5 * score + stats.rankdata(model.by) / n
    return [np.sort(rows) for rows in np.array_split(np.argsort(score), n_sites)]


# Samplers -----------------------------------------------------------------------------------------

Potential = Callable[..., Any]  # minus the log-density of coordinates (d,), given a site's data


@partial(jax.jit, static_argnums=(0, 1, 4))
def sampled(potential: Potential, dim: int, key: Any, start: Any, draws: int, data: Any) -> Any:
    """NUTS of NumPyro at all sites at once: coordinates (sites, chains, draws, d), divergences.

    ``data`` are arrays with a row per site. Chains start at ``start`` (sites, chains, d).
    """
    init, step = hmc(potential_fn_gen=lambda *own: lambda z: potential(z, *own), algo="NUTS")

    def chain(key: Any, start: Any, own: Any) -> Any:
        state = init(start, WARMUP, model_args=own, rng_key=key, dense_mass=True)

        def move(state: Any, _: Any) -> Any:
            state = step(state, own)
            return state, (state.z, state.diverging)

        return jax.lax.scan(move, state, None, WARMUP + draws)[1]

    def site(key: Any, start: Any, own: Any) -> Any:
        return jax.vmap(chain, (0, 0, None))(jax.random.split(key, CHAINS), start, own)

    z, diverging = jax.vmap(site)(jax.random.split(key, start.shape[0]), start, data)
    return z[:, :, WARMUP:], diverging[:, :, WARMUP:]


def linear(z: Any, n: Any, rss: Any, prior: Any, r: Any, q: Any) -> Any:
    """Directions of coefficients, and the logarithm of the noise."""
    beta, sigma = linear_values(z, n, rss, r, q)
    square = rss + rss / n * jnp.sum(z[:-1] ** 2)
    density = (1.0 - n) * jnp.log(sigma) - 0.5 * square / sigma**2  # one for the logarithm
    density -= 0.5 * prior[0] * jnp.sum(beta**2) + 0.5 * prior[1] * sigma**2
    return prior[2] * jnp.log1p((sigma / CAUCHY) ** 2) - density


def linear_values(z: Any, n: Any, rss: Any, r: Any, q: Any) -> tuple[Any, Any]:
    """Coefficients and noise."""
    scale = jnp.sqrt(rss / n)
    beta = jnp.linalg.solve(r, q + scale * z[:-1])
    return beta, scale * jnp.exp(z[-1] / jnp.sqrt(2.0 * n))


def logistic(z: Any, rows: Any, signs: Any) -> Any:
    """Directions of coefficients; a sign is 1, -1, or 0 where there is no row."""
    return -jnp.sum(jnp.abs(signs) * jax.nn.log_sigmoid(signs * (rows @ z)))


def nuts(
    model: Regression, sites: Sequence[IntArray], seed: int, draws: int
) -> list[tuple[Draws, FloatArray]]:
    """Draws at each site, and which transitions diverged."""
    parts = [np.linalg.qr(model.x[rows]) for rows in sites]
    dim, key = model.x.shape[1], jax.random.key(seed)
    start = 0.1 * np.random.default_rng(seed).normal(
        size=(len(sites), CHAINS, dim + (not model.logistic))
    )
    r = np.stack([own for _, own in parts])
    if model.logistic:
        size = max(len(rows) for rows in sites)
        basis, signs = np.zeros((len(sites), size, dim)), np.zeros((len(sites), size))
        scale = np.sqrt([len(rows) / 4.0 for rows in sites])  # so that z have deviations near one
        for k, rows in enumerate(sites):
            basis[k, : len(rows)] = parts[k][0] * scale[k]
            signs[k, : len(rows)] = 2.0 * model.y[rows] - 1.0
        z, diverging = sampled(logistic, dim, key, start, draws, (basis, signs))
        betas = np.linalg.solve(r[:, None, None] / scale[:, None, None, None, None], z[..., None])
        found = [{"beta": own[..., 0]} for own in betas]
    else:
        q = np.stack([own.T @ model.y[rows] for (own, _), rows in zip(parts, sites, strict=True)])
        both = zip(parts, sites, q, strict=True)
        rss = np.array([np.square(model.y[rows] - b @ own).sum() for (b, _), rows, own in both])
        n = np.array([float(len(rows)) for rows in sites])
        prior = np.tile(np.array(model.prior), (len(sites), 1))
        z, diverging = sampled(linear, dim + 1, key, start, draws, (n, rss, prior, r, q))
        values = jax.vmap(jax.vmap(jax.vmap(linear_values, (0, *[None] * 4)), (0, *[None] * 4)))
        beta, sigma = values(z, n, rss, r, q)
        pairs = zip(np.asarray(beta), np.asarray(sigma), strict=True)
        found = [{"beta": b, "sigma": s} for b, s in pairs]
    return [*zip(found, np.asarray(diverging), strict=True)]


# Mixtures -----------------------------------------------------------------------------------------

MU_SD, SD_SCALE = 5.0, 2.0  # priors: means Normal, deviations half-Normal, weights flat


def mixture(z: Any, y: Any, mask: Any) -> Any:
    """Logarithms of sticks, means (K, 2) and logarithms of deviations (K,)."""
    mu, sd, logits = mixture_values(z)
    stick = jax.nn.log_sigmoid(logits)
    rest = jnp.concatenate([jnp.zeros(1), jnp.cumsum(jax.nn.log_sigmoid(-logits))])
    log_w = jnp.concatenate([stick, jnp.zeros(1)]) + rest
    square = jnp.sum((y[:, None, :] - mu) ** 2, axis=-1) / sd**2
    by_row = jax.scipy.special.logsumexp(log_w - 2.0 * jnp.log(sd) - 0.5 * square, axis=1)
    prior = -0.5 * jnp.sum(mu**2) / MU_SD**2 + jnp.sum(jnp.log(sd) - 0.5 * (sd / SD_SCALE) ** 2)
    # A flat prior of weights, in logits of sticks.
    later = jnp.arange(len(logits), 0, -1)
    prior += jnp.sum(stick + later * jax.nn.log_sigmoid(-logits))
    return -(jnp.sum(mask * by_row) + prior)


def mixture_values(z: Any) -> tuple[Any, Any, Any]:
    """Means, deviations and logits of sticks."""
    size = (z.shape[-1] + 1) // 4
    mu = z[..., : 2 * size].reshape(*z.shape[:-1], size, 2)
    return mu, jnp.exp(z[..., 2 * size : 3 * size]), z[..., 3 * size :]


def nuts_of_mixtures(sites: Sequence[FloatArray], size: int, seed: int, draws: int) -> list[Draws]:
    """Draws at each site; chains start at k-means, their labels in any order."""
    rng = np.random.default_rng(seed)
    rows = max(len(own) for own in sites)
    y, mask = np.zeros((len(sites), rows, 2)), np.zeros((len(sites), rows))
    start = np.zeros((len(sites), CHAINS, 4 * size - 1))
    for k, own in enumerate(sites):
        y[k, : len(own)], mask[k, : len(own)] = own, 1.0
        centres = KMeans(size, n_init=20, random_state=seed).fit(own).cluster_centers_
        for c in range(CHAINS):
            start[k, c, : 2 * size] = centres[rng.permutation(size)].ravel()
    key = jax.random.key(seed)
    z, _ = sampled(mixture, 4 * size - 1, key, start, draws, (y, mask))
    out = []
    for own in np.asarray(z):
        mu, sd, logits = (np.asarray(part) for part in mixture_values(own))
        weights = Simplex().constrain(logits + Simplex.offset(size - 1))
        out.append({"mu": mu, "sd": sd, "w": weights})
    return out
