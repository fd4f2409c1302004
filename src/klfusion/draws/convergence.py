"""Whether draws can be trusted: R-hat, effective sample size, divergent transitions.

The formulas and limits are those of Vehtari, Gelman, Simpson, Carpenter and Buerkner (2021).
"""

from collections.abc import Sequence

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri

from klfusion._utils.arrays import FloatArray
from klfusion._utils.text import few

MOST_R_HAT = 1.01
LEAST_ESS = 400.0  # below it estimates of R-hat and of the standard error are unreliable themselves


def split(draws: FloatArray) -> FloatArray:
    """Each chain as two halves: ``(chains, draws, d) -> (2 chains, draws // 2, d)``."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])


def _normal_scores(draws: FloatArray) -> FloatArray:
    """Normal quantiles of the ranks over all chains, per coordinate."""
    flat = draws.reshape(-1, draws.shape[-1])
    ranks = np.stack([_ranks(column) for column in flat.T], axis=1)
    return np.asarray(ndtri((ranks - 0.375) / (len(flat) + 0.25))).reshape(draws.shape)


def _ranks(values: FloatArray) -> FloatArray:
    """From 1 on; equal values share their average rank."""
    ordered = np.sort(values)
    below, upto = (np.searchsorted(ordered, values, side) for side in ("left", "right"))
    return np.asarray(0.5 * (below + upto + 1.0))


def r_hat(draws: FloatArray) -> FloatArray:
    """Rank-normalised split R-hat, the larger of bulk and tails; ``(chains, draws, d) -> (d,)``."""
    halves = split(draws)
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))
    return np.asarray(np.maximum(*(_ratio(_normal_scores(x)) for x in (halves, folded))))


def _ratio(halves: FloatArray) -> FloatArray:
    n = halves.shape[1]
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    between = halves.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.sqrt((n - 1) / n + between / within))


def ess(draws: FloatArray) -> FloatArray:
    """Bulk effective sample size, ``(chains, draws, d) -> (d,)``."""
    return effective_size(_normal_scores(split(draws)))


def effective_size(chains: FloatArray) -> FloatArray:
    """Effective sample size of the mean of each coordinate, by Geyer's monotone sequence."""
    m, n, dim = chains.shape
    centred = chains - chains.mean(axis=1, keepdims=True)
    length = next_fast_len(2 * n)
    spectrum = rfft(centred, length, axis=1)
    covariance = irfft(np.abs(spectrum) ** 2, length, axis=1)[:, :n].mean(axis=0) / n  # (n, d)
    within = covariance[0] * n / (n - 1)
    total = covariance[0] + (chains.mean(axis=1).var(axis=0, ddof=1) if m > 1 else 0.0)
    out = np.empty(dim)
    for k in range(dim):
        if not total[k] > 0:
            out[k] = np.nan
            continue
        rho = 1.0 - (within[k] - covariance[:, k]) / total[k]
        rho[0] = 1.0
        pairs = rho[: n - n % 2].reshape(-1, 2).sum(axis=1)
        last = int(np.argmax(pairs < 0)) if (pairs < 0).any() else len(pairs)
        decreasing = np.minimum.accumulate(pairs[:last])
        tau = -1.0 + 2.0 * decreasing.sum()
        if last < len(pairs):
            tau += max(float(rho[2 * last]), 0.0)
        out[k] = m * n / max(tau, 1.0 / np.log10(m * n))
    return out


def doubts(draws: FloatArray, names: Sequence[str], n_divergent: int) -> list[str]:
    """What is wrong with draws ``(chains, draws, d)``, one line each."""
    found, total = [], draws.shape[0] * draws.shape[1]
    if draws.shape[1] < 4:
        return [f"{total} draws are too few to compute R-hat"]
    ratios, sizes = r_hat(draws), ess(draws)
    high = np.flatnonzero(~(ratios <= MOST_R_HAT))
    if len(high):
        worst = few([names[int(k)] for k in high[np.argsort(-ratios[high])]], 3)
        found.append(
            f"R-hat is {np.nanmax(ratios):.3g}, where {MOST_R_HAT} is the most: chains of {worst} "
            "differ, by a chain that is stuck or by too few draws"
        )
    low = np.flatnonzero(~(sizes >= LEAST_ESS))
    if len(low):
        worst = few([names[int(k)] for k in low[np.argsort(sizes[low])]], 3)
        found.append(
            f"the effective sample size is {np.nanmin(sizes):.0f} of {total} draws, where "
            f"{LEAST_ESS:.0f} is the least, for {worst}"
        )
    if n_divergent:
        found.append(
            f"{n_divergent} of {total} transitions diverged: draws leave out a part of the "
            "posterior"
        )
    return found
