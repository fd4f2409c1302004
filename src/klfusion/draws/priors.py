"""Priors of variables as Gaussians over unconstrained coordinates.

The log-density of a prior, with the derivative of the transform, is approximated by the quadratic
nearest to it on average over the silo's draws. Where draws are Normal, its coefficients are the
expected gradient and curvature. A quadratic, such as a Normal prior's, is itself. A flat prior of a
positive variable is linear in its logarithm. The precision of a prior with heavy tails, far from
its centre, is negative, as is that of some transforms: likelihoods without it are as precise.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion._utils.checks import is_number
from klfusion._utils.text import brief, few
from klfusion.draws.supports import Support
from klfusion.draws.variables import Draws, Variable, columns_of
from klfusion.errors import KLFusionError
from klfusion.posteriors.structure.regression import Information

FLAT = "flat"
_ROUNDING = 1e-10  # share of the draws' precision below which a fitted curvature is rounding


def prior_by_name(names: Sequence[str], prior: Any, where: str) -> dict[str, Any]:
    """The prior of each variable that has one; one for all is that of each."""
    given = dict(prior) if isinstance(prior, Mapping) else dict.fromkeys(names, prior)
    unknown = [key for key in given if key not in names]
    if unknown:
        expected = f"expected names of {few([*names])}"
        raise KLFusionError(f"{where}: prior: {expected}, got {few(unknown)}")
    return {key: own for key, own in given.items() if own is not None}


def prior_information(draws: Draws, prior: Any, where: str) -> Information:
    """The prior over all coordinates of the draws; see `klfusion.from_draws` for what is taken."""
    given = prior_by_name([v.name for v in draws.variables], prior, where)
    table = draws.table()
    x = table.reshape(-1, table.shape[-1])
    shift, precision = np.zeros(x.shape[1]), np.zeros((x.shape[1], x.shape[1]))
    where_of = {v.name: np.arange(x.shape[1])[own] for v, own in draws.columns()}
    for variable, columns in draws.columns():
        own = given.get(variable.name, FLAT)
        here = f"{where}: prior of {variable.name!r}"
        values = draws.values[variable.name].reshape(len(x), *variable.shape)
        rows = where_of[variable.name]
        if isinstance(own, np.ndarray) and (variable.scale or variable.support.kind == "inverse"):
            own = _density_of_draws(variable, own, here)
        if variable.scale is None:
            # Flat variables in units of this one: a volume that grows with it.
            flat = [v.size for v in draws.variables
                    if v.scale == variable.name and _is_flat(given.get(v.name, FLAT))]  # fmt: skip
            volume = np.log(np.abs(values)) * sum(flat) if flat else None
            part = _information(variable, own, values, x[:, columns], here, volume)
        elif _is_flat(own):
            continue
        else:
            rows = np.concatenate([rows, where_of[variable.scale]])
            unit = draws.values[variable.scale].ravel()
            whole = values * unit.reshape(-1, *[1] * len(variable.shape))
            density = _log_density(own, _normal(own), whole, here).reshape(len(x), -1).sum(axis=1)
            part = Information(*_quadratic(x[:, rows], density + variable.size * np.log(unit)))
        shift[rows] += part.shift
        precision[np.ix_(rows, rows)] += part.precision
    return Information(shift, precision)


def log_prior(
    variables: Sequence[Variable], values: Mapping[str, FloatArray], x: FloatArray, prior: Any,
    where: str,
) -> FloatArray:  # fmt: skip
    """Log-density (n,) of coordinates x (n, d) under the priors of the variables' values."""
    total = np.zeros(len(x))
    given = prior_by_name([v.name for v in variables], prior, where)
    for variable, columns in columns_of(variables):
        own = given.get(variable.name, FLAT)
        here = f"{where}: prior of {variable.name!r}"
        if isinstance(own, np.ndarray):
            raise KLFusionError(f"{here}: expected a density, got draws")
        density = _log_density(own, _normal(own), values[variable.name], here)
        jacobian = variable.log_jacobian(x[:, columns])
        total += density.reshape(len(x), -1).sum(axis=1) + jacobian.reshape(len(x), -1).sum(axis=1)
        if variable.scale is not None:
            total += variable.size * np.log(values[variable.scale])
    return total


def _is_flat(given: Any) -> bool:
    return isinstance(given, str) and given == FLAT


def _information(
    variable: Variable,
    given: Any,
    values: FloatArray,
    x: FloatArray,
    here: str,
    volume: FloatArray | None = None,
) -> Information:
    """The prior of one variable; ``volume`` (n,) is added to its log-density."""
    if isinstance(given, np.ndarray):
        return _of_draws(variable, given, here)
    pair = _normal(given)
    if pair is not None and variable.support.kind == "real":
        size = variable.size
        return Information(np.full(size, pair[0] / pair[1] ** 2), np.eye(size) / pair[1] ** 2)
    density = _log_density(given, pair, values, here)
    if volume is not None:
        density = density + volume[:, None]
    jacobian = variable.log_jacobian(x)
    if density.ndim == 2 and jacobian.ndim == 2:
        parts = [_quadratic(x[:, [k]], y) for k, y in enumerate((density + jacobian).T)]
        shifts, precisions = zip(*parts, strict=True)
        return Information(np.concatenate(shifts), np.diag(np.ravel(precisions)))
    total = density.reshape(len(x), -1).sum(axis=1) + jacobian.reshape(len(x), -1).sum(axis=1)
    return Information(*_quadratic(x, total))


