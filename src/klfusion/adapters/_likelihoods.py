"""Log-likelihoods of regressions, with two derivatives, and their mode under a Gaussian prior."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.special import expit, gammaln, logsumexp

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion._utils.text import few
from klfusion.errors import KLFusionError
from klfusion.posteriors.structure.regression import Information

_MOST_STEPS = 100
_CONVERGED = 1e-20  # Newton's decrement, in nats: coefficients are right to 1e-10 deviations
# Where classes are separated, the information about a coefficient vanishes as it grows. Of a finite
# one it keeps far more than this share, the square root of float64's precision.
_VANISHED = 1e-8
_ROUNDING = 1e-12  # relative change of a log-likelihood that is none


class Derivatives(NamedTuple):
    """Log-likelihood, its gradient (d,), and its negative second derivatives (d, d)."""

    value: float
    gradient: FloatArray
    information: FloatArray


Likelihood = Callable[[FloatArray], Derivatives]


def logistic(x: FloatArray, y: FloatArray) -> Likelihood:
    """Of classes 0 and 1."""

    def at(beta: FloatArray) -> Derivatives:
        predictor = x @ beta
        p = expit(predictor)
        value = float(y @ predictor - np.logaddexp(0.0, predictor).sum())
        return Derivatives(value, x.T @ (y - p), (x.T * (p * (1.0 - p))) @ x)

    return at


def softmax(x: FloatArray, y: IntArray, n_classes: int) -> Likelihood:
    """Of classes 0 to ``n_classes - 1``: log-odds against class 0, those of class 1 first."""
    one = np.eye(n_classes)[y][:, 1:]

    def at(beta: FloatArray) -> Derivatives:
        predictor = x @ beta.reshape(n_classes - 1, -1).T
        whole = logsumexp(np.column_stack([np.zeros(len(x)), predictor]), axis=1)
        p = np.exp(predictor - whole[:, None])
        value = float((one * predictor).sum() - whole.sum())
        # Of each row, the covariance of the classes.
        spread = np.einsum("nk,kl->nkl", p, np.eye(n_classes - 1)) - np.einsum("nk,nl->nkl", p, p)
        information = np.einsum("nkl,ni,nj->kilj", spread, x, x, optimize=True)
        gradient = ((one - p).T @ x).reshape(-1)
        return Derivatives(value, gradient, information.reshape(len(beta), len(beta)))

    return at


def poisson(x: FloatArray, y: FloatArray) -> Likelihood:
    """Of counts, with a logarithmic link."""

    def at(beta: FloatArray) -> Derivatives:
        predictor = x @ beta
        rate = np.exp(predictor)
        value = float(y @ predictor - rate.sum() - gammaln(y + 1.0).sum())
        return Derivatives(value, x.T @ (y - rate), (x.T * rate) @ x)

    return at


def cox(x: FloatArray, time: FloatArray, event: BoolArray) -> Likelihood:
    """Partial likelihood of survival times, ties as Efron treats them."""
    order = np.argsort(-time, kind="stable")
    x, time, event = x[order] - x.mean(axis=0), time[order], event[order]
    edges = np.flatnonzero(np.diff(time, prepend=np.nan, append=np.nan) != 0)

    def at(beta: FloatArray) -> Derivatives:
        predictor = x @ beta
        predictor = predictor - predictor.max()
        risk, d = np.exp(predictor), len(beta)
        value, gradient, information = 0.0, np.zeros(d), np.zeros((d, d))
        zero, first, second = 0.0, np.zeros(d), np.zeros((d, d))  # sums over those at risk
        for low, high in pairwise(edges):
            rows = slice(int(low), int(high))  # of one time
            zero, first = zero + risk[rows].sum(), first + risk[rows] @ x[rows]
            second = second + (x[rows].T * risk[rows]) @ x[rows]
            dead = np.flatnonzero(event[rows]) + low
            if len(dead) == 0:
                continue
            value += float(predictor[dead].sum())
            gradient += x[dead].sum(axis=0)
            tied = risk[dead].sum(), risk[dead] @ x[dead], (x[dead].T * risk[dead]) @ x[dead]
            for share in np.arange(len(dead)) / len(dead):
                total, mean = zero - share * tied[0], first - share * tied[1]
                mean = mean / total
                value -= float(np.log(total))
                gradient -= mean
                information += (second - share * tied[2]) / total - np.outer(mean, mean)
        return Derivatives(value, gradient, information)

    return at


def weibull(x: FloatArray, time: FloatArray, event: BoolArray) -> Likelihood:
    """Of survival times with log-scale ``x beta``; the last coefficient is the log of the shape."""
    logs, happened = np.log(time), event.astype(np.float64)

    def at(beta: FloatArray) -> Derivatives:
        shape = np.exp(beta[-1])
        away = shape * (logs - x @ beta[:-1])
        hazard = np.exp(away)  # cumulative
        value = float((happened * (beta[-1] + away - logs) - hazard).sum())
        gradient = np.append(
            shape * ((hazard - happened) @ x), np.sum(happened * (1.0 + away) - hazard * away)
        )
        information = np.empty((len(beta), len(beta)))
        information[:-1, :-1] = shape**2 * (x.T * hazard) @ x
        information[-1, :-1] = -shape * ((hazard - happened + away * hazard) @ x)
        information[:-1, -1] = information[-1, :-1]
        information[-1, -1] = (away * (hazard - happened) + away**2 * hazard).sum()
        return Derivatives(value, gradient, information)

    return at


def log_baseline(
    x: FloatArray, time: FloatArray, event: BoolArray, beta: FloatArray, times: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The log of the cumulative baseline hazard of Cox's model at some times (Breslow).

    Given the coefficients, it is Normal with a mean linear in them: an offset (k,), the slope
    (k, d), and the covariance (k, k).
    """
    dead = np.unique(time[event])
    at_risk = time >= dead[:, None]
    risk = np.exp(x @ beta)
    total = at_risk @ risk
    step = np.array([(event & (time == t)).sum() for t in dead]) / total
    until = (dead <= times[:, None]).astype(np.float64)
    hazard = until @ step
    slope = -(until * step) @ ((at_risk * risk) @ x / total[:, None]) / hazard[:, None]
    variance = until @ (step / total)
    covariance = np.minimum.outer(variance, variance) / np.outer(hazard, hazard)
    return np.log(hazard) - slope @ beta, slope, covariance


