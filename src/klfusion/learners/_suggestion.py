"""The kind of a column from values of it, for a person to check."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, gammaln

from klfusion._utils.arrays import FloatArray
from klfusion.errors import KLFusionError
from klfusion.learners._cells import is_missing, numbers, plain
from klfusion.learners.column import (
    BINARY,
    CATEGORICAL,
    CONTINUOUS,
    COUNTS,
    NUMERIC,
    ORDERED,
    SEMICONTINUOUS,
    Column,
)

# What a suggestion takes for codes, and for counts; a person decides.
_TWICE = 2 / 3  # share of the first of two values, where it is twice as frequent as the second
_MOST_CODES = 10  # distinct whole numbers
_LARGEST_MEAN_COUNT = 20.0
_CENTRAL = (2.5, 97.5)  # percentiles: a reference range holds 95 % by convention
_DATE = re.compile(r"\d{1,4}([-./])\d{1,2}\1\d{1,4}([ T].*)?")
_DIGITS = 2  # of a suggested range, which is to say little about any patient


def suggested(
    name: str,
    values: NDArray[Any],
    kind: str | None,
    unit: str | None,
    levels: tuple[Sequence[Any], bool] | None,
) -> Column | str:
    """A column from values of it; or why there is none.

    ``levels`` are the categories that a frame declares, and whether they are in order.
    """
    present = [v for v in values.tolist() if not is_missing(v)]
    where = f"column {name!r}"
    if levels is not None and kind not in NUMERIC and len(levels[0]) > 1:
        ordered = ORDERED if levels[1] and len(levels[0]) > 2 else _of_categories(levels[0])
        return Column(name, kind or ordered, categories=tuple(levels[0]), unit=unit)
    reason = _why_not(present) or (None if kind is not None else _why_unclear(present))
    if reason is not None:
        return reason
    distinct = sorted(set(map(plain, present)), key=lambda v: (isinstance(v, str), v))
    if kind is None:
        numeric = not any(isinstance(v, str | bool) for v in distinct)
        kind = _kind(present, distinct) if numeric else _of_categories(distinct)
    if kind not in NUMERIC:
        return Column(name, kind, categories=tuple(distinct), unit=unit)
    values, at = numbers(np.array(present, dtype=object), where), None
    if not np.isfinite(values).all():
        raise KLFusionError(f"{where}: expected finite numbers, got {values.max():g}")
    if kind == SEMICONTINUOUS:
        at = float(Counter(values.tolist()).most_common(1)[0][0])
        values = values[values != at]
        if len(np.unique(values)) == 1:
            raise KLFusionError(f"{where}: expected values that vary beside {at:g}, got one")
    low, high = np.percentile(values, _CENTRAL).tolist()
    log = kind != COUNTS and _is_skewed(values)
    sizes = (low, high) if log else (high - low, high - low)  # the digits are of these
    ends = _rounded(low, sizes[0], math.floor), _rounded(high, sizes[1], math.ceil)
    return Column(name, kind, ends, unit=unit, point_mass=at, log=log)


def _of_categories(distinct: Sequence[Any]) -> str:
    return BINARY if len(distinct) == 2 else CATEGORICAL


def _why_not(present: Sequence[Any]) -> str | None:
    """Why values make no column, or None."""
    if not present:
        return "no values"
    odd = [v for v in present if not isinstance(v, str | int | float)]
    if odd:
        return f"values of type {type(odd[0]).__name__}, not text or numbers"
    return f"all values are {present[0]!r}" if len(set(present)) == 1 else None


def _why_unclear(present: Sequence[Any]) -> str | None:
    """Why the kind of values is unclear, or None.

    By Good and Turing, the share of values that occur once is the probability that the next is
    none of those seen. If that is above one half, categories do not describe other patients.
    """
    counts = Counter(present)
    texts = [value for value in counts if isinstance(value, str)]
    others = sorted(value for value in counts if not isinstance(value, str))
    if texts and others:
        return f"text and numbers, such as {texts[0]!r} and {others[0]!r}"
    if texts:
        once = sum(n == 1 for n in counts.values()) > 0.5 * len(present)
        read = [_number_of(text) for text in texts]
        known = [number for number in read if number is not None]
        if all(map(_DATE.fullmatch, texts)):
            return "dates as text"
        if len(texts) < 3:
            return None
        if len(known) == len(texts) and (once or not _are_codes(known)):
            return "numbers as text"
        return "most values occur once" if once else None
    numbered = len(others) == len(present) == others[-1] - others[0] + 1
    whole = numbered and all(float(value).is_integer() for value in others)
    return "consecutive numbers, each once" if whole and len(others) > _MOST_CODES else None


def _number_of(text: str) -> float | None:
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return None


def _rounded(end: float, size: float, towards: Callable[[float], int]) -> float:
    """An end of a range to as many digits as a suggestion has."""
    power = math.floor(math.log10(max(size, 1e-300))) - _DIGITS + 1
    step = 10.0**power
    return round(towards(end / step) * step, max(0, 1 - power))


def _is_skewed(values: FloatArray) -> bool:
    """Whether the likelihood of a log-Normal distribution exceeds that of a Normal one."""
    if values.min() <= 0:
        return False
    logs = np.log(values)
    return bool(np.log(values.std()) > np.log(logs.std()) + logs.mean())


def _kind(present: Sequence[Any], distinct: Sequence[Any]) -> str:
    """The kind of a column of numbers."""
    if len(distinct) == 2:
        return BINARY
    codes = _are_codes(distinct)
    whole = codes or all(float(v).is_integer() for v in distinct)
    if whole and distinct[0] == 0 and float(np.mean(present)) < _LARGEST_MEAN_COUNT:
        return CATEGORICAL if codes and not _are_counts(present) else COUNTS
    if codes:
        return CATEGORICAL
    return SEMICONTINUOUS if _has_point_mass(present) else CONTINUOUS


def _are_codes(distinct: Sequence[Any]) -> bool:
    """Whether numbers are whole and few."""
    return len(distinct) <= _MOST_CODES and all(float(v).is_integer() for v in distinct)


def _are_counts(present: Sequence[Any]) -> bool:
    """Whether few whole numbers from zero are counts rather than codes, by Schwarz's criterion.

    Counts have a Poisson distribution, or, if their variance is larger, a negative binomial one.
    Codes have a share each.
    """
    found = Counter(present)
    values, times = np.array([*found], dtype=np.float64), np.array([*found.values()])
    n, mean = times.sum(), float(np.mean(present))
    excess = float(np.var(present)) - mean
    counted = values * math.log(mean) - gammaln(values + 1.0) - mean
    if excess > 0:
        size = mean**2 / excess
        counted = gammaln(values + size) - gammaln(values + 1.0) - gammaln(size)
        counted += size * math.log(size / (size + mean)) + values * math.log(mean / (size + mean))
    more = len(values) - 1 - (2 if excess > 0 else 1)  # parameters of codes
    return bool(times @ (counted - np.log(times / n)) > -0.5 * more * math.log(n))


def _has_point_mass(present: Sequence[Any]) -> bool:
    """Whether the most frequent value is more so than rounding a density explains.

    A Normal density rounded to less than its deviation has neighbouring values nearly as frequent
    as the most frequent one; so has an exponential one. Round numbers that people prefer come in
    sets. So without a point mass the most frequent value is at most twice as probable as the
    second. Both are equally likely beforehand: that it is, and that it is not, for one of the
    values. The probability of the first value, among the two, is uniform above and below.
    """
    counts = Counter(present).most_common()
    first, second = counts[0][1], counts[1][1]
    below = betainc(first + 1.0, second + 1.0, _TWICE)
    odds = (1.0 - below) / (1.0 - _TWICE) * _TWICE / max(below, np.finfo(np.float64).tiny)
    return bool(odds > len(counts))
