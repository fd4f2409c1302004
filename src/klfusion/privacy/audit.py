"""An audit at the site: how well a file gives away whether a row was there."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.special import ndtr
from scipy.stats import chi2

from klfusion._utils.arrays import FloatArray
from klfusion._utils.checks import generator, naming_silo
from klfusion._utils.text import brief
from klfusion.adapters._regressions import numbers_of, table
from klfusion.adapters.bayesian_head import rebuild
from klfusion.errors import KLFusionError
from klfusion.pooling.noisy_sums import INTERCEPT, NoisySums
from klfusion.posteriors.budgets import AUDITED
from klfusion.posteriors.posterior import Posterior
from klfusion.privacy.bounds import ClippedWarning
from klfusion.privacy.mechanism import packed_rows
from klfusion.privacy.plan import Plan, Request
from klfusion.privacy.privatize import KINDS

_SHADOWS = 32  # fits to random halves: each row is in some 16 of them
_EXPOSED = 5  # rows that are listed
_BY_CHANCE = 1e-6  # share of a site's own audits that noise alone would refuse


@dataclass(frozen=True, eq=False)
class Audit:
    """What a file gives away about the rows of a site. It stays at the site.

    An advantage is the share of members that a test finds less the share of others that it takes
    for members, at its best threshold: 0 is guessing, 1 is certainty.

    Parameters
    ----------
    advantages : array of shape (n,)
        Of the best test of each row by one who has the file and knows how people vary, but no one
        else's row.
    informed : float
        Of the most exposed row, by one who knows all other rows as well. It is 1 without noise.
    promised : float
        The largest advantage that the budget allows; 1 without a budget.
    """

    advantages: FloatArray
    informed: float
    promised: float

    @property
    def advantage(self) -> float:
        """Of the most exposed row."""
        return float(self.advantages.max())

    @property
    def exposed(self) -> list[int]:
        """The rows most exposed, the first most."""
        return [int(k) for k in np.argsort(-self.advantages, kind="stable")[:_EXPOSED]]

    def noted(self, posterior: Posterior) -> Posterior:
        """The posterior with a note that it was audited, and no number of the audit."""
        return replace(posterior, provenance={**posterior.provenance, AUDITED: True})

    def __str__(self) -> str:
        rows = ", ".join(map(str, self.exposed))
        budget = (
            f"The budget allows {self.promised:.2f} against anyone."
            if self.promised < 1.0
            else "No budget limits this."
        )
        return (
            f"Who has this file and knows how people vary can test whether someone was in the data "
            f"with an advantage of {self.advantage:.2f} for the most exposed row, "
            f"{float(np.mean(self.advantages)):.2f} on average (0 is guessing, 1 is certainty). "
            f"Who knows all other rows has {self.informed:.2f}. {budget} "
            f"Most exposed rows, counted from 0: {rows}."
        )


def audit(
    posterior: Posterior,
    rows: Any,
    *,
    fit: Callable[[Any], Any] | None = None,
    score: Callable[[Any, Any], FloatArray] | None = None,
    random_state: Any = 0,
) -> Audit:
    """How well a posterior gives away whether a row was in the site's data.

    The sums that a conjugate posterior is made of are Normal over tables of people. So the
    likelihood ratio of a row's membership is known. Its advantage grows with the distance of the
    row from the mean, and falls with the number of rows and with noise. Of other models, shadow
    models are fitted to random halves of the rows. Scores of each row are compared with it in and
    out.

    Parameters
    ----------
    posterior : Posterior
        What the site would send.
    rows : tuple (x, y), or array
        The site's rows. Others are refused where the posterior shows that they are: by their
        number, by class, or by the sums of a regression with noise.
    fit, score : callable, optional
        Of shadow models: ``fit(rows)`` returns a model, and ``score(model, rows)`` one number per
        row; default ``model.score_samples(rows)``.
    random_state : int
        Of the halves.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> from sklearn.linear_model import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(200, 2))
    >>> y = x @ [1.0, -1.0] + rng.normal(size=200)
    >>> x[7] = [6.0, 6.0]  # no one else is like this
    >>> found = kf.audit(kf.extract(LinearRegression(), name="a", data=(x, y)), (x, y))
    >>> found.exposed[0], found.informed
    (7, 1.0)
    """
    if not isinstance(posterior, Posterior):
        raise KLFusionError(
            f"expected the posterior that one site would send, got {type(posterior).__name__}"
        )
    if fit is not None:
        advantages = _shadows(rows, fit, score, random_state)
        return Audit(advantages, 1.0, promised(posterior))
    kind = kind_of(posterior)
    with naming_silo(posterior.name):
        sums, noise = _sums(posterior, rows, kind)
    centred = sums - sums.mean(axis=0)
    # The other rows vary by this, and the noise by the same in all directions.
    spread = centred.T @ centred + noise**2 * np.eye(sums.shape[1])
    inverse = np.linalg.pinv(spread, rcond=1e-10, hermitian=True)
    leverage = np.einsum("np,pq,nq->n", centred, inverse, centred)
    informed = 1.0
    if noise > 0:
        informed = advantage(float(np.sqrt(np.square(sums).sum(axis=1).max())) / noise)
    return Audit(_of(np.sqrt(leverage)), informed, promised(posterior))


def kind_of(posterior: Posterior) -> Callable[[Any, Request], Plan]:
    """The sums over rows that a posterior is made of; other posteriors are refused."""
    info = {} if posterior.structure is None else posterior.structure.info
    kind = KINDS.get(str(info.get("class")))
    if kind is None:
        raise KLFusionError(
            f"silo {posterior.name!r}: expected fit= of kf.audit, a function that fits a model to "
            "rows: this posterior is no sum over rows, and shadow models are compared instead"
        )
    return kind


def has_classes(posterior: Posterior) -> bool:
    """Whether the outcome is a class, which words may name."""
    return posterior.structure is None or posterior.structure.info.get("likelihood") != "normal"


def columns(posterior: Posterior) -> list[str] | None:
    """Names of the columns that a posterior's model has, if they have any."""
    info = {} if posterior.structure is None else posterior.structure.info
    of_regression = [name for name in info.get("columns", ()) if name != INTERCEPT]
    return of_regression or info.get("features")


