"""`fuse`: from models or posteriors of silos to one global model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from klfusion._typing import BoolArray, FloatArray, IntArray
from klfusion.adapters import extract
from klfusion.errors import IncompatibleSilosError, KLFusionError
from klfusion.fusion import Fusion, Status
from klfusion.methods import METHODS, Auto, Method, Penalty, Solution
from klfusion.pooling import random_effects_location
from klfusion.posterior import Posterior
from klfusion.problem import FusionProblem, canonical_order
from klfusion.progress import progress_bar
from klfusion.provenance import provenance
from klfusion.storage import load
from klfusion.structure import fuse_structures
from klfusion.vocabulary import align_vocabularies

_NEGLIGIBLE_SHARE = 0.02  # of a silo's observations

Pooling = Literal["average", "random-effects"]
MethodName = Literal["auto", "exact", "relaxed", "homogeneous"]


def fuse(
    models: Sequence[Any] | Mapping[str, Any],
    *,
    method: MethodName | Method = "auto",
    n_components: int | None = None,
    penalty: Penalty | None = None,
    weights: ArrayLike | Mapping[str, float] | None = None,
    pooling: Pooling = "average",
    n_init: int | None = None,
    max_iter: int | None = None,
    tol: float | None = None,
    random_state: int | np.random.Generator | None = 0,
    progress: bool | None = None,
) -> Fusion:
    """Fuse the posteriors of silos into one global model.

    Parameters
    ----------
    models : sequence or mapping of name to model
        `Posterior` objects, fitted models an adapter knows, or paths of saved posteriors. The
        names of a mapping become the silos' names.
    method : {"auto", "exact", "relaxed", "homogeneous"} or a Method
        ``"auto"``: the best we know. ``"exact"``: local search on the binary objective from random
        starts. ``"relaxed"``: the paper to the letter. ``"homogeneous"``: every silo has the same
        components. A configuration such as ``klfusion.methods.Relaxed(scale=0.2)`` sets the rest.
    n_components : int, optional
        Size of the global model, where it is known.
    penalty : float or "auto", optional
        Price of global components, in nats: larger gives fewer. Default: chosen from the silos.
    weights : sequence or mapping of name to float, optional
        How much each silo counts; default 1.
    pooling : {"average", "random-effects"}
        ``"average"``: natural parameters are averaged, as in the paper, so that a silo that knows
        its component well counts more. ``"random-effects"``: the same, but locations are
        averaged as if components vary from silo to silo, which no silo's precision tells.
    n_init, max_iter, tol : optional
        Number of starts, most sweeps of a start, relative tolerance; defaults are the method's.
    random_state : int or numpy.random.Generator
        Equal states give equal results.
    progress : bool, optional
        Show a progress bar; default: only on a terminal.

    Returns
    -------
    Fusion

    Examples
    --------
    Two sites, each with a slow and a fast process; site b knows a third:

    >>> import klfusion as kf
    >>> rates = kf.families.Gamma()
    >>> a = kf.Posterior(rates, rates.natural(shape=[30, 900], rate=[10, 10]), name="a")
    >>> b = kf.Posterior(rates, rates.natural(shape=[910, 32, 250], rate=[10, 10, 10]), name="b")
    >>> fusion = kf.fuse([a, b])
    >>> fusion
    Fusion(2 silos -> 3 components, ... converged)
    >>> fusion.labels
    (array([0, 1]), array([1, 0, 2]))
    """
    posteriors = _posteriors(models)
    if pooling not in get_args(Pooling):
        raise KLFusionError(f"expected pooling to be one of {get_args(Pooling)}, got {pooling!r}")
    chosen = _method(
        method,
        n_components=n_components, penalty=penalty, n_init=n_init, max_iter=max_iter, tol=tol,
    )  # fmt: skip
    silo_weights = _silo_weights(weights, posteriors)
    turns = canonical_order(posteriors, silo_weights)
    stacked, offsets = _stack(posteriors, silo_weights)
    kept = _with_data(posteriors, chosen)
    problem, rows = _in_order(stacked, turns, kept)
    _check_size(chosen, problem, posteriors)
    rng = _generator(random_state)
    if len(posteriors) == 1:
        solution = _as_it_is(problem, chosen)
    else:
        with progress_bar(progress) as report:
            solution = chosen.run(chosen.matching(problem), rng, report)
    plan, labels, order = _ordered(solution, rows)
    all_labels = np.full(stacked.n, -1, dtype=np.intp)
    all_labels[rows] = labels
    natural = problem.average(plan, int(labels.max()) + 1)
    if solution.location is not None:
        natural = problem.family.relocated(natural, solution.location[order])
    elif pooling == "random-effects":
        location = random_effects_location(problem, labels, len(natural))
        natural = problem.family.relocated(natural, location)
    divergences = _match_divergences(stacked, natural, all_labels)
    per_silo = tuple(np.split(all_labels, offsets[1:-1]))
    return Fusion(
        posterior=_global_posterior(posteriors, natural, per_silo),
        silo_names=tuple(p.name for p in posteriors),
        labels=per_silo,
        divergences=tuple(np.split(divergences, offsets[1:-1])),
        penalty=solution.penalty,
        objective=solution.objective,
        lower_bound=solution.lower_bound,
        trace=np.array(solution.trace),
        status=solution.status,
        method=repr(chosen),
        path=solution.path,
        provenance=provenance(silo_weights=silo_weights.tolist()),
    )


def _posteriors(models: Sequence[Any] | Mapping[str, Any]) -> list[Posterior]:
    """Read or extract every silo, and check that they belong together."""
    named: Iterable[tuple[str | None, Any]]
    if hasattr(models, "items"):  # a mapping, or a pandas Series
        named = list(models.items())
        for name, _ in named:
            if not isinstance(name, str) or not name:
                raise KLFusionError(f"expected silo names to be non-empty strings, got {name!r}")
    elif isinstance(models, Iterable) and not isinstance(models, str | bytes | os.PathLike):
        named = [(None, model) for model in models]
    else:
        raise KLFusionError(
            f"expected a list or mapping of silos, got a single {type(models).__name__}: "
            "put it into a list"
        )
    posteriors = [_posterior(model, name, i) for i, (name, model) in enumerate(named)]
    if not posteriors:
        raise IncompatibleSilosError("expected at least one silo, got none")
    posteriors = align_vocabularies(posteriors)
    first = posteriors[0]
    for other in posteriors[1:]:
        if other.family != first.family:
            raise IncompatibleSilosError(
                f"silo {other.name!r}: expected {first.family} as in silo {first.name!r}, "
                f"got {other.family}"
            )
    _check_features(posteriors)
    seen: set[str] = set()
    for posterior in posteriors:
        if posterior.name in seen:
            raise IncompatibleSilosError(
                f"two silos are named {posterior.name!r}: expected unique names"
            )
        seen.add(posterior.name)
    return posteriors


def _check_features(posteriors: Sequence[Posterior]) -> None:
    """Refuse silos whose named columns differ, or come in another order."""
    named = [(p.name, p.structure.info.get("features")) for p in posteriors if p.structure]
    known = [(name, features) for name, features in named if features is not None]
    for name, features in known[1:]:
        if features != known[0][1]:
            raise IncompatibleSilosError(
                f"silo {name!r}: expected the features {known[0][1]} in this order, "
                f"as in silo {known[0][0]!r}, got {features}"
            )


def _posterior(model: Any, name: str | None, number: int) -> Posterior:
    if isinstance(model, str | os.PathLike):
        model = load(model)
    if isinstance(model, Fusion):  # a fusion can be a silo of a larger one
        model = model.posterior
    if isinstance(model, Posterior):
        return model if name is None else replace(model, name=name)
    return extract(model, name=name or f"silo-{number + 1}")


def _method(method: str | Method, **settings: Any) -> Method:
    """The configuration, with the settings that were given."""
    given = {key: value for key, value in settings.items() if value is not None}
    if isinstance(method, Method):
        return replace(method, **given) if given else method
    if method not in METHODS:
        raise KLFusionError(
            f"expected method to be one of {sorted(METHODS)} or a Method, got {method!r}"
        )
    return METHODS[method](**given)


def _generator(random_state: Any) -> np.random.Generator:
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise KLFusionError(
            "expected random_state to be an integer >= 0, a Generator or None, "
            f"got {random_state!r}"
        ) from error


def _silo_weights(
    weights: ArrayLike | Mapping[str, float] | None, posteriors: Sequence[Posterior]
) -> FloatArray:
    if weights is None:
        return np.ones(len(posteriors))
    if hasattr(weights, "items"):  # a mapping, or a pandas Series
        by_name, names = dict(weights.items()), {p.name for p in posteriors}
        if set(by_name) != names:
            raise KLFusionError(
                f"weights: expected a weight for each of {sorted(names)}, got {list(by_name)}"
            )
        weights = [by_name[p.name] for p in posteriors]
    try:
        values = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise KLFusionError(f"weights: expected numbers, got {weights!r}") from error
    if values.shape != (len(posteriors),):
        raise KLFusionError(
            f"weights: expected one for each of {len(posteriors)} silos, got shape {values.shape}"
        )
    bad = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
    if len(bad):
        raise KLFusionError(
            f"silo {posteriors[bad[0]].name!r}: expected a finite weight > 0, got {values[bad[0]]}"
        )
    return values


def _stack(
    posteriors: Sequence[Posterior], silo_weights: FloatArray
) -> tuple[FusionProblem, IntArray]:
    """All components as given, and where each silo's begin."""
    sizes = [p.n_components for p in posteriors]
    silo = np.repeat(np.arange(len(sizes)), sizes)
    natural = np.concatenate([p.natural for p in posteriors])
    problem = FusionProblem(posteriors[0].family, natural, silo, silo_weights[silo])
    return problem, np.concatenate([[0], np.cumsum(sizes)])


