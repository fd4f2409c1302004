"""`fuse`: read the silos, match their components, pool them, assemble the result."""

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.checks import check_flag, check_integer, generator, seed_of
from klfusion._utils.running import Report, progress_bar
from klfusion._utils.text import brief, few
from klfusion.adapters import extract
from klfusion.adapters.draw_files import is_draws
from klfusion.errors import IncompatibleSilosError, InvalidPosteriorError, KLFusionError
from klfusion.families import Family, Located, require
from klfusion.fusion.assemble import assemble, match_divergences, unmatched_reasons
from klfusion.fusion.result import Fusion
from klfusion.fusion.settings import FuseSettings
from klfusion.io.storage import load
from klfusion.methods import Method, Networks, method_for
from klfusion.methods.matching import check_sizes, comparing, match_silos
from klfusion.model_size.preparation import stack_silos
from klfusion.objective.divergences import problem_with_divergence
from klfusion.pooling.one_prior import under_one_prior
from klfusion.pooling.pool import Matched, Pooling, chosen, chosen_pooling, known_of, pool
from klfusion.posteriors.coefficients import is_regression, wider_than_prior
from klfusion.posteriors.compatibility import Silo, aligned_silos, silo_weights
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import network


def read_silos(models: Sequence[Any] | Mapping[str, Any], number: int = 0) -> list[Posterior]:
    """Read or extract every silo, as it is; those without a name are numbered from ``number``."""
    return [
        posterior_of(model, name, i) for i, (name, model) in enumerate(named_silos(models), number)
    ]


def named_silos(models: Sequence[Any] | Mapping[str, Any]) -> list[tuple[str | None, Any]]:
    """What was given for each silo, with its name where there is one; one at least."""
    named: list[tuple[str | None, Any]]
    if hasattr(models, "items"):  # a mapping, or a pandas Series
        named = list(models.items())
        for name, _ in named:
            if not isinstance(name, str) or not name:
                raise KLFusionError(f"expected silo names to be non-empty strings, got {name!r}")
    elif isinstance(models, Iterable) and not (
        isinstance(models, str | bytes | os.PathLike) or getattr(models, "ndim", 1) == 0
    ):
        named = [(None, model) for model in models]
    else:
        got = "None" if models is None else f"a single {type(models).__name__}: put it into a list"
        raise KLFusionError(f"expected a list or mapping of silos, got {got}")
    if not named:
        raise IncompatibleSilosError("expected at least one silo, got none")
    return named


def posterior_of(model: Any, name: str | None, number: int) -> Posterior:
    """Read or extract one silo."""
    if isinstance(model, str | os.PathLike) and is_draws(model):
        return extract(Path(model), name=name or Path(model).stem)
    if isinstance(model, str | os.PathLike):
        model = load(model)
    if isinstance(model, Fusion):  # a fusion can be a silo of a larger one
        model = model.posterior
    if isinstance(model, Posterior):
        return model if name is None else replace(model, name=name)
    return extract(model, name=name or f"silo-{number + 1}")


MethodName = Literal["auto", "binary", "relaxed", "homogeneous"]


