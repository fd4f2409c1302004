"""Regressions of several silos over one list of coefficients, matched by name."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from klfusion._utils.text import few
from klfusion.errors import IncompatibleSilosError, InvalidPosteriorError
from klfusion.families import Normal
from klfusion.posteriors.coefficients import is_regression
from klfusion.posteriors.noise import shared_noise, shared_prior
from klfusion.posteriors.posterior import Posterior, check_equal
from klfusion.posteriors.structure import Structure
from klfusion.posteriors.structure.regression import KIND, LOCAL, Information, names_of
from klfusion.posteriors.structure.words import normalised
from klfusion.posteriors.variables import check_variables

# What an error expects, by setting, where silos that say it differ.
_EXPECTED = {
    "classes": "the classes {}, which classes= sets,",
    "ties": "ties={!r}",
    "censoring": "{} censoring",
    "offset": "{}",
}
_CATEGORIES = ": declare all categories of the column at all silos, by pd.Categorical(categories=)"
_OF_COLUMNS = (
    ("units", "{!r} in {!r}", ""),
    ("reference", "levels of {!r} against {!r}", _CATEGORIES),
)
_POINT_ZERO = re.compile(r"(?<=\d)\.0+(?![\d.])")  # of an integer that is read as a float


def align_coefficients(posteriors: Sequence[Posterior]) -> list[Posterior]:
    """Regressions with the same shared coefficients in the same order, without local ones.

    A coefficient that a silo lacks gets the prior that other silos have for it. The noise of linear
    regressions, and a prior that silos estimated, are from all silos. Other models are returned
    unchanged.
    """
    if not all(map(is_regression, posteriors)):
        return list(posteriors)
    infos = [(p.name, _info(p)) for p in posteriors]
    local = [(name, sorted(info["local"])) for name, info in infos]
    check_equal(local, f"the local coefficients {local[0][1]}")
    known = [(name, info.get("likelihood")) for name, info in infos]
    known = [(name, likelihood) for name, likelihood in known if likelihood is not None]
    check_equal(known, f"a {known[0][1]} regression" if known else "")
    for key, expected in _EXPECTED.items():
        known = [(name, info[key]) for name, info in infos if info.get(key) is not None]
        check_equal(known, expected.format(known[0][1]) if known else "")
    _check_outcomes(infos)
    for key, expected, hint in _OF_COLUMNS:
        _check_columns(infos, key, expected, hint)
    check_variables([(name, info.get("variables") or ()) for name, info in infos])
    split = [_without_local(p) for p in shared_prior(shared_noise(posteriors))]
    names = [_info(p)["coordinates"] for p in split]
    union = list(dict.fromkeys(key for own in names for key in own))
    if all(own == union for own in names):
        return split
    _check_spelling([p.name for p in split], names)
    prior = _priors(split, names, union)
    return [_reordered(p, own, union, prior) for p, own in zip(split, names, strict=True)]


def _info(posterior: Posterior) -> dict[str, Any]:
    """Settings of a regression, checked."""
    assert posterior.structure is not None
    where, info = f"silo {posterior.name!r}", dict(posterior.structure.info)
    for key in ("coordinates", "local"):
        info[key] = names_of(info, key, where)
    if not isinstance(posterior.family, Normal) or posterior.n_components != 1:
        got = f"{posterior.n_components} of {posterior.family}"
        raise InvalidPosteriorError(f"{where}: expected one Normal of coefficients, got {got}")
    if len(info["coordinates"]) != posterior.family.dim:
        got = f"{len(info['coordinates'])} names"
        raise InvalidPosteriorError(f"{where}: expected {posterior.family.dim}, got {got}")
    if posterior.prior is None:
        expected = "expected the prior of a regression, zeros for a flat one"
        raise InvalidPosteriorError(f"{where}: {expected}, got none")
    return info


def _check_outcomes(infos: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Refuse regressions of two outcomes; upper case does not make another one."""
    known = [(silo, [*info["outcome"]]) for silo, info in infos if info.get("outcome")]
    for silo, own in known[1:]:
        first, theirs = known[0]
        if [_folded(name) for name in own] != [_folded(name) for name in theirs]:
            raise IncompatibleSilosError(
                f"silo {silo!r}: expected the outcome {_listed(theirs)} as in silo {first!r}, got "
                f"{_listed(own)}: give it one name at all silos if it is the same"
            )


def _folded(name: str | None) -> str:
    return normalised(name or "").strip().casefold()


def _listed(names: Sequence[str | None]) -> str:
    return few([name for name in names if name is not None])


def _check_columns(
    infos: Sequence[tuple[str, dict[str, Any]]], setting: str, expected: str, hint: str
) -> None:
    """Refuse silos that differ in a setting of a column, such as its unit."""
    first: dict[str, tuple[str, str]] = {}
    for name, info in infos:
        for key, own in dict(info.get(setting) or {}).items():
            other, known = first.setdefault(key, (name, own))
            if own != known:
                raise IncompatibleSilosError(
                    f"silo {name!r}: expected {expected.format(key, known)} as in silo {other!r}, "
                    f"got {own!r}{hint}"
                )


