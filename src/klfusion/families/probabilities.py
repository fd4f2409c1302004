"""Tables of probabilities, and Dirichlet and Beta, the posteriors of probabilities."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from scipy import special

from klfusion._utils.arrays import TINY, FloatArray
from klfusion.errors import InvalidPosteriorError
from klfusion.families.capabilities import DiscreteOutcomes, Located, Tempered
from klfusion.families.family import DimensionalFamily, Family, geometric_mean, rows, stack
from klfusion.families.gamma import TwoParameters
from klfusion.families.log_gamma import digamma, sum_log_gamma

_SMOOTHING = 0.5  # observations added to each outcome, so that unseen ones do not decide
_UNSEEN = 1e-7  # least share of a word, for logarithms


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
