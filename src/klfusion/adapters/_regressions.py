"""What the adapters of regressions share: the data, the prior, and Laplace's approximation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion._utils.package import provenance
from klfusion._utils.text import brief, few
from klfusion.adapters._library import versions
from klfusion.adapters._likelihoods import Likelihood, expanded, mode
from klfusion.errors import KLFusionError
from klfusion.fusion.result import Fusion
from klfusion.posteriors.coefficients import prior_precision, regression
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure.regression import OF_LIKELIHOOD, Information

INTERCEPT = "intercept"
_ROUNDING = 1e-12  # relative, of moments
Prior = float | Mapping[str, float] | None


@dataclass(frozen=True)
class Options:
    """What every regression's `extract` takes, as `klfusion.coefficients` explains it.

    ``at`` is a fusion of the other silos. The likelihood is expanded at the mode that it and the
    silo's own data have, which corrects Laplace's approximation where the data are few.
    """

    name: str
    prior_sd: Prior = None
    local: Sequence[str] = ()
    units: Mapping[str, str] | None = None
    at: Fusion | Posterior | None = None
    info: Mapping[str, Any] = field(default_factory=dict)  # package, class and settings

    def posterior(
        self,
        names: Sequence[str],
        likelihood: Information,
        precision: FloatArray,
        n: float | None,
        arrays: Mapping[str, Any] | None = None,
    ) -> Posterior:
        """The posterior of a Gaussian likelihood and a prior with this precision, or diagonal."""
        precision = precision if precision.ndim == 2 else np.diag(precision)
        whole = Information(likelihood.shift, likelihood.precision + precision)
        info = {**self.info, "units": dict(self.units or {}), "columns": [*names]}
        made = regression(whole, precision, names, self.name, self.local, n, info, arrays)
        object.__setattr__(made, "provenance", provenance(**versions(str(info["package"]))))
        return made

    def precision(self, names: Sequence[str], own: FloatArray | None = None) -> FloatArray:
        """The diagonal of the prior's precision: as asked for, else ``own``, else flat."""
        if self.prior_sd is None and own is not None:
            return own
        return prior_precision(names, self.prior_sd, f"silo {self.name!r}")

    def laplace(
        self,
        names: Sequence[str],
        likelihood: Likelihood,
        own: FloatArray | None,
        n: float,
        arrays: Mapping[str, Any] | None = None,
    ) -> Posterior:
        """Laplace's approximation of the silo's posterior; a matrix ``own`` is the prior."""
        precision, point = self.centre(names, likelihood, own)
        return self.posterior(names, expanded(likelihood, point), precision, n, arrays)

    def centre(
        self,
        names: Sequence[str],
        likelihood: Likelihood,
        own: FloatArray | None,
        start: FloatArray | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """The prior's precision matrix, and the mode that the likelihood is expanded at."""
        matrix = own is not None and own.ndim == 2
        precision = np.asarray(own) if matrix else np.diag(self.precision(names, own))
        prior = Information(np.zeros(len(names)), precision)
        if self.at is not None:
            prior = self._others(names, prior)
        return precision, mode(likelihood, prior, names, start)

    def _others(self, names: Sequence[str], own: Information) -> Information:
        """What other silos say about the shared coefficients, and the prior of the others."""
        if isinstance(self.at, Fusion) and self.name in self.at.silo_names:
            raise KLFusionError(
                f"at: expected a fusion of the other silos, got one with {self.name!r}: "
                f"fusion.remove({self.name!r})"
            )
        at = self.at.site() if isinstance(self.at, Fusion) else self.at
        info = {} if at is None or at.structure is None else at.structure.info
        known = list(info.get("coordinates", []))
        if at is None or not known:
            raise KLFusionError(f"at: expected a fusion of regressions, got {self.at!r}")
        for key in OF_LIKELIHOOD:
            mine, theirs = self.info.get(key), info.get(key)
            if None not in (mine, theirs) and mine != theirs:
                raise KLFusionError(f"at: expected regressions with {key} {mine!r}, got {theirs!r}")
        rows = [known.index(key) for key in names if key in known and key not in self.local]
        where = np.array([names.index(known[row]) for row in rows], dtype=np.intp)
        if len(where) == 0:
            raise KLFusionError(f"at: expected coefficients of {few(names)}, got {few(known)}")
        rest = np.setdiff1d(np.arange(len(known)), rows)
        there = Information.of(at.natural[0], len(known))
        shared = there.split(rest)[0] if len(rest) else there
        shared = shared.some(np.argsort(np.argsort(rows)))  # `split` keeps the order of rows
        others = shared.spread(where, len(names))
        keep = np.ones(len(names))
        keep[where] = 0.0
        return Information(
            others.shift + keep * own.shift,
            others.precision + np.outer(keep, keep) * own.precision,
        )


def table(data: Any, known: Sequence[str] | None, n_outputs: int = 2) -> tuple[Any, ...]:
    """Columns (n, d), their names and the outcome from ``data``; a frame's columns are sorted.

    ``known`` are the columns that a model was fitted to.
    """
    if not isinstance(data, tuple | list) or len(data) != n_outputs:
        raise KLFusionError(f"expected data=(x, y), as fit takes them, got {type(data).__name__}")
    x, y = data
    names = None if not hasattr(x, "columns") else [str(c) for c in x.columns]
    if names is not None:
        again = next((c for i, c in enumerate(names) if c in names[:i]), None)
        if again is not None:
            raise KLFusionError(f"expected different columns, got {again!r} twice")
    if known is not None and names is not None:
        missing = [c for c in known if c not in names]
        if missing:
            raise KLFusionError(f"expected the columns of the fit, got none named {few(missing)}")
        x, names = x[list(known)] if list(x.columns) != list(known) else x, [*known]
    array = _numbers(x)
    if array.ndim != 2:
        raise KLFusionError(f"expected x of shape (n, d), got {array.shape}")
    if y is not None and np.shape(y)[:1] != (len(array),):
        raise KLFusionError(f"expected y with {len(array)} rows, as x, got shape {np.shape(y)}")
    outcome = np.asarray(0.0 if y is None else y)
    if len(array) == 0 or (outcome.ndim > 1 and outcome.shape[1:] != (1,)):
        raise KLFusionError(f"expected rows, and y with one column, got shape {outcome.shape}")
    if outcome.dtype.kind == "f" and not np.isfinite(outcome).all():
        raise KLFusionError("expected y without gaps, got missing or infinite values")
    names = names or ([*known] if known is not None else [f"x{k}" for k in range(array.shape[1])])
    if len(names) != array.shape[1]:
        raise KLFusionError(f"expected {len(names)} columns, got {array.shape[1]}")
    bad = [
        name for name, column in zip(names, array.T, strict=True) if not np.isfinite(column).all()
    ]
    if bad:
        raise KLFusionError(f"expected numbers without gaps, got missing or infinite {few(bad)}")
    return array, names, y


def references(specification: Any, names: Sequence[str]) -> dict[str, str]:
    """The level that others are against, by categorical factor of a formula.

    ``specification`` is a ``DesignInfo`` of patsy or a ``ModelSpec`` of formulaic. Both call a
    column that is against the reference ``factor[T.level]``.
    """
    if hasattr(specification, "factor_infos"):
        infos = specification.factor_infos.items()
        levels = {factor.name(): info.categories or () for factor, info in infos}
    else:
        states = dict(getattr(specification, "encoder_state", None) or {})
        levels = {factor: state[1].get("categories", ()) for factor, state in states.items()}
    columns = {part for name in names for part in name.split(":")}
    found = {}
    for factor, own in levels.items():
        lacking = [level for level in own if f"{factor}[T.{level}]" not in columns]
        if len(lacking) == 1 and len(own) > 1:
            level = lacking[0]
            whole = isinstance(level, float) and level.is_integer()
            found[factor] = str(int(level) if whole else level)
    return found


def numbers_of(y: Any) -> FloatArray:
    """An outcome (n,) of numbers."""
    outcome = np.asarray(y).reshape(-1)
    for value in [] if outcome.dtype.kind in "fiub" else outcome.tolist():
        try:
            float(value)
        except (TypeError, ValueError) as error:
            raise KLFusionError(f"expected numbers in y, got {brief(value)}") from error
    return outcome.astype(np.float64)


def outcome_of(y: Any) -> dict[str, list[str | None]]:
    """The name of a column of outcomes, if it has one."""
    names = list(y.columns) if hasattr(y, "columns") else [getattr(y, "name", None)]
    return {"outcome": names} if all(isinstance(name, str) for name in names) else {}


def _numbers(x: Any) -> FloatArray:
    """A table as an array; text is refused by the name of its column."""
    try:
        return np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError) as error:
        for name in getattr(x, "columns", []):
            try:
                np.asarray(x[name], dtype=np.float64)
            except (TypeError, ValueError):
                raise KLFusionError(
                    f"expected numbers in column {str(name)!r}, got {brief(x[name].iloc[0])}: "
                    "code categories as columns of 0 and 1"
                ) from error
        raise KLFusionError(f"expected numbers in x: {error}") from error


