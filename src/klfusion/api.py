"""`fuse`: from models or posteriors of silos to one global model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from klfusion._typing import FloatArray, IntArray
from klfusion.errors import IncompatibleSilosError, KLFusionError
from klfusion.fusion import Fusion, Status
from klfusion.methods import METHODS, Auto, Method, Penalty
from klfusion.pooling import random_effects_location
from klfusion.posterior import Posterior
from klfusion.preparation import prepare
from klfusion.problem import FusionProblem
from klfusion.progress import progress_bar
from klfusion.provenance import provenance
from klfusion.search import Solution
from klfusion.silos import read_silos, silo_weights
from klfusion.structure import fuse_structures

_BLEND_ROUNDS = 3  # leaving out blends, and matching anew
Pooling = Literal["average", "random-effects"]
MethodName = Literal["auto", "exact", "relaxed", "homogeneous"]


def fuse(
    models: Sequence[Any] | Mapping[str, Any],
    *,
    method: MethodName | Method = "auto",
    n_components: int | None = None,
    penalty: Penalty | None = None,
    max_loss: float | None = None,
    within_silo_merging: bool | None = None,
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
    max_loss : float, optional
        The smallest size that loses at most so many nats an observation in prediction, by an
        estimate from the posteriors alone; ``fusion.path.losses`` has it for every size.
    within_silo_merging : bool, optional
        Whether components of one silo may become one, which a small model needs where silos hardly
        overlap. Default: they stay apart.
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
    posteriors = read_silos(models)
    if pooling not in get_args(Pooling):
        raise KLFusionError(f"expected pooling to be one of {get_args(Pooling)}, got {pooling!r}")
    chosen = _method(
        method,
        n_components=n_components, penalty=penalty, n_init=n_init, max_iter=max_iter, tol=tol,
        max_loss=max_loss, within_silo_merging=within_silo_merging,
    )  # fmt: skip
    given_weights = silo_weights(weights, posteriors)
    clean = isinstance(chosen, Auto) and len(posteriors) > 1
    prepared = prepare(posteriors, given_weights, clean=clean)
    _check_size(chosen, prepared.problem, posteriors)
    rng = _generator(random_state)
    if len(posteriors) == 1:
        solution = _as_it_is(prepared.problem, chosen)
    else:
        with progress_bar(progress) as report:
            solution = chosen.run(chosen.matching(prepared.problem), rng, report)
            for _ in range(_BLEND_ROUNDS):
                if solution.blends is None:
                    break
                prepared = prepared.without(solution.blends)
                solution = chosen.run(chosen.matching(prepared.problem), rng, report)
    problem = prepared.problem
    plan, labels, order = _ordered(solution, prepared.first)
    all_labels = prepared.spread(labels)
    natural = problem.average(plan, int(labels.max()) + 1)
    if solution.location is not None:
        natural = problem.family.relocated(natural, solution.location[order])
    elif pooling == "random-effects":
        location = random_effects_location(problem, labels, len(natural))
        natural = problem.family.relocated(natural, location)
    divergences = _match_divergences(prepared.stacked, natural, all_labels)
    per_silo = prepared.by_silo(all_labels)
    return Fusion(
        posterior=_global_posterior(posteriors, natural, per_silo),
        silo_names=tuple(p.name for p in posteriors),
        labels=per_silo,
        divergences=prepared.by_silo(divergences),
        penalty=solution.penalty,
        objective=solution.objective,
        lower_bound=solution.lower_bound,
        trace=np.array(solution.trace),
        status=solution.status,
        method=repr(chosen),
        path=solution.path,
        provenance=provenance(silo_weights=given_weights.tolist()),
    )


def _method(method: str | Method, **settings: Any) -> Method:
    """The configuration, with the settings that were given."""
    given = {key: value for key, value in settings.items() if value is not None}
    if isinstance(method, str) and method not in METHODS:
        raise KLFusionError(
            f"expected method to be one of {sorted(METHODS)} or a Method, got {method!r}"
        )
    kind = METHODS[method] if isinstance(method, str) else type(method)
    unknown = [key for key in given if key not in {field.name for field in fields(kind)}]
    if unknown:
        raise KLFusionError(f"method {kind.name!r} has no {unknown[0]}; method 'auto' has")
    return kind(**given) if isinstance(method, str) else replace(method, **given)


def _generator(random_state: Any) -> np.random.Generator:
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise KLFusionError(
            "expected random_state to be an integer >= 0, a Generator or None, "
            f"got {random_state!r}"
        ) from error


def _check_size(method: Method, problem: FusionProblem, posteriors: Sequence[Posterior]) -> None:
    size = method.n_components
    if size is None:
        return
    apart = not (isinstance(method, Auto) and method.within_silo_merging)
    if apart and size < problem.largest_silo:
        largest = max(posteriors, key=lambda p: p.n_components)
        raise IncompatibleSilosError(
            f"expected n_components >= {problem.largest_silo}, the size of silo {largest.name!r} "
            f"(its components stay apart), got {size}"
        )
    if size > problem.n:
        raise IncompatibleSilosError(
            f"expected n_components <= {problem.n}, the number of local components to match "
            f"(those without data are left out and splits put together by method 'auto' only), "
            f"got {size}"
        )


def _as_it_is(problem: FusionProblem, method: Method) -> Solution:
    """One silo: every component stays itself."""
    labels = np.arange(problem.n)
    penalty = 0.0 if method.penalty == "auto" else float(method.penalty)
    value = penalty * problem.n
    return Solution(labels, labels, value, value, [value], penalty, Status.SINGLE_SILO)


def _ordered(solution: Solution, first_rows: IntArray) -> tuple[Any, IntArray, IntArray]:
    """Plan and labels, the global components that hold most first, then as they first appear.

    Also which of the solution's clusters each global component is.
    """
    used, labels = np.unique(solution.labels, return_inverse=True)
    counts = np.bincount(labels)
    first = np.full(len(used), first_rows.max() + 1)
    np.minimum.at(first, labels, first_rows)
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