def fuse(
    models: Sequence[Any] | Mapping[str, Any],
    *,
    method: MethodName | Method = "auto",
    n_components: int | Sequence[int] | None = None,
    weights: ArrayLike | Mapping[str, float] | None = None,
    pooling: Pooling = "auto",
    random_state: int | np.random.Generator | None = 0,
    progress: bool | None = None,
    keep_silos: bool = True,
) -> Fusion:
    """Fuse the posteriors of silos into one global model.

    Parameters
    ----------
    models : sequence or mapping of name to model
        `Posterior` objects, fitted models an adapter knows, or paths of saved posteriors. The
        names of a mapping become the silos' names. A fusion may be a silo, but not beside silos it
        holds.
    method : {"auto", "binary", "relaxed", "homogeneous"} or a Method
        ``"auto"`` finds the size by itself. ``"binary"`` searches the binary objective from random
        starts. ``"relaxed"`` is the paper to the letter. ``"homogeneous"``: every silo has the same
        components. `klfusion.Auto`, `klfusion.Penalised` (a price per component) and
        `klfusion.MaxLoss` (a bound on the loss) set more, and `klfusion.Binary` and the like.
    n_components : int or sequence of int, optional
        Size of the global model, where it is known; one for each hidden layer of a network.
    weights : sequence or mapping of name to float, optional
        How much each silo counts; default 1.
    pooling : {"auto", "average", "product", "random-effects", "hierarchical", "robust"}
        How matched components become one. ``"auto"``: the posterior of the pooled data, the prior
        counted once, with locations as uncertain as their variation between silos makes them.
        ``"average"``: as in the paper; as certain as a typical silo. ``"product"``: the posterior
        of the pooled data, as if silos agreed. ``"random-effects"``: large silos count less where
        components vary between silos; ``"hierarchical"``: and locations are as uncertain as that
        makes them. ``"robust"``: one hostile silo moves a shared component by a bounded amount.
    random_state : int or numpy.random.Generator
        Equal states give equal results.
    progress : bool, optional
        Show a progress bar; default: only on a terminal.
    keep_silos : bool
        Keep what each silo sent, so that silos can be added and removed and other sizes picked.

    See Also
    --------
    klfusion.fuse_files : silos in more files than memory holds.
    Fusion.with_min_support : leave out what few silos have.

    Examples
    --------
    Two sites, each with a slow and a fast process; site b has a third:

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
    silos = read_silos(models)
    posteriors = aligned_silos(silos)
    check_sizes(posteriors)
    by = method_for(method, posteriors)
    settings = FuseSettings(
        method=by,
        pooling=chosen_pooling(pooling, posteriors, by.divergence),
        n_components=_sizes(n_components, posteriors[0]),
        random_state=seed_of(random_state),
    ).with_weights(silo_weights(weights, posteriors))
    posteriors = under_one_prior(posteriors, settings.pooling, by.divergence)
    rng = generator(random_state)
    with progress_bar(progress) as report, comparing(posteriors):
        fusion = _fused(posteriors, settings, rng, report)
    asked = settings.n_components[0]
    if asked is not None and fusion.n_components < asked:
        warnings.warn(
            f"expected {asked} components, as asked for, got {fusion.n_components}: "
            "local components that are equal are one",
            stacklevel=2,
        )
    return replace(fusion, silos=tuple(silos)) if keep_silos else fusion


def _fused(
    posteriors: Sequence[Posterior],
    settings: FuseSettings,
    rng: np.random.Generator,
    report: Report,
) -> Fusion:
    """Match, pool, assemble."""
    method, weights, sizes = settings.method, settings.weight_array(), settings.n_components
    prepared, matching = match_silos(posteriors, weights, method, sizes[0], rng, report)
    kept = np.flatnonzero(matching.labels >= 0)
    problem = prepared.problem
    if len(kept) < problem.n:
        problem = problem.some(kept)
    problem = problem_with_divergence(problem, method.divergence)
    known = known_of(posteriors, prepared.first[kept], weights)
    units = Matched(problem, matching.labels[kept], *known)
    pooling = chosen(settings.pooling, posteriors, method.divergence)
    natural = _pooled(pooling, units, matching.plan, posteriors)
    if matching.location is not None:
        family = require(problem.family, Located, method.name)
        natural = family.relocated(natural, matching.location)
    labels = prepared.spread(matching.labels)
    stacked = problem_with_divergence(stack_silos(posteriors, weights), method.divergence)
    # As certain as a member; a posterior of all data differs from each in certainty above all.
    centres = problem.average(units.labels, len(natural)) if pooling == "auto" else natural
    divergences = match_divergences(stacked, centres, labels)
    per_silo = prepared.by_silo(labels)
    path, probability = matching.path, matching.probability
    if probability is not None:
        probability = prepared.spread_values(probability)
    if path is not None and path.rows is not None:
        path = replace(path, rows=prepared.spread(path.rows))
    if matching.variation is not None:
        settings = replace(settings, variation=tuple(matching.variation.tolist()))

    def match_layer(
        family: Family, naturals: Sequence[FloatArray], layer: int
    ) -> tuple[Sequence[IntArray], int]:
        """Match the units of a later layer, as those of the first were."""
        named = zip(naturals, posteriors, strict=True)
        later = [Posterior(family, own, name=p.name) for own, p in named]
        by_kl = replace(method, divergence="kl")
        if isinstance(by_kl, Networks):
            by_kl = replace(by_kl, convolutional=max(by_kl.convolutional - layer, 0))
        inner, found = match_silos(later, weights, by_kl, sizes[layer], rng, report)
        return inner.by_silo(inner.spread(found.labels)), int(found.labels.max()) + 1

    return assemble(
        (posteriors, per_silo, prepared.by_silo(divergences)),
        natural,
        replace(matching, path=path, probability=probability),
        settings,
        match_layer=match_layer,
        unmatched=unmatched_reasons(posteriors, per_silo, prepared.by_silo(prepared.is_member)),
    )


def _pooled(
    pooling: str, units: Matched, plan: FloatArray | None, posteriors: Sequence[Posterior]
) -> FloatArray:
    """Global components; those of coefficients are checked, and an error names silos at fault."""
    coefficients = all(map(is_regression, posteriors))
    try:
        natural = pool(pooling, units, int(units.labels.max()) + 1, plan)
        if coefficients:
            units.problem.family.check(natural, f"pooling {pooling!r}")
    except InvalidPosteriorError as error:
        wider = {p.name: wider_than_prior(p) for p in posteriors if coefficients}
        silos = [name for name, own in wider.items() if own]
        if not silos:
            raise
        which = f"silos {few(silos)} of {few(wider[silos[0]])}"
        reason = f"expected posteriors as narrow as their priors, got wider ones at {which}"
        raise InvalidPosteriorError(f"{reason} ({error})") from error
    return natural


def _sizes(n_components: int | Sequence[int] | None, first: Silo) -> tuple[int | None, ...]:
    """The size asked for of the components and of each later layer of a network; None: any."""
    structure = first.structure
    deep = structure is not None and structure.kind == network.KIND
    depth = network.n_layers(structure) - 1 if structure is not None and deep else 1
    given = list(n_components) if isinstance(n_components, Sequence) else [n_components]
    if not 1 <= len(given) <= depth:
        raise KLFusionError(
            f"expected n_components to be a number{f' for each of {depth} hidden layers' * deep}"
            f", got {brief(n_components)}"
        )
    for size in given:
        if size is not None:
            check_integer("n_components", size)
    return (*given, *[None] * (depth - len(given)))