def mode(
    likelihood: Likelihood,
    prior: Information,
    names: Sequence[str],
    start: FloatArray | None = None,
) -> FloatArray:
    """The coefficients of highest posterior density, by Newton's method with halved steps."""

    def objective(beta: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        with np.errstate(all="ignore"):  # of a step too long, which is halved
            value, gradient, information = likelihood(beta)
        pull = prior.shift - prior.precision @ beta
        whole = value + beta @ prior.shift - 0.5 * beta @ prior.precision @ beta
        return float(whole), gradient + pull, information + prior.precision

    beta: FloatArray = np.zeros(len(prior.shift))
    if start is not None:
        beta = start
    elif np.linalg.eigvalsh(prior.precision)[0] > 0:
        beta = np.asarray(np.linalg.solve(prior.precision, prior.shift), dtype=np.float64)
    value, gradient, information = objective(beta)
    most = np.diag(information)
    for _ in range(_MOST_STEPS):
        if not (np.isfinite(gradient).all() and np.isfinite(information).all()):
            break
        step = np.linalg.lstsq(information, gradient, rcond=None)[0]
        if gradient @ step < 0:  # not concave here: along the gradient, in units of the diagonal
            step = gradient / np.abs(np.diag(information))
        decrement = float(gradient @ step)
        if decrement <= _CONVERGED * max(1.0, abs(value)):
            if (np.diag(information) < _VANISHED * most).any():
                break
            return beta
        length = 1.0
        while length > _ROUNDING:
            there = objective(beta + length * step)
            if np.isfinite(there[0]) and there[0] >= value - _ROUNDING * abs(value):
                break
            length /= 2.0
        else:
            break
        beta, (value, gradient, information) = beta + length * step, there
    steepest = [names[k] for k in np.argsort(-np.abs(beta))[:3]]
    raise KLFusionError(
        f"expected coefficients with a largest likelihood, got ones that grow without end, "
        f"{few(steepest)} most: the classes are separated, or a class or event is missing; "
        "give prior_sd"
    )


def expanded(likelihood: Likelihood, at: FloatArray) -> Information:
    """The likelihood as a Gaussian with its first two derivatives at a point."""
    _, gradient, information = likelihood(at)
    return Information(information @ at + gradient, information)