def advantage(shift: float) -> float:
    """Of the best test between two Normals that lie ``shift`` deviations apart."""
    return float(2.0 * ndtr(0.5 * shift) - 1.0)


def promised(posterior: Posterior) -> float:
    """The largest advantage that a budget of ``epsilon`` and ``delta`` allows; 1 without one."""
    privacy = posterior.provenance.get("privacy") or {}
    if "epsilon" not in privacy:
        return 1.0
    e = math.exp(privacy["epsilon"])
    return float(min(1.0, (e - 1.0 + 2.0 * privacy["delta"]) / (e + 1.0)))


def _of(shifts: FloatArray) -> FloatArray:
    return np.asarray(2.0 * ndtr(0.5 * shifts) - 1.0)


def _sums(posterior: Posterior, rows: Any, kind: Any) -> tuple[FloatArray, float]:
    """What each row adds to the sums, in units in which noise is equal in all directions."""
    assert posterior.structure is not None
    info, privacy = posterior.structure.info, posterior.provenance.get("privacy") or {}
    x, names, y = table(rows, columns(posterior))
    y, public = np.asarray(y), NoisySums.of(posterior)
    given: Any = privacy.get("bounds")
    if given is None:  # no number of the data leaves an audit's bounds
        given = {n: _range(column) for n, column in zip(names, x.T, strict=True)}
        if info["class"] == "CategoricalNB":
            given = {n: int(column.max()) + 1 for n, column in zip(names, x.T, strict=True)}
        if info.get("likelihood") == "normal":
            given["y"] = _range(numbers_of(y))
    norm = privacy.get("norm")
    if norm is None and info["class"] == "MultinomialNB":
        norm = float(np.sqrt(np.square(x).sum(axis=1)).max())
    classes = privacy.get("classes", info.get("classes", np.unique(y).tolist()))
    pairs = {key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}
    model: Any = SimpleNamespace(fit_intercept=True, alpha=1.0)
    if info["class"] == "BayesianHead":
        model = rebuild(posterior)
        norm = norm or float(np.linalg.norm(model.transform(x), axis=1).max())
    point = None
    if public is not None and info["likelihood"] == "logistic":  # where it was expanded
        point = dict(zip(public.columns, public.origin.tolist(), strict=True))
    request = Request(
        posterior.name, x, y, tuple(names), True, pairs, norm, 1.0, (), classes, point
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClippedWarning)  # the site has seen it
        statistics = kind(model, request).statistics
    noise = [0.0]
    if "noise_sd" in privacy:
        units = {n: s.bound / math.sqrt(s.share) for n, s in statistics.items()}
        noise = [privacy["noise_sd"][n] / units[n] for n in statistics]
    sums = np.concatenate([packed_rows(s) for s in statistics.values()], axis=1)
    if public is None:
        _check_counts(posterior, y, classes, privacy.get("noise_sd"))
    else:
        found = {n: np.asarray(getattr(public, n)) for n in statistics}
        sent = [
            packed_rows(replace(s, rows=found[n].reshape(1, *s.rows.shape[1:])))
            for n, s in statistics.items()
        ]
        off = (np.concatenate(sent, axis=1)[0] - sums.sum(axis=0)) / noise[0]
        _check_same(posterior, off, "their sums differ by more than the noise")
    return sums, noise[0]


