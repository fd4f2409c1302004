"""The one mechanism: sums of bounded rows plus discrete Gaussian noise, by OpenDP.

OpenDP samples the noise exactly, from the system's secure random numbers, and converts between
zero-concentrated and approximate differential privacy. diffprivlib adds noise in floating point,
and dp-accounting adds none. Rows are rounded to whole numbers of a fine grid, so that sums are
exact in any order, and the sensitivity is that of whole numbers: rounding cannot break it.
Budgets compose by adding up ``rho`` of zero-concentrated differential privacy.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion._utils.checks import check_number, generator
from klfusion._utils.text import brief
from klfusion.errors import KLFusionError, MissingDependencyError

_GRID = 2**20  # whole numbers per sensitivity: rounding is a millionth of what one person changes
# Noise at the first is 1e5 times and more of what one row changes, so that nothing is left; at the
# second it is a tenth of that, so that nothing is hidden.
_LEAST, _MOST = 1e-5, 100.0
_SCALES = (0.01, 1e9)  # noise over sensitivity that is searched: wider than these need
_PRECISION = 1e-6  # relative, of the scale, which is never too small
_seeds: ContextVar[bool] = ContextVar("klfusion_privacy_seeds", default=False)
ADD_REMOVE, REPLACE = "add-remove", "replace"


@dataclass(frozen=True)
class Budget:
    """``epsilon`` and ``delta``, for tables that differ by one row added, removed or replaced.

    With ``"add-remove"`` the number of rows is private, too. With ``"replace"`` it is not, and the
    noise is larger.
    """

    epsilon: float
    delta: float
    neighbours: str = ADD_REMOVE

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon, _LEAST, _MOST)
        check_number("delta", self.delta, 0.0, 1.0)
        if self.neighbours not in (ADD_REMOVE, REPLACE):
            known = f"{ADD_REMOVE!r} or {REPLACE!r}"
            raise KLFusionError(f"expected neighbours to be {known}, got {self.neighbours!r}")


@dataclass(frozen=True, eq=False)
class Statistic:
    """What is summed over rows: an array (n, ...), with a public bound on the norm of each row.

    Symmetric matrices (n, ..., d, d) are summed by their upper triangle; their norm is Frobenius's.

    Parameters
    ----------
    rows : array of shape (n, ...)
        What each person adds to the sum.
    bound : float
        The largest Euclidean norm of a row, which must not depend on the data.
    share : float
        Of the budget, relative to other statistics.
    replaced : float
        Two rows differ by at most this multiple of the bound: 2, or ``2 ** 0.5`` if the inner
        product of two rows is never negative.
    symmetric : bool
        Whether rows are symmetric matrices.
    """

    rows: FloatArray
    bound: float
    share: float = 1.0
    replaced: float = 2.0
    symmetric: bool = False


@dataclass(frozen=True, eq=False)
class Noised:
    """Sums with noise, the standard deviation of the noise of each, and what was done.

    Off the diagonal of a symmetric matrix the deviation is that over ``2 ** 0.5``.
    """

    sums: Mapping[str, FloatArray]
    deviations: Mapping[str, float]
    statement: Mapping[str, Any]


@contextmanager
def seeds_allowed() -> Iterator[None]:
    """Allow seeds within: for tests and simulations, whose results are not private."""
    token = _seeds.set(True)
    try:
        yield
    finally:
        _seeds.reset(token)


def seeds_in_use() -> bool:
    """Whether nothing is private anyway."""
    return _seeds.get()


class DeltaWarning(UserWarning):
    """A delta that allows to publish a row outright. The number of rows is for the site alone."""


def warn_delta(delta: float, rows: int) -> None:
    """Say at the site that delta is no less than one in the number of rows."""
    if rows and delta * rows >= 1.0:
        warnings.warn(
            f"delta {delta:g} with {rows} rows: publishing one row at random, with no noise, would "
            "keep this promise; expected delta far below one in the number of rows",
            DeltaWarning,
            stacklevel=2,
        )


def check_seed(random_state: Any) -> None:
    """Refuse a seed outside `seeds_allowed`: who has it can take the noise off."""
    if random_state is not None and not seeds_in_use():
        raise KLFusionError(
            "expected no random_state: with a seed the noise can be taken off again; simulations "
            "use klfusion.privacy.mechanism.seeds_allowed()"
        )


def noised(
    statistics: Mapping[str, Statistic], budget: Budget, *, random_state: Any = None
) -> Noised:
    """The sums of all statistics with noise, for one budget.

    Each statistic is divided by its bound and multiplied by the root of its share, so that a row
    of all has a norm of at most 1.

    Examples
    --------
    >>> import numpy as np
    >>> from klfusion.privacy.mechanism import Budget, Statistic, noised
    >>> ages = Statistic(np.array([[0.3], [0.9], [-0.2]]), bound=1.0)
    >>> found = noised({"ages": ages}, Budget(1.0, 1e-5))
    >>> found.sums["ages"].shape, round(found.deviations["ages"], 1)
    ((1,), 4.0)
    """
    check_seed(random_state)
    check_statistics(statistics)
    total = sum(own.share for own in statistics.values())
    packed, squared = [], 0.0
    for own in statistics.values():
        factor = 1.0 if budget.neighbours == ADD_REMOVE else own.replaced
        squared += factor**2 * own.share / total
        packed.append(packed_rows(own) / math.sqrt(total))
    rows = np.concatenate(packed, axis=1)
    whole = np.rint(rows * _GRID).astype(np.int64).sum(axis=0)
    # Each entry is rounded by at most one half; one more for the rounding of floats.
    rounding = (1.0 if budget.neighbours == ADD_REMOVE else 2.0) * (0.5 * rows.shape[1] ** 0.5 + 1)
    sensitivity = _GRID * math.sqrt(squared) + rounding
    scale = multiplier(budget.epsilon, budget.delta) * sensitivity
    statement: dict[str, Any] = {"mechanism": "seeded noise of a test: no privacy"}
    if random_state is None:
        noisy, statement = _secure(whole, scale, sensitivity, budget)
    else:
        noisy = whole + np.rint(generator(random_state).normal(scale=scale, size=whole.shape))
    sums, deviations, start = {}, {}, 0
    for (name, own), flat in zip(statistics.items(), packed, strict=True):
        unit = own.bound / math.sqrt(own.share / total) / _GRID
        values = noisy[start : start + flat.shape[1]] * unit
        sums[name] = _unpacked(values, own)
        deviations[name] = scale * unit
        start += flat.shape[1]
    statement |= {
        "sensitivity": {
            name: own.bound * (1.0 if budget.neighbours == ADD_REMOVE else own.replaced)
            for name, own in statistics.items()
        },
        "noise_sd": deviations,
    }
    return Noised(sums, deviations, statement)


def check_statistics(statistics: Mapping[str, Statistic]) -> None:
    """Refuse bounds and shares that are none, rows beyond their bound, and tables that differ."""
    for name, own in statistics.items():
        for key in ("bound", "share", "replaced"):
            check_number(f"{key} of {name!r}", getattr(own, key))
        rows = np.asarray(own.rows)
        if rows.ndim == 0 or rows.dtype.kind not in "bifu":
            raise KLFusionError(f"{name}: expected rows of numbers, got {brief(own.rows)}")
        largest = float(np.sqrt(np.square(_packed(own)).sum(axis=1).max(initial=0.0)))
        if not largest <= own.bound * (1.0 + 1e-9):
            raise KLFusionError(f"{name}: expected rows clipped to norms of at most {own.bound:g}")
    numbers = {len(own.rows) for own in statistics.values()}
    if len(numbers) > 1:
        few = " and ".join(map(str, sorted(numbers)[:2]))
        raise KLFusionError(f"expected statistics of the same rows, got {few} rows")


def packed_rows(own: Statistic) -> FloatArray:
    """Rows (n, p) in units in which the noise of all statistics is the same."""
    return _packed(own) * (math.sqrt(own.share) / own.bound)


def _packed(own: Statistic) -> FloatArray:
    rows = np.asarray(own.rows, dtype=np.float64)
    if not own.symmetric:
        return rows.reshape(len(rows), -1)
    upper = np.triu_indices(rows.shape[-1])
    upper_rows = rows[..., *upper] * np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))
    return upper_rows.reshape(len(rows), -1)


def _unpacked(values: FloatArray, own: Statistic) -> FloatArray:
    shape = np.shape(own.rows)[1:]
    if not own.symmetric:
        return values.reshape(shape)
    upper, found = np.triu_indices(shape[-1]), np.zeros(shape)
    each = values.reshape(*shape[:-2], len(upper[0]))
    found[..., *upper] = each / np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))
    return np.asarray(found + np.swapaxes(np.triu(found, 1), -1, -2))


def _secure(
    whole: Any, scale: float, sensitivity: float, budget: Budget
) -> tuple[FloatArray, dict[str, Any]]:
    """The whole numbers with OpenDP's noise, and the budget that OpenDP says this spends."""
    dp = library()
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    measurement = dp.m.make_gaussian(*space, scale=scale)
    rho = measurement.map(sensitivity)
    statement = {
        "mechanism": f"discrete Gaussian of OpenDP {dp.__version__}",
        "neighbours": budget.neighbours,
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "rho": rho,
    }
    assert epsilon_of(rho, budget.delta) <= budget.epsilon * (1 + 1e-6)
    return np.array(measurement(whole.tolist()), dtype=np.float64), statement


@cache
def multiplier(epsilon: float, delta: float) -> float:
    """The least scale of noise for a sensitivity of 1."""
    low, high = _SCALES
    while high > low * (1.0 + _PRECISION):
        middle = math.sqrt(low * high)
        enough = epsilon_of(0.5 / middle**2, delta) <= epsilon
        low, high = (low, middle) if enough else (middle, high)
    return high * (1.0 + 1e-9)  # rho is rounded up


@cache
def epsilon_of(rho: float, delta: float) -> float:
    """The epsilon at ``delta`` of zero-concentrated differential privacy with ``rho``."""
    dp = library()
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    gaussian = dp.m.make_gaussian(*space, scale=math.sqrt(0.5 / rho))
    profile = dp.c.make_zCDP_to_approxDP(gaussian).map(1.0)
    return float(profile.epsilon(delta))


def library() -> Any:
    """OpenDP."""
    try:
        import opendp.prelude as dp  # noqa: PLC0415 (an extra)
    except ImportError as error:
        install = "pip install 'klfusion[privacy]'"
        raise MissingDependencyError(
            f"privacy needs opendp, which is not installed: {install}"
        ) from error
    dp.enable_features("contrib")
    return dp