def _normal(given: Any) -> tuple[float, float] | None:
    """Mean and deviation of a Normal: a deviation alone is around zero."""
    if is_number(given):
        pair = (0.0, float(given))
    elif isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 2:
        if not all(map(is_number, given)):
            return None
        pair = (float(given[0]), float(given[1]))
    else:
        return None
    return pair if np.isfinite(pair).all() and pair[1] > 0 else None


def _log_density(
    given: Any, normal: tuple[float, float] | None, values: FloatArray, here: str
) -> FloatArray:
    """Log-density at values (n, ...), per element (n, size) or of all of a draw (n,)."""
    n = len(values)
    if _is_flat(given):
        return np.zeros((n, values[0].size))
    if normal is not None:
        return np.asarray(-0.5 * ((values - normal[0]) / normal[1]) ** 2).reshape(n, -1)
    function = getattr(given, "logpdf", None) or getattr(given, "log_prob", None) or given
    if not callable(function):
        raise KLFusionError(
            f"{here}: expected 'flat', a standard deviation, a mean and a deviation, draws, or a "
            f"distribution with logpdf or log_prob, got {brief(given)}"
        )
    try:
        found = np.asarray(function(_tensor(given, values)), dtype=np.float64)
        if found.shape == values.shape:
            found = found.reshape(n, -1)
        else:
            found = found.reshape(n, -1).sum(axis=1)
    except (TypeError, ValueError) as error:
        raise KLFusionError(
            f"{here}: expected the log-density of values {values.shape}, got {error}"
        ) from error
    if not np.isfinite(found).all():
        raise KLFusionError(f"{here}: expected a positive density at every draw, got none at some")
    return found


def _tensor(given: Any, values: FloatArray) -> Any:
    """Values as the distribution's library takes them."""
    if type(given).__module__.partition(".")[0] in ("torch", "pyro"):
        import torch  # noqa: PLC0415 (an extra)

        return torch.as_tensor(values)
    return values


def _quadratic(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Shift and precision of the quadratic nearest to ``y`` (n,) over rows of x (n, d)."""
    n, dim = x.shape
    centre, scale = x.mean(axis=0), x.std(axis=0)
    z = (x - centre) / scale
    rows, columns = np.tril_indices(dim)
    if len(rows) + dim + 1 >= n:  # too few draws for correlations
        rows = columns = np.arange(dim)
    features = np.hstack([np.ones((n, 1)), z, z[:, rows] * z[:, columns]])
    fitted = np.linalg.lstsq(features, y, rcond=None)[0]
    slope, curvature = fitted[1 : dim + 1], np.zeros((dim, dim))
    curvature[rows, columns] = fitted[dim + 1 :]
    precision = -(curvature + curvature.T)
    precision = np.where(np.abs(precision) > _ROUNDING, precision, 0.0) / np.outer(scale, scale)
    return slope / scale + precision @ centre, precision


def _of_draws(variable: Variable, given: FloatArray, here: str) -> Information:
    """The Normal with the moments of a prior's draws ``(..., *shape)``."""
    if given.shape[given.ndim - len(variable.shape) :] != variable.shape or given.ndim < 1:
        raise KLFusionError(f"{here}: expected draws of shape {variable.shape}, got {given.shape}")
    if given.dtype.kind not in "biuf":
        raise KLFusionError(f"{here}: expected draws to be numbers, got {given.dtype}")
    x = variable.unconstrain(np.asarray(given, dtype=np.float64)).reshape(-1, variable.size)
    if not np.isfinite(x).all() or len(x) <= variable.size + 2:
        raise KLFusionError(
            f"{here}: expected more than {variable.size + 2} finite draws within its support, "
            f"got {len(x)}"
        )
    precision = precision_of(np.cov(x.T).reshape(variable.size, -1), len(x))
    return Information(precision @ x.mean(axis=0), precision)


def _density_of_draws(variable: Variable, given: FloatArray, here: str) -> Callable[..., Any]:
    """The log-density of the Normal of a prior's draws; of their logarithms if positive."""
    positive = variable.support.kind == "inverse"
    plain = replace(variable, scale=None, support=Support("above", 0.0) if positive else Support())
    shift, precision = _of_draws(plain, given, here)
    mean = np.linalg.solve(precision, shift)

    def density(values: FloatArray) -> FloatArray:
        x = plain.unconstrain(values) - mean
        square = np.einsum("ni,ij,nj->n", x, precision, x)
        return np.asarray(-0.5 * square - (np.log(values) if positive else 0.0))

    return density


def precision_of(covariance: FloatArray, n: float) -> FloatArray:
    """The unbiased estimate of a precision matrix from the covariance of ``n`` draws.

    The inverse of a sample covariance is too large by ``(n - 1) / (n - d - 2)``, as the mean of an
    inverse Wishart distribution. Sums over silos would keep that bias.
    """
    factor = (n - len(covariance) - 2.0) / (n - 1.0)
    inverse = np.linalg.inv(covariance)
    return np.asarray(0.5 * factor * (inverse + inverse.T))
