"""Categorical: a plain table of probabilities, for models without a posterior over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from scipy.special import logsumexp, softmax

from klfusion._utils.arrays import FloatArray
from klfusion.errors import InvalidPosteriorError
from klfusion.families.family import DimensionalFamily
from klfusion.families.parameters import rows


@final
@dataclass(frozen=True)
class Categorical(DimensionalFamily):
    """``x ~ Categorical(probability)``; natural parameters are log-probabilities.

    A constant added to a row of natural parameters changes nothing.

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
        return {"probability": softmax(natural, axis=1)}

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """``A(eta)``."""
        return np.asarray(logsumexp(natural, axis=1))

    def mean(self, natural: FloatArray) -> FloatArray:
        """The probabilities."""
        return np.asarray(softmax(natural, axis=1))

    def n_parameters(self, natural: FloatArray) -> FloatArray:
        """Probabilities, which sum to one."""
        return np.full(len(natural), self.dim - 1.0)

    def separation(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """See `deviations_between_frequencies`."""
        return deviations_between_frequencies(self.mean(first), self.mean(second))

    def positive(self, natural: FloatArray) -> Mapping[str, FloatArray]:
        """Nothing: every finite vector is a distribution."""
        return {}


def deviations_between_frequencies(first: FloatArray, second: FloatArray) -> FloatArray:
    """Standard deviations between probabilities ``p`` and ``q`` of outcomes, ``(..., d) -> (...)``.

    That of Fisher's linear discriminant: of all functions of an outcome, the largest difference of
    means in pooled standard deviations. The pooled covariance of the indicators of outcomes is
    ``diag(m) - m m' - d d' / 4``, with ``m = (p + q) / 2`` and ``d = p - q``. So the square is
    ``c / (1 - c / 4)``, where ``c = sum d^2 / m``; and ``1 - c / 4 = sum 2 p q / (p + q)``.
    """
    total = np.maximum(first + second, np.finfo(np.float64).tiny)
    apart = (0.5 * (first - second) ** 2 / total).sum(axis=-1)
    overlap = (2.0 * first * second / total).sum(axis=-1)
    with np.errstate(divide="ignore"):  # without overlap: infinitely many
        return np.asarray(2.0 * np.sqrt(apart / overlap))
