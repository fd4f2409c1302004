"""Supports of variables by name, as files have them, and as names and draws suggest them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from klfusion._utils.arrays import FloatArray
from klfusion._utils.checks import is_number
from klfusion._utils.text import brief
from klfusion.draws.normality import BY_CHANCE
from klfusion.draws.transforms import TRANSFORMS, Transform
from klfusion.errors import KLFusionError
from klfusion.posteriors.variables import EVENT_AXES

# By the names that users write: kind, lower bound, upper bound.
_NAMED: dict[str, tuple[str, float | None, float | None]] = {
    "real": ("real", None, None),
    "positive": ("above", 0.0, None),
    "unit_interval": ("between", 0.0, 1.0),
    "simplex": ("simplex", None, None),
    "ordered": ("ordered", None, None),
    "positive_ordered": ("ordered", 0.0, None),
    "cholesky": ("cholesky", None, None),
    "cholesky_corr": ("cholesky_corr", None, None),
}
_TOLERANCE = 1e-4  # of sums that are one, in draws that may be stored as float32


@dataclass(frozen=True)
class Support:
    """Where the values of a variable lie.

    Parameters
    ----------
    kind : str
        ``"real"``, ``"above"``, ``"below"``, ``"between"``, ``"inverse"``, ``"softplus"``,
        ``"simplex"``, ``"ordered"``, ``"cholesky"`` or ``"cholesky_corr"``.
    lower, upper : float, optional
        Bounds.
    """

    kind: str = "real"
    lower: float | None = None
    upper: float | None = None

    @classmethod
    def of(cls, given: Any, where: str) -> Support:
        """From a name, a pair of bounds, or what `to_json` wrote."""
        found: Support | None = None
        if isinstance(given, Support):
            found = given
        elif isinstance(given, str) and given in _NAMED:
            found = cls(*_NAMED[given])
        elif isinstance(given, Mapping) and given.get("kind") in TRANSFORMS:
            found = cls(given["kind"], given.get("lower_bound"), given.get("upper_bound"))
        elif isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 2:
            found = _of_bounds(*given)
        if found is None or not all(b is None or is_number(b) for b in (found.lower, found.upper)):
            known = ", ".join(_NAMED)
            expected = f"expected a support of {known} or a pair of bounds"
            raise KLFusionError(f"{where}: {expected}, got {brief(given)}")
        bounds = [b for b in (found.lower, found.upper) if b is not None]
        if not np.isfinite(bounds).all() or not (len(bounds) < 2 or bounds[0] < bounds[1]):
            expected = "expected a lower bound below the upper one, both finite or None"
            raise KLFusionError(f"{where}: {expected}, got {brief(given)}")
        return found

    def to_json(self) -> dict[str, Any]:
        """A mapping for files."""
        bounds = {"lower_bound": self.lower, "upper_bound": self.upper}
        return {"kind": self.kind, **{key: b for key, b in bounds.items() if b is not None}}

    @property
    def transform(self) -> Transform:
        """To unconstrained coordinates and back."""
        return TRANSFORMS[self.kind](self.lower, self.upper)

    @property
    def event_dim(self) -> int:
        """How many of the last axes are one value."""
        return EVENT_AXES.get(self.kind, 0)

    def inside(self, values: FloatArray) -> bool:
        """Whether all values are within the support, up to rounding of sums that are one."""
        with np.errstate(invalid="ignore", divide="ignore"):
            if not np.isfinite(self.transform.unconstrain(values)).all():
                return False
        if self.kind == "simplex":
            return bool(np.abs(values.sum(axis=-1) - 1.0).max() < _TOLERANCE)
        if self.kind.startswith("cholesky"):
            rows = np.square(values).sum(axis=-1)
            unit = self.kind == "cholesky" or np.abs(rows - 1.0).max() < _TOLERANCE
            return bool(values.shape[-1] == values.shape[-2] and not np.triu(values, 1).any()
                        and unit)  # fmt: skip
        return True


def _of_bounds(low: Any, high: Any) -> Support:
    if low is None and high is None:
        return Support()
    if low is None or high is None:
        return Support("above" if high is None else "below", low, high)
    return Support("between", low, high)


def unbounded(name: str, values: FloatArray) -> list[str]:
    """A line if all draws (n, ...) of a real variable are within bounds that its Normal passes.

    Of as many draws of the Normal, some would be outside but for a probability of `BY_CHANCE`.
    """
    flat = values.reshape(len(values), -1)
    mean, deviation = flat.mean(axis=0), flat.std(axis=0)
    if not (flat > 0).all() or not deviation.all():
        return []
    kind, where = (
        ("unit_interval", "between 0 and 1") if flat.max() < 1 else ("positive", "above 0")
    )
    inside = (ndtr((1.0 - mean) / deviation) if kind == "unit_interval" else 1.0) - ndtr(
        -mean / deviation
    )
    if not (inside.min() ** len(flat)) < BY_CHANCE:
        return []
    text = f"every draw of {name!r} is {where}, {1.0 - inside.min():.1%} of its Normal is not"
    return [f"{text}: supports={{{name!r}: {kind!r}}}"]


_POSITIVE = {"sigma", "sd", "std", "tau", "scale", "noise", "rate", "concentration", "kappa"}
_FACTORS = {"l", "chol", "cholesky"}


def guessed(name: str, values: FloatArray) -> Support:
    """The support of a variable by its name and draws ``(n, ...)``.

    Rows that sum to one are a simplex. A name such as ``sigma`` or ``tau_group`` is positive,
    ``L`` or ``chol`` a Cholesky factor, provided that all draws are.
    """
    words = {*name.lower().replace(".", "_").split("_")}
    shape = values.shape[1:]
    candidates = []
    if len(shape) >= 2 and shape[-1] == shape[-2] > 1 and words & _FACTORS:
        candidates = [Support("cholesky_corr"), Support("cholesky")]
    if shape and shape[-1] > 1:
        candidates.append(Support("simplex"))
    if words & _POSITIVE:
        candidates.append(Support("above", 0.0))
    return next((support for support in candidates if support.inside(values)), Support())
