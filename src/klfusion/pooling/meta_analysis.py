"""Random-effects meta-analysis of one number per silo, in the words of meta-analysts.

The model is ``y_j ~ N(m, v_j + tau2)``. Paule and Mandel choose the variance ``tau2`` between silos
so that the weighted squares of the residuals add up to their degrees of freedom. Hartung, Knapp,
Sidik and Jonkman correct the interval for few silos: the squares of the residuals scale it, and
its quantiles are those of Student's t.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtrc, ndtri, stdtrit

from klfusion._utils.arrays import FloatArray

_TAIL = 0.975  # intervals have a probability of 95 %
_GRID = 400  # values of tau; twice as many change the mean by less than a percent
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
        wide = float(ndtri(_TAIL)) * np.sqrt(np.array(self.variances))
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


def expected_variance(estimates: FloatArray, variances: FloatArray) -> float:
    """The variance between silos that their estimates lead to expect; never 0 for two or more.

    The posterior mean of ``tau2`` under the prior of DuMouchel (1994), whose scale is the typical
    error of a silo. Few silos may agree by chance, which an estimate of 0 would ignore.
    """
    if len(estimates) < 2:
        return 0.0
    share = np.linspace(0.0, 1.0, _GRID, endpoint=False)  # uniform under the prior
    tau2 = np.square(share / (1.0 - share)) * len(estimates) / (1.0 / variances).sum()
    weights = 1.0 / (variances[:, None] + tau2)
    total = weights.sum(axis=0)
    residual = estimates[:, None] - estimates @ weights / total
    logs = 0.5 * np.log(weights).sum(axis=0) - 0.5 * np.log(total)
    logs -= 0.5 * (weights * residual**2).sum(axis=0)
    probability = np.exp(logs - logs.max())
    return float(probability @ tau2 / probability.sum())


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
    quantile = float(ndtri(_TAIL) if n == 1 else stdtrit(n - 1, _TAIL))
    wide = quantile * float(np.sqrt(tau2 + error**2))
    return MetaAnalysis(
        estimate=mean,
        standard_error=error,
        interval=(mean - quantile * error, mean + quantile * error),
        prediction_interval=(mean - wide, mean + wide),
        tau2=tau2,
        i2=max(0.0, (q - (n - 1)) / q) if q > 0 else 0.0,
        q=q,
        q_p_value=float(chdtrc(n - 1, q)) if n > 1 else 1.0,
        silos=silos,
        estimates=tuple(estimates.tolist()),
        variances=tuple(variances.tolist()),
    )


def normal_factor(n: int) -> float:
    """Quantile of Student's t over that of the Normal: a Normal so much wider has its interval."""
    return 1.0 if n < 2 else float(stdtrit(n - 1, _TAIL) / ndtri(_TAIL))
