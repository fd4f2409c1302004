"""`privatize`: what a site may send with a promise, and why other models have none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from klfusion._utils.package import provenance
from klfusion._utils.text import brief, few
from klfusion.adapters._library import feature_names
from klfusion.adapters._regressions import table
from klfusion.errors import KLFusionError
from klfusion.fusion.result import Fusion
from klfusion.posteriors.budgets import budgets
from klfusion.posteriors.posterior import Posterior
from klfusion.privacy import classes as of_classes
from klfusion.privacy import heads, regressions
from klfusion.privacy.mechanism import (
    Budget,
    Statistic,
    check_seed,
    check_statistics,
    noised,
    seeds_in_use,
    warn_delta,
)
from klfusion.privacy.plan import Plan, Request
from klfusion.privacy.spending import spend

_LINEAR = ("BayesianRidge", "ARDRegression", "Ridge", "LinearRegression")
KINDS: dict[str, Callable[[Any, Request], Plan]] = {
    **dict.fromkeys(_LINEAR, regressions.linear),
    "LogisticRegression": regressions.logistic,
    "GaussianNB": of_classes.gaussian,
    "LinearDiscriminantAnalysis": of_classes.discriminant,
    "QuadraticDiscriminantAnalysis": of_classes.discriminant,
    "CategoricalNB": of_classes.categorical,
    "MultinomialNB": of_classes.multinomial,
    "BayesianHead": heads.head,
}
# What can be done instead, by a word in the name of the class.
_INSTEAD = {
    "Mixture": "a mixture's components depend on all rows, and one row can move them without "
    "bound; privatize a GaussianNB or a discriminant analysis of known classes",
    "Dirichlet": "topics depend on all documents, and one can change them without bound; privatize "
    "a MultinomialNB of known classes of documents",
    "Lda": "topics depend on all documents, and one can change them without bound; privatize a "
    "MultinomialNB of known classes of documents",
    "HMM": "the states of an HMM depend on all rows, and one can change them without bound; "
    "privatize a model of known states, such as a GaussianNB",
    "Network": "the weights of a network have no bounded sensitivity; train it with DP-SGD, by "
    "opacus, which has a budget of its own, or privatize a regression of its features",
    "Module": "the weights of a network have no bounded sensitivity; train it with DP-SGD, by "
    "opacus, which has a budget of its own, or privatize a regression of its features",
    "Poisson": "counts have no bounded influence on its fit; privatize a linear regression of "
    "bounded counts",
    "Bernoulli": "columns of zeros and ones are categories; privatize a CategoricalNB, with 2 as "
    "the bounds of each column",
    "Pipeline": "its first steps are fitted to the rows; transform columns by public constants, "
    "and privatize its last step",
    "Lasso": "which columns it leaves out depends on all rows; privatize a LinearRegression",
    "ElasticNet": "which columns it leaves out depends on all rows; privatize a LinearRegression",
    "Results": "a fit no longer has the sums that a bound is about; privatize scikit-learn's "
    "LinearRegression or LogisticRegression of the same columns",
    "Posterior": "a posterior no longer has the rows that a bound is about; privatize the model "
    "with data=(x, y)",
}


def privatize(
    model: Any,
    *,
    epsilon: float,
    delta: float,
    name: str = "site",
    data: Any = None,
    bounds: Mapping[str, Any] | None = None,
    norm: float | None = None,
    prior_sd: float | Mapping[str, float] | None = None,
    local: Sequence[str] = (),
    classes: Sequence[Any] | None = None,
    at: Any = None,
    neighbours: str = "add-remove",
    record: str | Path | None = None,
    limit: tuple[float, float] | None = None,
    random_state: Any = None,
) -> Any:
    """A posterior of a site's rows with a promise of differential privacy.

    Noise is added to sums over rows, by OpenDP. Every number of the result is computed from the
    sums with noise and from what is public. Posteriors include the noise: intervals are as wide as
    it makes them.

    Parameters
    ----------
    model : estimator of scikit-learn, or mapping of name to Statistic
        A linear or logistic regression, naive Bayes model, discriminant analysis or
        `klfusion.learners.BayesianHead`. It need not be fitted. The class and the intercept of a
        regression are used; ``prior_sd`` stands for its penalty. For a mapping of
        `klfusion.privacy.mechanism.Statistic` the sums with noise are returned.
    epsilon, delta : float
        The budget of this release. A delta of one in the number of rows or more would allow to
        publish a row; a warning at the site says so.
    name : str
        The silo's name.
    data : tuple (x, y)
        Rows of the site. They stay.
    bounds : mapping of column to (low, high)
        Known without looking at the data; ``"y"`` has those of the outcome of a linear regression.
        Values are clipped to them. A warning at the site says how many rows were; no file does. A
        CategoricalNB has the number of categories instead; a MultinomialNB and a BayesianHead
        have none.
    norm : float, optional
        The largest Euclidean norm of a row in units of its bounds. Less is less noise, and more
        rows that are clipped. Default: the root of the number of columns. Of a MultinomialNB the
        norm of a row of counts, of a BayesianHead that of its features.
    prior_sd : float or mapping of name to float
        Standard deviations of the prior of a regression's coefficients.
    local : sequence of str
        Coefficients that differ between silos.
    classes : sequence
        All classes, known without looking at the data.
    at : Fusion, optional
        Of files with budgets: where a logistic regression is expanded in a second round. Strong
        effects are shrunk by one step from zero; a second step corrects that, and spends again.
    neighbours : {"add-remove", "replace"}
        Which tables are to look alike.
    record : path, optional
        The site's record of releases, a file of JSON lines. The spending is written to it first.
    limit : tuple (epsilon, delta), optional
        A release that would exceed this in the record is refused.
    random_state : None
        Seeds are for `klfusion.privacy.mechanism.seeds_allowed` only.

    Returns
    -------
    Posterior
        Its ``provenance["privacy"]`` has mechanism, sensitivity and budget.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> from sklearn.linear_model import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1.0, 1.0, size=(500, 1))
    >>> y = 2.0 * x[:, 0] + rng.uniform(-1.0, 1.0, size=500)
    >>> site = kf.privatize(LinearRegression(), name="a", data=(x, y), epsilon=1.0, delta=1e-5,
    ...     bounds={"x0": (-1, 1), "y": (-3, 3)}, prior_sd=10.0)
    >>> site.provenance["privacy"]["epsilon"], site.params()["mean"].shape
    (1.0, (1, 2))
    """
    budget = Budget(epsilon, delta, neighbours)
    check_seed(random_state)
    if not isinstance(name, str) or not name:
        raise KLFusionError(f"expected name to be a non-empty string, got {brief(name)}")
    if isinstance(model, Mapping):
        if not model or not all(isinstance(own, Statistic) for own in model.values()):
            raise KLFusionError(f"expected a mapping of name to Statistic, got {brief(model)}")
        check_statistics(model)
        warn_delta(delta, len(next(iter(model.values())).rows))
        spend(record, limit, name, budget)
        return noised(model, budget, random_state=random_state)
    kind = KINDS.get(_class_of(model) or "")
    if kind is None:
        raise KLFusionError(_refusal(model))
    if data is None:
        raise KLFusionError(f"silo {name!r}: expected data=(x, y), whose sums get noise")
    try:
        x, features, y = table(data, feature_names(model))
    except KLFusionError as error:
        raise KLFusionError(f"silo {name!r}: {error}") from error
    warn_delta(delta, len(x))
    named = hasattr(data[0], "columns") or feature_names(model) is not None
    request = Request(
        name, x, np.asarray(y), tuple(features), named, {} if bounds is None else bounds, norm,
        prior_sd, local if isinstance(local, str) else tuple(local), classes,
        None if at is None else _point(at, name),
    )  # fmt: skip
    request.check_bounds(_bounded(kind, features))
    _check_settings(model, request, kind)
    plan = kind(model, request)
    spent = spend(record, limit, name, budget)  # before the release, should that fail
    found = noised(plan.statistics, budget, random_state=random_state)
    statement = {**found.statement, **plan.public, **({} if spent is None else {"spent": spent})}
    made: Posterior = plan.posterior(found)
    return replace(made, provenance=provenance(privacy=statement))


def _bounded(kind: Callable[[Any, Request], Plan], features: Sequence[str]) -> list[str]:
    """What has bounds: columns, and the outcome if it is a number."""
    if kind in (of_classes.multinomial, heads.head):
        return []
    return [*dict.fromkeys([*features, *([regressions.OUTCOME] * (kind is regressions.linear))])]


def _check_settings(model: Any, request: Request, kind: Callable[[Any, Request], Plan]) -> None:
    """Refuse settings that sums cannot have, and those of other models: none is ignored."""
    for key in ("class_weight", "positive"):
        if getattr(model, key, None) not in (None, False):
            raise KLFusionError(
                f"{request.where}: expected no {key}, which sums do not have, got "
                f"{getattr(model, key)!r}"
            )
    given = {"prior_sd": request.prior_sd, "local": request.local or None, "at": request.at}
    others = [key for key, value in given.items() if value is not None]
    if others and kind not in (regressions.linear, regressions.logistic):
        raise KLFusionError(
            f"{request.where}: expected {few(others)} of regressions alone, got "
            f"{type(model).__name__}"
        )


def _point(at: Any, name: str) -> dict[str, float]:
    """Coefficients of a fusion for a silo; refused unless all its silos have budgets."""
    if not isinstance(at, Fusion):
        raise KLFusionError(f"at: expected a fusion, got {type(at).__name__}")
    having = budgets([at.posterior]) or {}
    without = [own for own in at.silo_names if "epsilon" not in having.get(own, {})]
    if without and not seeds_in_use():
        raise KLFusionError(f"at: expected silos with budgets, got none for {few(without)}")
    site = at.site(name if name in at.silo_names else None)
    assert site.structure is not None
    coordinates = site.structure.info["coordinates"]
    return dict(zip(coordinates, site.params()["mean"][0].tolist(), strict=True))


def _class_of(model: Any) -> str | None:
    """The name of the library's class."""
    known = ("sklearn", "klfusion")
    names = [c.__name__ for c in type(model).__mro__ if c.__module__.startswith(known)]
    return next((n for n in names if n in KINDS), None)


def _refusal(model: Any) -> str:
    if isinstance(model, type):
        return f"expected a model such as {model.__name__}(), got the class {model.__name__}"
    names = [c.__name__ for c in type(model).__mro__]
    why = next((text for key, text in _INSTEAD.items() for n in names if key in n), None)
    why = why or "its sensitivity to one row is unknown"
    return (
        f"expected a model with bounded sums, one of {', '.join(KINDS)}, got "
        f"{type(model).__name__}: {why}. Noise without a bound on what one row changes promises "
        "nothing"
    )