def _check_counts(posterior: Posterior, y: Any, classes: Sequence[Any], noise: Any) -> None:
    """Refuse rows whose numbers, in all or by class, are not those of the posterior."""
    if posterior.counts is None or (noise is not None and "outer" in noise):
        return  # a head with noise counts as fewer rows
    counts = np.asarray(posterior.counts)
    given = np.array([np.sum(y == own) for own in classes]) if len(counts) > 1 else len(y)
    deviation = 0.5 if noise is None else noise.get("rows", noise.get("classes"))
    off = (counts - given) / deviation
    said = f"expected {_numbers(counts)}, got {_numbers(np.atleast_1d(given))}"
    if noise is None:
        off = np.where(np.abs(off) < 1.0, 0.0, np.inf)
    _check_same(posterior, off, said)


def _check_same(posterior: Posterior, off: FloatArray, said: str) -> None:
    """Refuse rows that are ``off`` deviations of the noise from what was sent."""
    if chi2.sf(float(np.square(off).sum()), off.size) < _BY_CHANCE:
        raise KLFusionError(
            f"silo {posterior.name!r}: expected the rows that the posterior is of: {said}"
        )


def _numbers(counts: FloatArray) -> str:
    return f"{', '.join(f'{own:.0f}' for own in counts)} rows" + " by class" * (len(counts) > 1)


def _range(column: FloatArray) -> tuple[float, float]:
    low, high = float(column.min()), float(column.max())
    return (low, high) if low < high else (low - 1.0, high + 1.0)


def _shadows(rows: Any, fit: Callable[[Any], Any], score: Any, random_state: Any) -> FloatArray:
    """Advantages by scores of shadow models: Normal in and out, of one variance."""
    x = np.asarray(rows)
    if not callable(fit) or not x.ndim:
        got = f"{brief(fit)} and {brief(rows)}"
        raise KLFusionError(f"expected fit to be a function of rows, and rows, got {got}")
    rng, there = generator(random_state), np.zeros((_SHADOWS, len(x)), dtype=bool)
    scores = np.zeros((_SHADOWS, len(x)))
    for number in range(_SHADOWS):
        there[number, rng.permutation(len(x))[: len(x) // 2]] = True
        model = fit(x[there[number]])
        scores[number] = model.score_samples(x) if score is None else score(model, x)
    inside, outside = (np.where(own, scores, np.nan) for own in (there, ~there))
    gap = np.nanmean(inside, axis=0) - np.nanmean(outside, axis=0)
    spread = 0.5 * (np.nanvar(inside, axis=0, ddof=1) + np.nanvar(outside, axis=0, ddof=1))
    return _of(np.maximum(gap, 0.0) / np.sqrt(np.maximum(spread, np.finfo(float).tiny)))
