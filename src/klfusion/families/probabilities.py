"""Tables of probabilities, and Dirichlet and Beta, the posteriors of probabilities.

SciPy computes ``log Gamma`` and its derivative one number at a time, NumPy's logarithm many at
once. So both are Stirling's series at ``z = x + 8``, less what eight steps of the recurrence add.
The product of the steps, ``x (x + 1) ... (x + 7)``, is ``y (y + 6) (y + 10) (y + 12)`` with
``y = x (x + 7)``. Where all numbers are large the series is enough. All is computed in place, in
blocks that stay in cache.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, ClassVar, final

import numpy as np
from scipy import special

from klfusion._utils.arrays import TINY, FloatArray, IntArray
from klfusion.errors import InvalidPosteriorError
from klfusion.families.capabilities import DiscreteOutcomes, Located, Tempered
from klfusion.families.family import DimensionalFamily, Family, geometric_mean, rows, stack
from klfusion.families.gamma import TwoParameters

_SMOOTHING = 0.5  # observations added to each outcome, so that unseen ones do not decide
_UNSEEN = 1e-7  # least share of a word, for logarithms
_SHIFT = 8.0
_STEPS = (6.0, 10.0, 12.0)
_HALF_LOG_TWO_PI = 0.5 * float(np.log(2.0 * np.pi))
# B_2k / (2k (2k - 1)) and B_2k / 2k with Bernoulli's numbers, highest order first.
_LOG_GAMMA_SERIES = (-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
_DIGAMMA_SERIES = (-691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)
_LARGE = 100.0  # from here on two terms of the series are exact
_BLOCK = 16384  # numbers that stay in cache, with four arrays computed from them
_TOO_LARGE = 1e30  # beyond this the eight factors overflow
_SPARSE = 0.5  # share of a row off its least number below which that is computed once

_Kernel = Callable[[FloatArray, FloatArray], FloatArray]  # values of a block, with room for four


@final
@dataclass(frozen=True)
class Categorical(DimensionalFamily):
    """``x ~ Categorical(probability)``; natural parameters are log-probabilities, up to a constant.

    Examples
    --------
    >>> import klfusion as kf
    >>> states = kf.families.Categorical(dim=2)
    >>> eta = states.natural(probability=[[0.5, 0.5], [0.9, 0.1]])
    >>> states.kl(eta[1:], eta).round(3)
    array([[0.368, 0.   ]])
    """

    name: ClassVar[str] = "categorical"

    def natural(self, probability: Any) -> FloatArray:
        """From ``probability`` (n, d), all positive; rows are normalised."""
        table = rows(probability, self.dim, "probability")
        bad = np.argwhere(~(table > 0) & ~np.isnan(table))
        if len(bad):
            i, k = bad[0]
            raise InvalidPosteriorError(
                f"component {i}: expected probability > 0 at position {k}, got {table[i, k]:.6g} "
                "(smooth zero probabilities first: no divergence to them is finite)"
            )
        with np.errstate(divide="ignore", invalid="ignore"):  # inf / inf
            return np.asarray(np.log(table / table.sum(axis=1, keepdims=True)))

    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """``probability``."""
        return {"probability": special.softmax(natural, axis=1)}

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A(eta)``."""
        return np.asarray(special.logsumexp(natural, axis=1))

    def mean(self, natural: FloatArray) -> FloatArray:
        """The probabilities."""
        return np.asarray(special.softmax(natural, axis=1))

    def n_parameters(self, natural: FloatArray) -> FloatArray:
        """Probabilities, which sum to one."""
        return np.full(len(natural), self.dim - 1.0)

    def separation(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """See `_deviations_between`."""
        return _deviations_between(self.mean(first), self.mean(second))

    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """Nothing: every finite vector is a distribution."""
        return {}


@final
@dataclass(frozen=True)
class Dirichlet(DimensionalFamily, Tempered, Located, DiscreteOutcomes):
    """``theta ~ Dirichlet(concentration)``; the concentrations are the natural parameters.

    Examples
    --------
    >>> import klfusion as kf
    >>> topics = kf.families.Dirichlet(dim=3)
    >>> eta = topics.natural(concentration=[[8.0, 1.0, 1.0], [6.0, 3.0, 1.0]])
    >>> topics.barycenter(eta)
    array([7., 2., 1.])
    """

    name: ClassVar[str] = "dirichlet"

    def natural(self, concentration: Any) -> FloatArray:
        """From ``concentration`` (n, d)."""
        return rows(concentration, self.dim, "concentration").copy()

    def params(self, natural: FloatArray) -> dict[str, FloatArray]:
        """``concentration``."""
        return {"concentration": natural.copy()}

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A(eta)``."""
        return sum_log_gamma(natural) - sum_log_gamma(natural.sum(axis=1, keepdims=True))

    def mean(self, natural: FloatArray) -> FloatArray:
        """``E[log theta]``."""
        out = digamma(natural)
        out -= digamma(natural.sum(axis=1, keepdims=True))
        return out

    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """The concentrations."""
        return {"concentration": natural}

    @property
    def least_count(self) -> float:
        """About the number of words of which some occur twice, if all are as likely."""
        return float(np.sqrt(self.dim))

    def effective_size(self, natural: FloatArray) -> FloatArray:
        """The sum of the concentrations."""
        return np.asarray(natural.sum(axis=1))

    def coarser(
        self, natural: FloatArray, weights: FloatArray, most: int
    ) -> tuple[Family, FloatArray]:
        """Rare words merged by the component that has most of each; the sums are Dirichlet, too."""
        if self.dim <= most:
            return self, natural
        order = np.argsort(-(weights @ natural), kind="stable")
        rare = order[most:]
        owner = (weights[:, None] * natural[:, rare]).argmax(axis=0)
        own, group = np.unique(owner, return_inverse=True)
        sums = np.zeros((len(own), len(natural)))
        np.add.at(sums, group, natural[:, rare].T)
        coarse = np.concatenate([natural[:, order[:most]], sums.T], axis=1)
        return Dirichlet(coarse.shape[1]), coarse

    def without_prior(self, natural: FloatArray) -> FloatArray:
        """Concentrations less the smallest, that of a word that does not occur."""
        least = _UNSEEN * natural.sum(axis=1, keepdims=True)
        return np.asarray(np.maximum(natural - natural.min(axis=1, keepdims=True), least))

    def n_parameters(self, natural: FloatArray) -> FloatArray:
        """The words that occur; those expected less than once count in part."""
        return np.asarray(np.minimum(self.without_prior(natural), 1.0).sum(axis=1))

    def location(self, natural: FloatArray) -> FloatArray:
        """The expected probabilities."""
        return np.asarray(natural / natural.sum(axis=1, keepdims=True))

    def relocated(self, natural: FloatArray, location: FloatArray) -> FloatArray:
        """Other expected probabilities, the same sum."""
        positive = np.maximum(location, TINY)
        share = positive / positive.sum(axis=1, keepdims=True)
        return np.asarray(natural.sum(axis=1, keepdims=True) * share)

    def separation(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Of smoothed frequencies; see `_deviations_between`."""
        smooth = (self.location(eta + _SMOOTHING) for eta in (first, second))
        return _deviations_between(*smooth)

    def comparable(self, natural: FloatArray, like: FloatArray | None = None) -> FloatArray:
        """All at the same sum, and smoothed: else words that a silo lacks decide."""
        total = natural.sum(axis=1)
        common = np.exp(np.log(total if like is None else like.sum(axis=1)).mean())
        scaled = self.tempered(natural, common / total)
        scaled += _SMOOTHING
        return scaled


@final
@dataclass(frozen=True)
class Beta(TwoParameters):
    """``x_k ~ Beta(a_k, b_k)``, independently in each of ``dim`` dimensions.

    Examples
    --------
    >>> import klfusion as kf
    >>> kf.families.Beta().natural(a=[2.0, 3.0], b=[1.0, 1.0])
    array([[2., 1.],
           [3., 1.]])
    """

    name: ClassVar[str] = "beta"
    parameters: ClassVar[tuple[str, str]] = ("a", "b")

    def natural(self, a: Any, b: Any) -> FloatArray:
        """From ``a`` and ``b``, each (n, d), or (n,) in one dimension."""
        return self._joined(a, b)

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A(eta)``."""
        return np.asarray(special.betaln(*self._split(natural)).sum(axis=1))

    def mean(self, natural: FloatArray) -> FloatArray:
        """``E[log x], E[log(1 - x)]``."""
        a, b = self._split(natural)
        total = special.digamma(a + b)
        return stack(special.digamma(a) - total, special.digamma(b) - total)

    def effective_size(self, natural: FloatArray) -> FloatArray:
        """``a + b``, its geometric mean over dimensions."""
        return geometric_mean(np.add(*self._split(natural)))

    def separation(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Of smoothed frequencies, squares added up over dimensions."""
        both = (np.stack(self._split(eta), axis=2) + _SMOOTHING for eta in (first, second))
        shares = (counts / counts.sum(axis=2, keepdims=True) for counts in both)
        return np.asarray(np.sqrt((_deviations_between(*shares) ** 2).sum(axis=1)))


def _deviations_between(first: FloatArray, second: FloatArray) -> FloatArray:
    """Standard deviations between probabilities ``p`` and ``q`` of outcomes, ``(..., d) -> (...)``.

    By Fisher's linear discriminant. The pooled covariance of the indicators of outcomes is
    ``diag(m) - m m' - d d' / 4``, with ``m = (p + q) / 2`` and ``d = p - q``. So the square is
    ``c / (1 - c / 4)``, where ``c = sum d^2 / m``; and ``1 - c / 4 = sum 2 p q / (p + q)``.
    """
    total = np.maximum(first + second, TINY)
    apart = (0.5 * (first - second) ** 2 / total).sum(axis=-1)
    overlap = (2.0 * first * second / total).sum(axis=-1)
    with np.errstate(divide="ignore"):  # without overlap: infinitely many
        return np.asarray(2.0 * np.sqrt(apart / overlap))


def sum_log_gamma(x: FloatArray) -> FloatArray:
    """``sum_k log Gamma(x[i, k])`` of positive numbers, ``(n, p) -> (n,)``."""
    out = np.full(len(x), x.shape[1] * _HALF_LOG_TWO_PI)
    if x.max(initial=0.0) > _TOO_LARGE:
        return np.asarray(special.gammaln(x).sum(axis=1))
    kernel = _log_gamma if x.min(initial=_LARGE) < _LARGE else _large_log_gamma
    for some, _, block, room in _by_blocks(x):
        values, off = _values(kernel, block, room)
        if off is None:
            out[some] += values.reshape(block.shape).sum(axis=1)
        else:
            out[some] += values[1:].sum() + (block.size - len(off)) * values[0]
    return out


def digamma(x: FloatArray) -> FloatArray:
    """The derivative of ``log Gamma`` at positive numbers, ``(n, p) -> (n, p)``."""
    out = np.empty(x.shape)
    if x.max(initial=0.0) > _TOO_LARGE:
        return np.asarray(special.digamma(x))
    for some, columns, block, room in _by_blocks(x):
        values, off = _values(_digamma, block, room)
        if off is None:
            out[some, columns] = values.reshape(block.shape)
        else:
            out[some, columns] = values[0]
            out[some.start, columns.start + off] = values[1:]
    return out


def _values(
    kernel: _Kernel, block: FloatArray, room: FloatArray
) -> tuple[FloatArray, IntArray | None]:
    """A function of all numbers of a block; of a sparse row, of its least number and others.

    Most words of a topic are at the prior: where the others are.
    """
    x, off = block.reshape(-1), None
    if len(block) == 1:
        least = x.min()
        others = x != least
        if np.count_nonzero(others) < _SPARSE * len(x):
            off = np.flatnonzero(others)
            x = np.append(least, x[off])
    with np.errstate(divide="ignore", invalid="ignore"):
        return kernel(x, room[:, : len(x)]), off


def _by_blocks(x: FloatArray) -> Iterator[tuple[slice, slice, FloatArray, FloatArray]]:
    """Whole rows, or parts of one row, of about `_BLOCK` numbers at a time, with room for four."""
    n, p = x.shape
    step = max(1, _BLOCK // max(p, 1))
    n_parts = -(-p // _BLOCK)
    parts = [p * k // n_parts for k in range(n_parts + 1)]
    room = np.empty((4, min(_BLOCK, n * p)))
    for low, (a, b) in product(range(0, n, step), pairwise(parts)):
        block = x[low : low + step, a:b]
        yield slice(low, low + step), slice(a, b), block, room


def _log_gamma(x: FloatArray, room: FloatArray) -> FloatArray:
    y: FloatArray
    z, inverse, y, product = room
    np.multiply(np.add(x, 7.0, out=y), x, out=y)
    np.multiply(np.add(y, _STEPS[0], out=product), y, out=product)
    for step in _STEPS[1:]:
        product *= np.add(y, step, out=z)
    np.log(product, out=product)
    product += np.add(x, _SHIFT, out=z)
    np.divide(1.0, z, out=inverse)
    np.log(z, out=y)
    y *= np.subtract(z, 0.5, out=z)
    y -= product
    np.multiply(inverse, inverse, out=z)
    y += np.multiply(_polynomial(_LOG_GAMMA_SERIES, z, product), inverse, out=product)
    return y


def _large_log_gamma(x: FloatArray, room: FloatArray) -> FloatArray:
    y: FloatArray
    y, inverse, z, _ = room
    np.multiply(np.log(x, out=y), np.subtract(x, 0.5, out=z), out=y)
    y -= x
    np.divide(1.0, x, out=inverse)
    np.multiply(inverse, inverse, out=z)
    z *= _LOG_GAMMA_SERIES[-2]
    z += _LOG_GAMMA_SERIES[-1]
    y += np.multiply(z, inverse, out=z)
    return y


def _digamma(x: FloatArray, room: FloatArray) -> FloatArray:
    y: FloatArray
    z, inverse, y, total = room
    np.multiply(np.add(x, 7.0, out=y), x, out=y)
    np.divide(1.0, y, out=total)
    for step in _STEPS:
        total += np.divide(1.0, np.add(y, step, out=z), out=z)
    total *= np.add(x, 3.5, out=z)
    total *= 2.0
    np.divide(1.0, np.add(x, _SHIFT, out=z), out=inverse)
    np.log(z, out=y)
    y -= total
    y -= np.multiply(inverse, 0.5, out=total)
    inverse *= inverse
    y -= np.multiply(_polynomial(_DIGAMMA_SERIES, inverse, total), inverse, out=total)
    return y


def _polynomial(coefficients: tuple[float, ...], x: FloatArray, out: FloatArray) -> FloatArray:
    """By Horner's rule."""
    np.multiply(x, coefficients[0], out=out)
    for coefficient in coefficients[1:-1]:
        out += coefficient
        out *= x
    out += coefficients[-1]
    return out