def _with_data(posteriors: Sequence[Posterior], method: Method) -> BoolArray:
    """Components with enough observations behind them to be matched, in the order given.

    Over-fitted local models hold components that are hardly more than their prior; those of all
    silos look alike and would be fused into a component of nothing. A component is left out if it
    has too few observations to tell its shape *and* next to none of its silo's; of each silo at
    least the largest stays.
    """
    kept = []
    for p in posteriors:
        if p.counts is None or not isinstance(method, Auto) or len(posteriors) == 1:
            kept.append(np.ones(p.n_components, dtype=bool))
        else:
            least = min(p.family.least_count, _NEGLIGIBLE_SHARE * float(p.counts.sum()))
            kept.append((p.counts >= least) | (p.counts == p.counts.max()))
    return np.concatenate(kept)


def _in_order(
    stacked: FusionProblem, order: Sequence[IntArray], kept: BoolArray
) -> tuple[FusionProblem, IntArray]:
    """The components to match, in canonical order, and their rows in the order given."""
    rows = np.concatenate(order)
    rows = rows[kept[rows]]
    turn = np.empty(len(order), dtype=np.intp)
    turn[[stacked.silo[r[0]] for r in order]] = np.arange(len(order))
    silo = np.unique(turn[stacked.silo[rows]], return_inverse=True)[1].astype(np.intp)
    natural, weights = stacked.natural[rows], stacked.weights[rows]
    return FusionProblem(stacked.family, natural, silo, weights), rows


