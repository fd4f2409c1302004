"""Random-effects meta-analysis of one number per silo, in the words of meta-analysts.

The model is ``y_j ~ N(m, v_j + tau2)``. Paule and Mandel choose the variance ``tau2`` between silos
so that the weighted squares of the residuals add up to their degrees of freedom. Hartung, Knapp,
Sidik and Jonkman correct the interval for few silos: the squares of the residuals scale it, and
its quantiles are those of Student's t. It is never narrower than where silos share the number:
that few estimates lie close together by chance adds nothing to what each of them knows.

Where a new silo lies, and where one of the silos does, depends on ``tau2``, which few silos leave
uncertain. Its confidence distribution says how much: ``Q(tau2)`` has the chi-squared distribution
(Viechtbauer, 2007). A new silo's interval is that of the mixture over ``tau2`` (Nagashima, Noma and
Furukawa, 2019). The interval of a silo with data has an upper confidence limit of ``tau2``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtrc, ndtr, ndtri

from klfusion._utils.arrays import FloatArray
from klfusion._utils.intervals import DEVIATIONS, UPPER, student_factor

_GRID = 400  # values of tau; twice as many change an interval by less than a percent of its width
# Confidence of the limit of tau2 that a silo's own interval has. With it 95 % intervals of 2 to 30
# silos cover 92 to 98 % at any tau2 > 0; `experiments heterogeneity --limits` compares others.
_LIMIT = 0.85
# Probability of a larger Q by chance, of the most extreme of several numbers: of a hundred fusions
# of silos that agree, one has a warning. Few silos show no difference at a stricter level.
_UNLIKELY = 0.01
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
        Where a new silo's own number lies with probability 95 %; NaN of one silo, which says
        nothing about others.
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
        wide = DEVIATIONS * np.sqrt(np.array(self.variances))
        return [(m - w, m + w) for m, w in zip(self.estimates, wide.tolist(), strict=True)]

    @property
    def weights(self) -> tuple[float, ...]:
        """Share of each silo in the mean."""
        weights = 1.0 / (np.array(self.variances) + self.tau2)
        return tuple((weights / weights.sum()).tolist())


def varying(tests: Mapping[str, MetaAnalysis]) -> list[str]:
    """Numbers that differ between silos more than chance allows."""
    return [name for name, own in tests.items() if own.q_p_value * len(tests) < _UNLIKELY]


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


@dataclass(frozen=True, eq=False)
class ConfidenceDistribution:
    """Of ``tau2``, from two or more silos: on a grid, the probability that it is smaller.

    With it go the mean over silos at each ``tau2`` and its variance.
    """

    tau2: FloatArray
    below: FloatArray
    mean: FloatArray
    variance: FloatArray

    @classmethod
    def of(cls, estimates: FloatArray, variances: FloatArray) -> "ConfidenceDistribution":
        """From the estimates of silos and their squared errors."""
        typical = len(estimates) / (1.0 / variances).sum()
        share = np.arange(_GRID) / _GRID
        tau2 = np.square(share / (1.0 - share)) * (typical + paule_mandel(estimates, variances))
        weights = 1.0 / (variances[:, None] + tau2)
        total = weights.sum(axis=0)
        mean = estimates @ weights / total
        q = (weights * (estimates[:, None] - mean) ** 2).sum(axis=0)
        return cls(tau2, chdtrc(len(estimates) - 1, q), mean, 1.0 / total)

    @property
    def limit(self) -> float:
        """An upper limit of ``tau2``; at it, the interval of a silo with data covers as it says."""
        return float(np.interp(_LIMIT, self.below, self.tau2))

    @property
    def prediction_interval(self) -> tuple[float, float]:
        """Where a new silo's number lies with probability 95 %, whatever ``tau2`` is."""
        between = 0.5 * (self.below[1:] + self.below[:-1])
        probability = np.diff(between, prepend=0.0, append=1.0)
        deviation = np.sqrt(self.variance + self.tau2)
        wide = -float(ndtri((1.0 - UPPER) / _GRID)) * deviation  # holds that of any mixture
        ends = float((self.mean - wide).min()), float((self.mean + wide).max())

        def excess(value: float, level: float) -> float:
            return float(probability @ ndtr((value - self.mean) / deviation)) - level

        return brentq(excess, *ends, args=(1.0 - UPPER,)), brentq(excess, *ends, args=(UPPER,))

    @property
    def for_a_new_silo(self) -> float:
        """The ``tau2`` at which a Normal is as wide as the prediction interval."""
        low, high = self.prediction_interval
        deviation = np.sqrt(self.variance + self.tau2)
        return float(np.interp(0.5 * (high - low) / DEVIATIONS, deviation, self.tau2))


def width(estimates: FloatArray, variances: FloatArray, tau2: float) -> float:
    """Of the interval of the mean, relative to that of a Normal with its standard error."""
    if len(estimates) < 2:
        return 1.0
    weights = 1.0 / (variances + tau2)
    residual = estimates - weights @ estimates / weights.sum()
    freedom = len(estimates) - 1
    scale = float(np.sqrt(weights @ residual**2 / freedom))  # 1 where the variation is not 0
    return max(scale * student_factor(freedom), 1.0)


def meta_analysis(
    estimates: FloatArray, variances: FloatArray, silos: tuple[str, ...]
) -> MetaAnalysis:
    """Random effects with the correction for few silos; one silo is returned as it is."""
    n, tau2 = len(estimates), paule_mandel(estimates, variances)
    weights = 1.0 / (variances + tau2)
    mean = float(weights @ estimates / weights.sum())
    error = float(1.0 / np.sqrt(weights.sum()))
    fixed = 1.0 / variances
    q = float(fixed @ (estimates - fixed @ estimates / fixed.sum()) ** 2)
    wide = DEVIATIONS * width(estimates, variances, tau2) * error
    interval = (mean - wide, mean + wide)
    new = (np.nan, np.nan)
    if n > 1:
        new = ConfidenceDistribution.of(estimates, variances).prediction_interval
    return MetaAnalysis(
        estimate=mean,
        standard_error=error,
        interval=interval,
        prediction_interval=new,
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
    return 1.0 if n < 2 else student_factor(n - 1)
