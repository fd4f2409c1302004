"""Random-effects meta-analysis of one number per silo, in the words of meta-analysts.

The model is ``y_j ~ N(m, v_j + tau2)``. Paule and Mandel choose the variance ``tau2`` between silos
so that the weighted squares of the residuals add up to their degrees of freedom. Hartung, Knapp,
Sidik and Jonkman correct the interval for few silos: the squares of the residuals scale it, and
its quantiles are those of Student's t.

Where a new silo lies, and where one of the silos does, depends on ``tau2``, which few silos leave
uncertain. So these intervals are of mixtures over ``tau2``. For a new silo, ``tau2`` has its
confidence distribution: ``Q(tau2)`` has the chi-squared distribution (Viechtbauer, 2007; Nagashima,
Noma and Furukawa, 2019). For a silo with data, this shrinks too much; there ``tau2`` has the
posterior of Jeffreys' prior (Bodnar and others, 2017). `experiments heterogeneity` compares them.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.stats import chi2, norm, t

from klfusion._utils.arrays import FloatArray

_TAIL = 0.975  # intervals have a probability of 95 %
NORMAL_QUANTILE = float(norm.ppf(_TAIL))  # half the width of such an interval, in deviations
_GRID = 400  # values of tau; twice as many change an interval by less than a percent of its width
_TOLERANCE = 1e-12  # of the variance, as a share of the largest there can be


@dataclass(frozen=True)
class MetaAnalysis:
    """What silos say about one number.

    Parameters
    ----------
    estimate, standard_error : float
        Of the mean over silos.
    interval : tuple of float
        95 % confidence interval of the mean.
    prediction_interval : tuple of float
        Where a new silo's own number lies with probability 95 %.
    tau2 : float
        Variance between silos.
    i2 : float
        Share of the variation that is not chance, ``max(0, (Q - df) / Q)``.
    q, q_p_value : float
        Cochran's Q, and the probability of a larger one if silos do not differ.
    silos : tuple of str
        Those with data about it.
    estimates, variances : tuple of float
        Of each silo alone.
    """

    estimate: float
    standard_error: float
    interval: tuple[float, float]
    prediction_interval: tuple[float, float]
    tau2: float
    i2: float
    q: float
    q_p_value: float
    silos: tuple[str, ...]
    estimates: tuple[float, ...]
    variances: tuple[float, ...]

    @property
    def intervals(self) -> list[tuple[float, float]]:
        """95 % intervals of each silo alone."""
        wide = NORMAL_QUANTILE * np.sqrt(np.array(self.variances))
        return [(m - w, m + w) for m, w in zip(self.estimates, wide.tolist(), strict=True)]

    @property
    def weights(self) -> tuple[float, ...]:
        """Share of each silo in the mean."""
        weights = 1.0 / (np.array(self.variances) + self.tau2)
        return tuple((weights / weights.sum()).tolist())


def paule_mandel(estimates: FloatArray, variances: FloatArray) -> float:
    """The variance between silos; 0 where chance explains all."""

    def excess(tau2: float) -> float:
        weights = 1.0 / (variances + tau2)
        residual = estimates - weights @ estimates / weights.sum()
        return float(weights @ residual**2) - (len(estimates) - 1)

    if len(estimates) < 2 or excess(0.0) <= 0:
        return 0.0
    most = len(estimates) * float(np.ptp(estimates)) ** 2  # nothing is left to explain
    return float(brentq(excess, 0.0, most, xtol=_TOLERANCE * most))


class Predicted(NamedTuple):
    """The number of one silo: an interval, and a Normal that has the median of ``tau2``."""

    interval: tuple[float, float]
    tau2: float
    mean: float
    deviation: float


def predicted(estimates: FloatArray, variances: FloatArray, silo: int | None = None) -> Predicted:
    """The number of one of two or more silos, or of a new one, integrated over ``tau2``."""
    typical = len(estimates) / (1.0 / variances).sum()  # squared error of a silo
    share = np.arange(_GRID) / _GRID
    tau2 = np.square(share / (1.0 - share)) * (typical + paule_mandel(estimates, variances))
    weights = 1.0 / (variances[:, None] + tau2)
    total = weights.sum(axis=0)
    mean = estimates @ weights / total
    q = (weights * (estimates[:, None] - mean) ** 2).sum(axis=0)
    if silo is None:
        below = chi2.sf(q, len(estimates) - 1)  # the probability of a smaller tau2
        between = 0.5 * (below[1:] + below[:-1])
        probability = np.diff(between, prepend=0.0, append=1.0)
        variance = 1.0 / total + tau2
    else:
        logs = 0.5 * (np.log(weights).sum(axis=0) - np.log(total) - q)
        prior = np.sqrt(tau2 * np.square(weights).sum(axis=0)) / (1.0 - share) ** 2
        probability = prior * np.exp(logs - logs[1:].max())
        probability /= probability.sum()
        others = total - weights[silo]
        without = (total * mean - weights[silo] * estimates[silo]) / others
        precision = 1.0 / variances[silo] + 1.0 / (tau2 + 1.0 / others)
        mean = estimates[silo] / variances[silo] + without / (tau2 + 1.0 / others)
        mean, variance = mean / precision, 1.0 / precision
    deviation = np.sqrt(variance)
    wide = float(norm.isf((1.0 - _TAIL) / _GRID)) * deviation  # holds the interval of any mixture
    ends = float((mean - wide).min()), float((mean + wide).max())

    def excess(value: float, level: float) -> float:
        return float(probability @ norm.cdf((value - mean) / deviation)) - level

    low, high = (float(brentq(excess, *ends, args=(p,))) for p in (1.0 - _TAIL, _TAIL))
    middle = int(np.searchsorted(probability.cumsum(), 0.5))
    return Predicted((low, high), *(float(a[middle]) for a in (tau2, mean, deviation)))


def correction(estimates: FloatArray, variances: FloatArray, tau2: float) -> float:
    """The factor of Hartung, Knapp, Sidik and Jonkman on the variance of the mean."""
    if len(estimates) < 2:
        return 1.0
    weights = 1.0 / (variances + tau2)
    residual = estimates - weights @ estimates / weights.sum()
    return float(weights @ residual**2) / (len(estimates) - 1)


def meta_analysis(
    estimates: FloatArray, variances: FloatArray, silos: tuple[str, ...]
) -> MetaAnalysis:
    """Random effects with the correction for few silos; one silo is returned as it is."""
    n, tau2 = len(estimates), paule_mandel(estimates, variances)
    weights = 1.0 / (variances + tau2)
    mean = float(weights @ estimates / weights.sum())
    error = float(np.sqrt(correction(estimates, variances, tau2) / weights.sum()))
    fixed = 1.0 / variances
    q = float(fixed @ (estimates - fixed @ estimates / fixed.sum()) ** 2)
    quantile = NORMAL_QUANTILE if n == 1 else float(t.ppf(_TAIL, n - 1))
    interval = (mean - quantile * error, mean + quantile * error)
    return MetaAnalysis(
        estimate=mean,
        standard_error=error,
        interval=interval,
        prediction_interval=interval if n == 1 else predicted(estimates, variances).interval,
        tau2=tau2,
        i2=max(0.0, (q - (n - 1)) / q) if q > 0 else 0.0,
        q=q,
        q_p_value=float(chi2.sf(q, n - 1)) if n > 1 else 1.0,
        silos=silos,
        estimates=tuple(estimates.tolist()),
        variances=tuple(variances.tolist()),
    )


def normal_factor(n: int) -> float:
    """Quantile of Student's t over that of the Normal: a Normal so much wider has its interval."""
    return 1.0 if n < 2 else float(t.ppf(_TAIL, n - 1)) / NORMAL_QUANTILE