def _check_size(method: Method, problem: FusionProblem, posteriors: Sequence[Posterior]) -> None:
    size = method.n_components
    if size is None:
        return
    if size < problem.largest_silo:
        largest = max(posteriors, key=lambda p: p.n_components)
        raise IncompatibleSilosError(
            f"expected n_components >= {problem.largest_silo}, the size of silo {largest.name!r} "
            f"(its components stay apart), got {size}"
        )
    if size > problem.n:
        raise IncompatibleSilosError(
            f"expected n_components <= {problem.n}, the number of local components to match, "
            f"got {size}"
        )


def _as_it_is(problem: FusionProblem, method: Method) -> Solution:
    """One silo: every component stays itself."""
    labels = np.arange(problem.n)
    penalty = 0.0 if method.penalty == "auto" else float(method.penalty)
    value = penalty * problem.n
    return Solution(labels, labels, value, value, [value], penalty, Status.SINGLE_SILO)


def _ordered(solution: Solution, rows: IntArray) -> tuple[Any, IntArray, IntArray]:
    """Plan and labels, the global components that hold most first, then as they first appear.

    Also which of the solution's clusters each global component is.
    """
    used, labels = np.unique(solution.labels, return_inverse=True)
    counts = np.bincount(labels)
    first = np.full(len(used), len(rows) + rows.max())
    np.minimum.at(first, labels, rows)
    order = np.lexsort([first, -counts])
    rank = np.empty(len(order), dtype=np.intp)
    rank[order] = np.arange(len(order))
    labels = rank[labels]
    plan = solution.plan[:, used[order]] if solution.plan.ndim == 2 else labels
    return plan, labels, used[order]


def _match_divergences(problem: FusionProblem, centres: FloatArray, labels: IntArray) -> FloatArray:
    """``KL(global || local)`` of each match, (n,); NaN where there is none."""
    out = np.full(problem.n, np.nan)
    for g in range(len(centres)):
        members = np.flatnonzero(labels == g)
        natural, known = problem.natural[members], problem.log_partition[members]
        out[members] = problem.family.kl_from(centres[g : g + 1], natural, known)[:, 0]
    return out


def _global_posterior(
    posteriors: Sequence[Posterior], natural: FloatArray, labels: Sequence[IntArray]
) -> Posterior:
    """The fused components with the counts, prior and structure the silos agree on."""
    size = len(natural)
    all_counts = [p.counts for p in posteriors]
    priors = [p.prior for p in posteriors]
    counts = None
    if not any(c is None for c in all_counts):
        counts = np.zeros(size)
        for local, label in zip(all_counts, labels, strict=True):
            assert local is not None
            np.add.at(counts, label[label >= 0], local[label >= 0])
    known_priors = [p for p in priors if p is not None]
    prior = np.mean(known_priors, axis=0) if len(known_priors) == len(priors) else None
    return Posterior(
        family=posteriors[0].family,
        natural=natural,
        name="global",
        prior=prior,
        counts=counts,
        structure=fuse_structures([p.structure for p in posteriors], labels, size),
        provenance=provenance(silos=[p.name for p in posteriors]),
    )