def scales(x: FloatArray, names: Sequence[str]) -> dict[str, float]:
    """Standard deviations of columns of more than two values, to find silos with other units."""
    values = [len(np.unique(column)) for column in x.T]
    return {
        name: float(f"{column.std():.2g}") if several > 1 else 0.0
        for name, column, several in zip(names, x.T, values, strict=True)
        if several != 2
    }


def scales_of(mean: FloatArray, variance: FloatArray, names: Sequence[str]) -> dict[str, float]:
    """The same from moments of columns; those of zeros and ones have two values."""
    two = np.abs(variance - mean * (1.0 - mean)) <= _ROUNDING * (mean**2 + variance)
    constant = variance <= _ROUNDING * (mean**2 + variance)
    return {
        name: 0.0 if still else float(f"{np.sqrt(own):.2g}")
        for name, own, still, kept in zip(names, variance, constant, ~two | constant, strict=True)
        if kept
    }


def with_intercept(x: FloatArray, names: Sequence[str], fit_intercept: bool) -> tuple[Any, Any]:
    """The design matrix and its names."""
    if not fit_intercept:
        return x, [*names]
    if INTERCEPT in names:
        raise KLFusionError(f"expected no column named {INTERCEPT!r} beside the model's own")
    return np.hstack([np.ones((len(x), 1)), x]), [INTERCEPT, *names]
