"""Posteriors of coefficients by name."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion._utils.text import brief, few
from klfusion.errors import InvalidPosteriorError, KLFusionError
from klfusion.families import Normal
from klfusion.families.family import numbers
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import Structure
from klfusion.posteriors.structure.checked import are_texts
from klfusion.posteriors.structure.regression import KIND, Information, names_of
from klfusion.posteriors.structure.words import normalised


def coefficients(
    mean: ArrayLike,
    covariance: ArrayLike,
    coordinates: Sequence[str],
    *,
    name: str,
    prior_sd: float | Mapping[str, float] | None = None,
    local: Sequence[str] = (),
    units: Mapping[str, str] | None = None,
    likelihood: str | None = None,
    n_observations: float | None = None,
) -> Posterior:
    """The posterior of a regression's coefficients, from any software.

    Parameters
    ----------
    mean, covariance : arrays of shape (d,) and (d, d)
        Estimates and their covariance matrix. A Series and a data frame of pandas with text as
        labels are taken by label, arrays in the order of ``coordinates``.
    coordinates : sequence of str
        The names of the coefficients. Silos may have them in any order.
    name : str
        The silo's name.
    prior_sd : float or mapping of name to float, optional
        Standard deviations of the prior, which is Normal around zero, where the estimates include
        one. It is counted once. The prior of other coefficients is flat.
    local : sequence of str
        Coefficients that differ between silos, such as ``["intercept"]``. They are marginalised
        out, and given back by ``fusion.model(name)``.
    units : mapping of name to str, optional
        Of columns; silos that give other units are refused.
    likelihood : str, optional
        Model of an observation, such as ``"logistic"``; silos must agree.
    n_observations : float, optional

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> a = kf.coefficients([1.0, 0.5], np.diag([0.1, 0.2]), ["age", "dose"], name="a")
    >>> b = kf.coefficients([0.7, 1.0], np.diag([0.2, 0.1]), ["dose", "age"], name="b")
    >>> kf.fuse([a, b]).posterior.params()["mean"]
    array([[1. , 0.6]])
    """
    where = f"silo {name!r}"
    try:
        listed = [coordinates] if isinstance(coordinates, str) else [*coordinates]
    except TypeError as error:
        got = brief(coordinates)
        text = f"{where}: expected coordinates to be a list of names, got {got}"
        raise KLFusionError(text) from error
    names = names_of({"coordinates": listed}, "coordinates", where)
    given = numbers(mean, f"{where}: mean").reshape(-1)
    if len(given) != len(names):
        expected = f"expected {len(names)} coefficients, as many as coordinates has names"
        raise KLFusionError(f"{where}: {expected}, got {len(given)} in mean")
    if np.shape(covariance) != (len(names), len(names)):
        expected = f"expected a covariance matrix of shape {(len(names), len(names))}"
        raise KLFusionError(f"{where}: {expected}, got {np.shape(covariance)}")
    spread = numbers(covariance, f"{where}: covariance")
    line = getattr(mean, "squeeze", lambda: mean)()  # of a data frame with one row or column
    given = _by_label(given, line, names, f"{where}: mean")
    spread = _by_label(spread, covariance, names, f"{where}: covariance")
    family = Normal(len(names))
    natural = _natural(family, given, spread, names, where)
    precision = np.diag(prior_precision(names, prior_sd, where))
    settings = {"likelihood": likelihood, "units": dict(units or {})}
    return regression(
        Information.of(natural, family.dim), precision, names, name, local, n_observations, settings
    )


def _by_label(values: FloatArray, given: Any, names: Sequence[str], what: str) -> FloatArray:
    """Values in the order of names, by the labels of what was given, if these are text.

    An axis without such labels has those of the other.
    """
    axes = [[*map(normalised, own)] for own in getattr(given, "axes", ()) if are_texts([*own])]
    for own in axes:
        if sorted(own) != sorted(names):
            expected = f"expected the labels {few(names)}, as coordinates has them"
            raise KLFusionError(
                f"{what}: {expected}, got {few(own)}: rename them, or give an array in this order"
            )
    places = [[own.index(name) for name in names] for own in axes]
    return values[np.ix_(*(places * values.ndim)[: values.ndim])] if places else values


def _natural(
    family: Normal, mean: FloatArray, covariance: FloatArray, names: Sequence[str], where: str
) -> FloatArray:
    """Natural parameters (p,); errors name the silo, and the coefficient where it is one."""
    expected: list[tuple[str, FloatArray, BoolArray]] = [
        ("a finite mean", mean, np.isfinite(mean)),
        ("finite covariances", covariance, np.isfinite(covariance)),
        ("a variance > 0", np.diag(covariance), np.diag(covariance) > 0),
    ]
    for what, values, good in expected:
        for at in np.argwhere(~good)[:1]:
            which = few([names[k] for k in dict.fromkeys(at.tolist())])
            got = f"got {values[tuple(at)]:.6g}"
            raise InvalidPosteriorError(f"{where}: expected {what} of {which}, {got}")
    try:
        return np.asarray(family.natural(mean[None], covariance[None])[0])
    except KLFusionError as error:
        raise InvalidPosteriorError(f"{where}, {error}") from error


def prior_precision(
    names: Sequence[str], prior_sd: float | Mapping[str, float] | None, where: str
) -> FloatArray:
    """The diagonal of a prior's precision; zero is flat."""
    if prior_sd is None:
        return np.zeros(len(names))
    given = dict(prior_sd) if isinstance(prior_sd, Mapping) else dict.fromkeys(names, prior_sd)
    unknown = [key for key in given if key not in names]
    if unknown:
        raise KLFusionError(
            f"{where}: prior_sd: expected names of {few(names)}, got {few(unknown)}"
        )
    for key, value in given.items():
        if not (np.isscalar(value) and np.isreal(value) and float(value) > 0):  # type: ignore[arg-type]
            raise KLFusionError(f"{where}: expected prior_sd > 0 of {key!r}, got {value!r}")
    return np.array([1.0 / float(given[n]) ** 2 if n in given else 0.0 for n in names])


