"""`fuse`: from models or posteriors of silos to one global model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.checks import check_flag, check_integer, generator
from klfusion._utils.progress import progress_bar
from klfusion._utils.provenance import provenance
from klfusion._utils.providers import provided
from klfusion.errors import KLFusionError
from klfusion.families import Family, Located, require
from klfusion.fusion.result import Fusion
from klfusion.methods import METHODS, Method, Penalty
from klfusion.methods.matching import match_silos, ordered
from klfusion.methods.networks import Units, preferred
from klfusion.objective.divergences import KL, AmidProblem, amid_problem, chosen_divergence
from klfusion.objective.problem import FusionProblem
from klfusion.pooling.pool import Pooling, check_pooling, pool
from klfusion.posteriors.compatibility import Silo, aligned_silos, counted, silo_weights
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import fuse_structures
from klfusion.posteriors.structure import network as layers
from klfusion.posteriors.structure.structure import scatter
from klfusion.read import read_silos

_AT_ONCE = 8  # global components: a few divergences too many are cheaper than many calls
MethodName = Literal["auto", "exact", "relaxed", "homogeneous"]


def fuse(
    models: Sequence[Any] | Mapping[str, Any],
    *,
    method: MethodName | Method = "auto",
    n_components: int | Sequence[int] | None = None,
    penalty: Penalty | None = None,
    max_loss: float | None = None,
    within_silo_merging: bool | None = None,
    weights: ArrayLike | Mapping[str, float] | None = None,
    pooling: Pooling = "average",
    divergence: str = "kl",
    n_init: int | None = None,
    max_iter: int | None = None,
    tol: float | None = None,
    random_state: int | np.random.Generator | None = 0,
    progress: bool | None = None,
    keep_silos: bool = True,
    min_support: int = 1,
    memory_limit: int | str | None = None,
) -> Fusion:
    """Fuse the posteriors of silos into one global model.

    Parameters
    ----------
    models : sequence or mapping of name to model
        `Posterior` objects, fitted models an adapter knows, or paths of saved posteriors. The
        names of a mapping become the silos' names. One silo alone is returned as it is, with its
        splits and empty components, unless ``within_silo_merging``. A fusion may be a silo, but
        not beside silos it holds.
    method : {"auto", "exact", "relaxed", "homogeneous"} or a Method
        ``"auto"``: the best we know. ``"exact"``: local search on the binary objective from random
        starts. ``"relaxed"``: the paper to the letter. ``"homogeneous"``: every silo has the same
        components. A configuration such as ``klfusion.methods.Relaxed(scale=0.2)`` sets the rest.
    n_components : int or sequence of int, optional
        Size of the global model, where it is known; one for each hidden layer of a network.
    penalty : float or "auto", optional
        Price of global components, in nats: larger gives fewer. Default: chosen from the silos.
    max_loss : float, optional
        The smallest size that loses at most so many nats an observation in prediction, by an
        estimate from the posteriors alone; ``fusion.path.losses`` has it for every size.
    within_silo_merging : bool, optional
        Whether components of one silo may become one, which a small model needs where silos hardly
        overlap. Its size is ``n_components`` or that of ``max_loss`` (0.02 if neither is given,
        which may be more components than without). Default: they stay apart.
    weights : sequence or mapping of name to float, optional
        How much each silo counts; default 1.
    pooling : {"average", "product", "product-safe", "random-effects", "hierarchical", "robust"}
        ``"average"``: natural parameters are averaged, as in the paper, so that a silo that knows
        its component well counts more; as certain as a typical silo. ``"product"``: the posterior
        of the pooled data where silos agree: natural parameters add up, the prior counted once;
        ``"product-safe"`` takes out less of the priors where that would leave the family.
        ``"random-effects"``: averages, but locations as if components vary from silo to silo,
        which no silo's precision tells; ``"hierarchical"``: and as uncertain as that makes them.
        ``"robust"``: silos count alike and outliers not at all, so that one hostile silo cannot
        move what others share by more than a bound.
    divergence : str
        What is minimised. ``"kl"``: ``KL(global || local)``, the paper's, with all that follows
        from it. ``"kl-reverse"``, ``"jeffreys"``, ``"euclidean-natural"``, ``"euclidean-mean"``,
        and for Gaussians ``"wasserstein"``: the size and the start are those of ``"kl"`` (or, with
        ``penalty``, in that divergence's own units, from random starts), and assignments and
        barycenters alternate.
    n_init, max_iter, tol : optional
        Number of starts, most sweeps of a start, relative tolerance; defaults are the method's.
        Where the size is given and the path does not reach it, no fewer than 5 starts are made (20
        for topics).
    random_state : int or numpy.random.Generator
        Equal states give equal results.
    progress : bool, optional
        Show a progress bar; default: only on a terminal.
    keep_silos : bool
        Keep what each silo sent in the fusion, and in its file, so that silos can be added and
        removed and other sizes picked later. False: only what is fused is kept.
    min_support : int
        Leave out (label -1) global components that fewer silos have.
    memory_limit : int or str, optional
        Bytes, or words such as ``"2GB"``, at least 64 MB: read the silos, which must be files,
        some at a time, and keep the rest in a scratch folder. Method ``"auto"`` and pooling
        ``"average"`` only; what the silos sent is not kept.

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
    check_flag("keep_silos", keep_silos)
    check_flag("within_silo_merging", within_silo_merging, optional=True)
    check_integer("min_support", min_support)
    if memory_limit is not None:
        chosen = configured(
            method, n_components=n_components, penalty=penalty, n_init=n_init, max_iter=max_iter,
            tol=tol, max_loss=max_loss, within_silo_merging=within_silo_merging,
        )  # fmt: skip
        if (pooling, divergence) != ("average", KL.name):
            raise KLFusionError(
                f"with memory_limit: expected pooling 'average' and divergence 'kl', "
                f"got {pooling!r} and {divergence!r}"
            )
        with progress_bar(progress) as report:
            return provided("fuse_files")(  # type: ignore[no-any-return]
                models, memory_limit, chosen,
                weights=weights, min_support=min_support, rng=generator(random_state),
                report=report,
            )  # fmt: skip
    silos = read_silos(models)
    posteriors = aligned_silos(silos)
    check_pooling(pooling, posteriors)
    if chosen_divergence(divergence).name != KL.name and pooling != "average":
        raise KLFusionError(
            f"divergence {divergence!r}: expected pooling 'average' (its barycenter), "
            f"got {pooling!r}"
        )
    sizes = _sizes(n_components, posteriors)
    chosen = configured(
        preferred(method, posteriors),
        n_components=sizes[0], penalty=penalty, n_init=n_init, max_iter=max_iter, tol=tol,
        max_loss=max_loss, within_silo_merging=within_silo_merging,
    )  # fmt: skip
    given_weights = silo_weights(weights, posteriors)
    rng = generator(random_state)
    with progress_bar(progress) as report:
        prepared, solution = match_silos(
            posteriors, given_weights, chosen, rng, report, divergence=divergence
        )
        problem = prepared.problem
        plan, labels, order = ordered(solution, prepared.first)
        path = solution.path
        if path is not None and path.n_components[0] == problem.n:  # else it is of a sketch
            path = replace(path, rows=prepared.spread(np.arange(problem.n)))
        kept = supported(labels, problem.silo, min_support)
        if len(kept) < len(order):
            rows = np.isin(labels, kept)
            prepared, labels, order = prepared.without(~rows), labels[rows], order[kept]
            labels = np.searchsorted(kept, labels)
            plan = labels if plan.ndim == 1 else plan[np.ix_(rows, kept)]
        all_labels = prepared.spread(labels)
        units = prepared.matched(labels, posteriors)
        units = replace(units, problem=amid_problem(units.problem, divergence))
        natural = pool(pooling, units, int(labels.max()) + 1, plan)
        if solution.location is not None:
            family = require(problem.family, Located, chosen.name)
            natural = family.relocated(natural, solution.location[order])
        per_silo = prepared.by_silo(all_labels)

        def match(
            family: Family, naturals: Sequence[FloatArray], layer: int
        ) -> tuple[Sequence[IntArray], int]:
            """Match the units of a later layer, as those of the first were."""
            method = replace(chosen, n_components=sizes[layer])
            later = [
                Posterior(family, own, name=p.name)
                for own, p in zip(naturals, posteriors, strict=True)
            ]
            inner, found = match_silos(later, given_weights, method, rng, report)
            labels = ordered(found, inner.first)[1]
            return inner.by_silo(inner.spread(labels)), int(labels.max()) + 1

        posterior = global_posterior(posteriors, natural, per_silo, match)
    stacked = amid_problem(prepared.stacked, divergence)
    divergences = match_divergences(stacked, natural, all_labels)
    return Fusion(
        posterior=posterior,
        silo_names=tuple(p.name for p in posteriors),
        labels=per_silo,
        divergences=prepared.by_silo(divergences),
        penalty=solution.penalty,
        objective=solution.objective,
        lower_bound=solution.lower_bound,
        trace=np.array(solution.trace),
        status=solution.status,
        method=repr(chosen),
        path=path,
        provenance=provenance(
            silo_weights=given_weights,
            pooling=pooling,
            min_support=min_support,
            divergence=divergence,
            variation=solution.variation,
        ),
        silos=tuple(silos) if keep_silos else None,
    )


def _sizes(
    n_components: int | Sequence[int] | None, posteriors: Sequence[Posterior]
) -> list[int | None]:
    """The size asked for of the components and of each later layer of a network; None: any."""
    structure = posteriors[0].structure
    network = structure is not None and structure.kind == layers.KIND
    depth = layers.n_layers(structure) - 1 if structure is not None and network else 1
    given = list(n_components) if isinstance(n_components, Sequence) else [n_components]
    if not 1 <= len(given) <= depth:
        raise KLFusionError(
            f"expected n_components to be a number{f' for each of {depth} hidden layers' * network}"
            f", got {n_components!r}"
        )
    return given + [None] * (depth - len(given))


def configured(method: str | Method, **settings: Any) -> Method:
    """The configuration, with the settings that were given."""
    given = {key: value for key, value in settings.items() if value is not None}
    if not isinstance(method, str | Method) or (isinstance(method, str) and method not in METHODS):
        raise KLFusionError(
            f"expected method to be one of {sorted(METHODS)} or a Method, got {method!r}"
        )
    kind = METHODS[method] if isinstance(method, str) else type(method)
    unknown = [key for key in given if key not in {field.name for field in fields(kind)}]
    if unknown and kind is Units:
        raise KLFusionError(
            f"networks are fused without {unknown[0]}, for their units stay apart: "
            "n_components or penalty sets the size"
        )
    if unknown:
        raise KLFusionError(f"method {kind.name!r} has no {unknown[0]}; method 'auto' has")
    return kind(**given) if isinstance(method, str) else replace(method, **given)


def supported(labels: IntArray, silo: IntArray, min_support: int) -> IntArray:
    """The global components that at least so many silos have; an error if none is left."""
    n_silos = int(silo.max()) + 1
    return enough(np.bincount(np.unique(labels * n_silos + silo) // n_silos), min_support)


def enough(support: IntArray, min_support: int) -> IntArray:
    """The global components whose number of silos is large enough; an error if none is."""
    check_integer("min_support", min_support)
    if support.max() < min_support:
        raise KLFusionError(
            f"expected a global component of at least min_support={min_support} silos, "
            f"got at most {support.max()}"
        )
    return np.flatnonzero(support >= min_support)


def match_divergences(problem: FusionProblem, centres: FloatArray, labels: IntArray) -> FloatArray:
    """``KL(global || local)`` (or the problem's own) of each match, (n,); NaN where none is."""
    out = np.empty(problem.n)
    at_once = 1 if isinstance(problem, AmidProblem) else _AT_ONCE
    for low in range(0, len(centres), at_once):
        some = centres[low : low + at_once]
        members: IntArray | slice = slice(None)  # of a single batch all, left out or not
        if len(some) < len(centres):
            members = np.flatnonzero((labels >= low) & (labels < low + at_once))
        natural, column = problem.natural[members], labels[members] - low
        if isinstance(problem, AmidProblem):
            found = problem.amid.costs(problem.family, some, natural)
        else:
            found = problem.family.kl_from(some, natural, problem.log_partition[members])
        out[members] = found[np.arange(len(column)), column]
    out[labels < 0] = np.nan
    return out


def global_posterior(
    posteriors: Sequence[Silo],
    natural: FloatArray,
    labels: Sequence[IntArray],
    match: layers.Match,
    counts: FloatArray | None = None,
) -> Posterior:
    """The fused components with the counts, prior and structure the silos agree on.

    The ``counts``, (G,), may be passed where they are known already.
    """
    size = len(natural)
    if counts is None:
        known = [p.counts for p in posteriors if p.counts is not None]
        counts = scatter(known, labels, size) if len(known) == len(labels) else None
    priors = [p.prior for p in posteriors if p.prior is not None]
    prior = np.mean(priors, axis=0) if len(priors) == len(labels) else None
    return Posterior(
        family=posteriors[0].family,
        natural=natural,
        name="global",
        prior=prior,
        counts=counts,
        structure=fuse_structures([p.structure for p in posteriors], labels, size, match),
        provenance=provenance(silos=[name for p in posteriors for name in counted(p)]),
    )
