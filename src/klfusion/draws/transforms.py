"""Transforms between constrained values and unconstrained coordinates, one class per kind.

They are those of ``biject_to`` in Pyro and NumPyro. ``constrain`` takes the module with the
functions of numpy, so that the same formulas serve NumPyro and PyMC.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import log_expit, logit

from klfusion._utils.arrays import FloatArray


def shape_of(x: Any) -> tuple[int, ...]:
    """The shape of an array, or the static one of a tensor of PyTensor."""
    kind = getattr(x, "type", None)
    return tuple(int(n) for n in (x if kind is None else kind).shape)


class Transform:
    """The identity: values are coordinates."""

    label = "{}"  # of the coordinates of a variable

    def __init__(self, lower: float | None = None, upper: float | None = None) -> None:
        self.lower, self.upper = lower, upper

    def free_shape(self, event: Sequence[int]) -> tuple[int, ...]:
        """Shape of the coordinates of one event."""
        return tuple(event)

    def unconstrain(self, values: FloatArray) -> FloatArray:
        """Coordinates; NaN or infinite where a value is outside."""
        return values

    def constrain(self, x: Any, xp: Any = np) -> Any:
        """The value at coordinates; ``xp`` has the functions of numpy."""
        del xp
        return x

    def log_jacobian(self, x: FloatArray) -> FloatArray:
        """Logarithm of the derivative of the value, summed over an event."""
        return np.zeros(x.shape)


class Above(Transform):
    """``lower + exp(x)``."""

    label = "log({})"

    def unconstrain(self, values: FloatArray) -> FloatArray:  # noqa: D102
        return np.log(values - (self.lower or 0.0))

    def constrain(self, x: Any, xp: Any = np) -> Any:  # noqa: D102
        return (self.lower or 0.0) + xp.exp(x)

    def log_jacobian(self, x: FloatArray) -> FloatArray:  # noqa: D102
        return x


class Below(Above):
    """``upper - exp(x)``."""

    def unconstrain(self, values: FloatArray) -> FloatArray:  # noqa: D102
        return np.log((self.upper or 0.0) - values)

    def constrain(self, x: Any, xp: Any = np) -> Any:  # noqa: D102
        return (self.upper or 0.0) - xp.exp(x)


class Between(Transform):
    """``lower + (upper - lower) expit(x)``."""

    label = "logit({})"

    def __init__(self, lower: float | None = None, upper: float | None = None) -> None:
        super().__init__(lower, upper)
        self.start = lower or 0.0
        self.width = (1.0 if upper is None else upper) - self.start

    def unconstrain(self, values: FloatArray) -> FloatArray:  # noqa: D102
        return np.asarray(logit((values - self.start) / self.width))

    def constrain(self, x: Any, xp: Any = np) -> Any:  # noqa: D102
        return self.start + self.width / (1.0 + xp.exp(-x))

    def log_jacobian(self, x: FloatArray) -> FloatArray:  # noqa: D102
        return np.asarray(np.log(self.width) + log_expit(x) + log_expit(-x))


class Inverse(Transform):
    """``1 / |x|``, of a standard deviation that is far from zero."""

    label = "1/{}"

    def unconstrain(self, values: FloatArray) -> FloatArray:  # noqa: D102
        return np.where(values > 0, 1.0 / values, np.nan)

    def constrain(self, x: Any, xp: Any = np) -> Any:  # noqa: D102
        return 1.0 / xp.abs(x)

    def log_jacobian(self, x: FloatArray) -> FloatArray:  # noqa: D102
        return -2.0 * np.log(np.abs(x))


class Softplus(Transform):
    """``log(1 + exp(x))``."""

    label = "softplus({})"

    def unconstrain(self, values: FloatArray) -> FloatArray:  # noqa: D102
        return values + np.log(-np.expm1(-values))

    def constrain(self, x: Any, xp: Any = np) -> Any:  # noqa: D102
        return xp.logaddexp(0.0, x)

    def log_jacobian(self, x: FloatArray) -> FloatArray:  # noqa: D102
        return np.asarray(log_expit(x))


class Simplex(Transform):
    """Stick-breaking: each logit is of the share of what is left; zeros are equal shares."""

    label = "sticks({})"

    @staticmethod
    def offset(size: int) -> FloatArray:
        """Logits of equal shares, negated."""
        return np.log(size - np.arange(size))

    def free_shape(self, event: Sequence[int]) -> tuple[int, ...]:  # noqa: D102
        return (event[0] - 1,)

    def unconstrain(self, values: FloatArray) -> FloatArray:  # noqa: D102
        later = np.flip(np.cumsum(np.flip(values[..., 1:], -1), -1), -1)
        return np.log(values[..., :-1]) - np.log(later) + self.offset(values.shape[-1] - 1)

    def constrain(self, x: Any, xp: Any = np) -> Any:  # noqa: D102
        stick = 1.0 / (1.0 + xp.exp(self.offset(shape_of(x)[-1]) - x))
        one = xp.ones_like(x[..., :1])
        rest = xp.exp(xp.cumsum(xp.log(1.0 - stick), axis=-1))
        return xp.concatenate([stick, one], axis=-1) * xp.concatenate([one, rest], axis=-1)

    def log_jacobian(self, x: FloatArray) -> FloatArray:  # noqa: D102
        size = x.shape[-1]
        centred, later = x - self.offset(size), size - np.arange(size)
        return np.asarray((log_expit(centred) + later * log_expit(-centred)).sum(axis=-1))


class Ordered(Transform):
    """The first value, or its logarithm above a bound, and logarithms of the steps."""

    label = "steps({})"

    def unconstrain(self, values: FloatArray) -> FloatArray:  # noqa: D102
        first = values[..., :1] if self.lower is None else np.log(values[..., :1] - self.lower)
        return np.concatenate([first, np.log(np.diff(values, axis=-1))], axis=-1)

    def constrain(self, x: Any, xp: Any = np) -> Any:  # noqa: D102
        first = x[..., :1] if self.lower is None else self.lower + xp.exp(x[..., :1])
        return xp.cumsum(xp.concatenate([first, xp.exp(x[..., 1:])], axis=-1), axis=-1)

    def log_jacobian(self, x: FloatArray) -> FloatArray:  # noqa: D102
        return np.asarray(x[..., (self.lower is None) :].sum(axis=-1))


class Cholesky(Transform):
    """A lower triangular matrix: logarithms of the diagonal, then the entries below it."""

    label = "entries({})"

    def free_shape(self, event: Sequence[int]) -> tuple[int, ...]:  # noqa: D102
        return (event[0] * (event[0] + 1) // 2,)

    def unconstrain(self, values: FloatArray) -> FloatArray:  # noqa: D102
        rows, columns = np.tril_indices(values.shape[-1], -1)
        diagonal = np.log(np.einsum("...ii->...i", values))
        return np.concatenate([diagonal, values[..., rows, columns]], axis=-1)

    @staticmethod
    def _order(size: int) -> int:
        """Rows of a matrix with so many entries on and below the diagonal."""
        return round((math.sqrt(1 + 8 * size) - 1) / 2)

    def constrain(self, x: Any, xp: Any = np) -> Any:  # noqa: D102
        n = self._order(shape_of(x)[-1])
        entries = xp.concatenate([xp.exp(x[..., :n]), x[..., n:]], axis=-1)
        rows, columns = (np.concatenate([np.arange(n), i]) for i in np.tril_indices(n, -1))
        return _placed(entries, rows, columns, n, xp)

    def log_jacobian(self, x: FloatArray) -> FloatArray:  # noqa: D102
        return np.asarray(x[..., : self._order(x.shape[-1])].sum(axis=-1))


class CholeskyCorr(Transform):
    """Rows of unit length: each entry is a partial correlation times what the row has left."""

    label = "partial({})"

    def free_shape(self, event: Sequence[int]) -> tuple[int, ...]:  # noqa: D102
        return (event[0] * (event[0] - 1) // 2,)

    def unconstrain(self, values: FloatArray) -> FloatArray:  # noqa: D102
        rows, columns = np.tril_indices(values.shape[-1], -1)
        left = 1.0 - np.cumsum(np.square(values), axis=-1) + np.square(values)
        return np.arctanh(values[..., rows, columns] / np.sqrt(left[..., rows, columns]))

    @staticmethod
    def _order(size: int) -> int:
        """Rows of a matrix with so many entries below the diagonal."""
        return round((math.sqrt(1 + 8 * size) + 1) / 2)

    def constrain(self, x: Any, xp: Any = np) -> Any:  # noqa: D102
        partial, n = xp.tanh(x), self._order(shape_of(x)[-1])
        one, start = xp.ones_like(partial[..., :1]), 0
        entries, where = [one], [(0, 0)]
        for row in range(1, n):
            left = one
            for column in range(row):
                z = partial[..., start : start + 1]
                entries.append(z * left)
                left = left * xp.sqrt(1.0 - z * z)
                where.append((row, column))
                start += 1
            entries.append(left)
            where.append((row, row))
        rows, columns = (np.array(i) for i in zip(*where, strict=True))
        return _placed(xp.concatenate(entries, axis=-1), rows, columns, n, xp)

    def log_jacobian(self, x: FloatArray) -> FloatArray:  # noqa: D102
        left = log_expit(2.0 * x) + log_expit(-2.0 * x) + np.log(4.0)  # log(1 - tanh(x)^2)
        rows, columns = np.tril_indices(self._order(x.shape[-1]), -1)
        return np.asarray((left * (1.0 + 0.5 * (rows - columns - 1))).sum(axis=-1))


def _placed(entries: Any, rows: Any, columns: Any, n: int, xp: Any) -> Any:
    """A matrix ``(..., n, n)`` with these entries and zeros elsewhere."""
    basis = np.zeros((len(rows), n, n))
    basis[np.arange(len(rows)), rows, columns] = 1.0
    return xp.tensordot(entries, basis, 1)


TRANSFORMS: dict[str, type[Transform]] = {
    "real": Transform,
    "above": Above,
    "below": Below,
    "between": Between,
    "inverse": Inverse,
    "softplus": Softplus,
    "simplex": Simplex,
    "ordered": Ordered,
    "cholesky": Cholesky,
    "cholesky_corr": CholeskyCorr,
}