def check_local(local: Sequence[str], names: Sequence[str], where: str) -> None:
    """Refuse local coefficients that are none, and a regression that has no others."""
    unknown = [key for key in local if key not in names]
    if isinstance(local, str) or unknown:
        got = repr(local) if isinstance(local, str) else few(unknown)
        raise KLFusionError(f"{where}: local: expected a list of names of {few(names)}, got {got}")
    if len(set(local)) == len(names):
        raise KLFusionError(f"{where}: expected a coefficient that silos share, got none")


def regression(
    information: Information,
    prior: FloatArray | Information,
    names: Sequence[str],
    name: str,
    local: Sequence[str],
    n_observations: float | None,
    info: Mapping[str, Any],
    arrays: Mapping[str, Any] | None = None,
) -> Posterior:
    """A regression as a posterior of one component; a prior (d, d) is its precision matrix."""
    where = f"silo {name!r}"
    check_local(local, names, where)
    units = info.get("units") or {}
    unknown = [key for key in units if key not in names]
    if unknown:
        raise KLFusionError(f"{where}: units: expected names of {few(names)}, got {few(unknown)}")
    if not flattest(information)[0] > np.finfo(np.float64).eps * len(names):
        raise InvalidPosteriorError(
            f"{where}: expected an information matrix of full rank, got "
            f"{_least_known(information, names)}: a constant or repeated column, or separated "
            "classes; drop the column or give prior_sd"
        )
    settings = {**info, "coordinates": [*names], "local": sorted(local), "units": dict(units)}
    if not isinstance(prior, Information):
        prior = Information(np.zeros(len(names)), prior)
    return Posterior(
        Normal(len(names)),
        information.natural()[None],
        name=name,
        prior=prior.natural(),
        counts=None if n_observations is None else np.array([n_observations], dtype=np.float64),
        structure=Structure(KIND, arrays or {}, settings),
    )


def flattest(information: Information) -> tuple[float, FloatArray]:
    """The smallest eigenvalue of the precision matrix scaled to a unit diagonal, and its vector."""
    scale = np.sqrt(np.maximum(np.diag(information.precision), 0.0))  # noise may say less than none
    if not (np.isfinite(information.precision).all() and (scale > 0).all()):
        return 0.0, (~(scale > 0)).astype(np.float64)
    values, vectors = np.linalg.eigh(information.precision / np.outer(scale, scale))
    return float(values[0]), np.asarray(vectors[:, 0])


def leading(directions: FloatArray) -> IntArray:
    """The coefficients, in order, that directions (d, n) of unit scale are mostly about."""
    size = np.abs(directions)
    return np.flatnonzero((size > 0.1 * size.max(axis=0)).any(axis=1))


def narrower(prior: Information, posterior: Information, most: float = 1.0) -> IntArray:
    """Coefficients of directions in which a prior is more than ``most`` times as precise.

    Data take nothing from the precision of a prior, unless they contradict it or it is another one.
    """
    scale = np.sqrt(np.diag(posterior.precision))
    apart = (prior.precision - most * posterior.precision) / np.outer(scale, scale)
    values, vectors = np.linalg.eigh(apart)
    return leading(vectors[:, values > np.sqrt(np.finfo(np.float64).eps)])


def wider_than_prior(posterior: Posterior) -> list[str]:
    """Coefficients of which a regression's posterior is wider than its prior."""
    assert posterior.structure is not None and posterior.prior is not None
    names = posterior.structure.info["coordinates"]
    before, own = (Information.of(e, len(names)) for e in (posterior.prior, posterior.natural[0]))
    return [names[k] for k in narrower(before, own).tolist()]


def _least_known(information: Information, names: Sequence[str]) -> str:
    """The coefficients of the direction with the least information."""
    rows = leading(flattest(information)[1][:, None])
    return f"none about {few([names[k] for k in rows.tolist()])}"


def is_regression(posterior: Any) -> bool:
    """Whether a posterior has coefficients by name."""
    return posterior.structure is not None and posterior.structure.kind == KIND