def _check_spelling(silos: Sequence[str], names: Sequence[list[str]]) -> None:
    """Refuse silos that spell a coefficient in two ways, or of which one has no names at all."""
    first: dict[str, tuple[str, str]] = {}
    for silo, own in zip(silos, names, strict=True):
        for key in own:
            spelling = _POINT_ZERO.sub("", _folded(key))
            other, known = first.setdefault(spelling, (silo, key))
            if key != known and known not in own:
                raise IncompatibleSilosError(
                    f"silo {silo!r}: expected {known!r} as in silo {other!r}, got {key!r}: "
                    "coefficients are matched by name"
                )
    numbered = {f"x{k}" for k in range(max(map(len, names)))}
    unnamed = [bool(numbered.intersection(own)) for own in names]
    if any(unnamed) and not all(unnamed):
        silo = silos[unnamed.index(True)]
        theirs = few(names[unnamed.index(False)])
        raise IncompatibleSilosError(
            f"silo {silo!r}: expected names of columns, such as {theirs}, got 'x0' and the like: "
            "fit it to a data frame"
        )


def _without_local(posterior: Posterior) -> Posterior:
    """The marginal of the shared coefficients; a fusion's posterior is one already."""
    structure, prior, info = posterior.structure, posterior.prior, _info(posterior)
    assert structure is not None and prior is not None
    names = info["coordinates"]
    if not set(info["local"]) & set(names):
        return posterior
    missing = [key for key in info["local"] if key not in names]
    if missing:
        where = f"silo {posterior.name!r}"
        raise IncompatibleSilosError(f"{where}: expected the local coefficient {missing[0]!r}")
    rows = np.array([names.index(key) for key in info["local"]])
    own, given = Information.of(posterior.natural[0], len(names)).split(rows)
    of_prior, _ = Information.of(prior, len(names)).split(rows)
    arrays = {**structure.arrays, **{key: array[None] for key, array in given.items()}}
    info["coordinates"] = [key for key in names if key not in info["local"]]
    return replace(
        posterior,
        family=Normal(len(info["coordinates"])),
        natural=own.natural()[None],
        prior=of_prior.natural(),
        structure=Structure(KIND, arrays, info),
    )


def _priors(
    posteriors: Sequence[Posterior], names: Sequence[list[str]], union: list[str]
) -> Information:
    """The prior of all coefficients; that of each is from the first silo that has it."""
    found = Information(np.full(len(union), np.nan), np.full((len(union), len(union)), np.nan))
    for posterior, own in zip(posteriors, names, strict=True):
        assert posterior.prior is not None
        prior = Information.of(posterior.prior, len(own))
        rows = np.array([union.index(key) for key in own])
        for whole, part, where in (
            (found.shift, prior.shift, rows),
            (found.precision, prior.precision, np.ix_(rows, rows)),
        ):
            whole[where] = np.where(np.isnan(whole[where]), part, whole[where])
    return Information(*map(np.nan_to_num, found))


def _reordered(
    posterior: Posterior, names: list[str], union: list[str], prior: Information
) -> Posterior:
    """The posterior over the union: own coefficients in their rows, the prior elsewhere."""
    structure, dim = posterior.structure, len(union)
    assert structure is not None and posterior.prior is not None
    lacking = [key for key in union if key not in names]
    away = np.array([union.index(key) for key in lacking], dtype=np.intp)
    flat = [key for key, k in zip(lacking, away, strict=True) if not prior.precision[k, k] > 0]
    if flat:
        draws = "variables" in structure.info
        what, option = ("coordinate", "prior") if draws else ("coefficient", "prior_sd")
        raise IncompatibleSilosError(
            f"silo {posterior.name!r}: expected the {what} {flat[0]!r}, as in other silos, got "
            f"none, and its prior is flat; give {option} at all silos, and a silo without it has "
            "the prior"
        )
    rows = np.array([union.index(key) for key in names])
    rest, both = prior.some(away).spread(away, dim), []
    for natural in (posterior.natural[0], posterior.prior):
        own = Information.of(natural, len(names)).spread(rows, dim)
        both.append(Information(own.shift + rest.shift, own.precision + rest.precision).natural())
    arrays = dict(structure.arrays)
    if LOCAL[1] in arrays:  # local coefficients do not depend on those the silo lacks
        gain = np.zeros((*arrays[LOCAL[1]].shape[:2], dim))
        gain[:, :, rows] = arrays[LOCAL[1]]
        arrays[LOCAL[1]] = gain
    info = {**structure.info, "coordinates": union}
    return replace(
        posterior,
        family=Normal(dim),
        natural=both[0][None],
        prior=both[1],
        structure=Structure(KIND, arrays, info),
    )
