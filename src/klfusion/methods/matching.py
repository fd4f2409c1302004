"""From silos to a matching: which method they get, and what it makes of their components."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace

import numpy as np

from klfusion._utils.arrays import FloatArray, IntArray, by_size, numbering
from klfusion._utils.running import Report
from klfusion.errors import IncompatibleSilosError, KLFusionError
from klfusion.families import Dirichlet
from klfusion.methods.auto import Auto
from klfusion.methods.binary import Binary
from klfusion.methods.by_name import ByName
from klfusion.methods.homogeneous import Homogeneous
from klfusion.methods.max_loss import MaxLoss
from klfusion.methods.method import Method, PathMethod
from klfusion.methods.networks import Networks
from klfusion.methods.penalised import Penalised
from klfusion.methods.relaxed import Relaxed
from klfusion.methods.search import other_divergence
from klfusion.model_size.preparation import Prepared, prepare
from klfusion.objective.divergences import KL, problem_with_divergence
from klfusion.objective.problem import FusionProblem
from klfusion.objective.solution import Matching, Search, Status
from klfusion.posteriors.columns import unmeasured
from klfusion.posteriors.compatibility import Silo, component_names
from klfusion.posteriors.posterior import GLOBAL, Posterior
from klfusion.posteriors.structure import kinds, network
from klfusion.posteriors.structure.convolution import CONVOLUTIONS

_MOST_COMPARED = 2_000  # components whose divergences are all computed, to explain a failure

METHODS: dict[str, type[Method]] = {m.name: m for m in (Auto, Binary, Relaxed, Homogeneous)}


def method_for(method: str | Method, silos: Sequence[Silo]) -> Method:
    """The configuration for these silos: `ByName` for names, `Networks` for networks, and so on."""
    if not isinstance(method, str | Method) or (isinstance(method, str) and method not in METHODS):
        raise KLFusionError(
            f"expected method to be one of {sorted(METHODS)} or a Method such as "
            f"kf.Auto(n_init=3), got {method!r}"
        )
    chosen = METHODS[method]() if isinstance(method, str) else method
    if all(component_names(silo) is not None for silo in silos):
        return _by_name(chosen)
    first = silos[0].structure
    if first is not None and first.kind == network.KIND:
        if isinstance(chosen, MaxLoss):
            raise KLFusionError(
                "networks are fused without max_loss, for their units stay apart: "
                "n_components or a penalty sets the size"
            )
        if isinstance(chosen, Auto | Penalised):
            shared = (field for field in fields(PathMethod) if field.name != "topics")
            given = {f.name: v for f in shared if (v := getattr(chosen, f.name)) != f.default}
            chosen = Networks(penalty=chosen.given_penalty or "auto", **given)
        if isinstance(chosen, Networks):
            if network.n_layers(first) == 2:
                return replace(chosen, outgoing=len(network.layer_arrays(first, 1)[0]))
            return replace(chosen, convolutional=len(first.info.get(CONVOLUTIONS) or ()))
        return chosen
    if isinstance(chosen, PathMethod):
        of_topics = first is None or first.kind == kinds.TOPICS
        return replace(chosen, topics=of_topics and isinstance(silos[0].family, Dirichlet))
    return chosen


def _by_name(chosen: Method) -> Method:
    """Names leave nothing to choose: `ByName`, unless another method was asked for."""
    if chosen == Auto(divergence=chosen.divergence):
        return ByName(divergence=chosen.divergence)
    if not isinstance(chosen, ByName):
        raise KLFusionError(
            f"components have names and are matched by them: expected no method, or kf.ByName(), "
            f"got {chosen!r}"
        )
    return chosen


@contextmanager
def comparing(posteriors: Sequence[Posterior]) -> Iterator[None]:
    """Name the silo behind a failure of arithmetic, such as one with values of 1e100."""
    try:
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            yield
    except KLFusionError as error:
        if not str(error).startswith(f"silo {GLOBAL!r}"):  # a fused component outside its family
            raise
        raise _incomparable(posteriors, error) from error
    except (ArithmeticError, ValueError) as error:
        raise _incomparable(posteriors, error) from error


def check_sizes(posteriors: Sequence[Posterior]) -> None:
    """Refuse a component so large that a sum with the median one is the component alone."""
    sizes = _sizes(posteriors)
    if np.max(sizes) > np.median(sizes) / np.finfo(np.float64).eps:
        raise _incomparable(posteriors, "float64 loses the others' digits in a sum")


def _sizes(posteriors: Sequence[Posterior]) -> FloatArray:
    """Largest natural parameter of each component of all silos, (n,)."""
    own = [np.maximum(p.natural.max(axis=1), -p.natural.min(axis=1)) for p in posteriors]
    return np.asarray(np.maximum(np.concatenate(own), np.finfo(np.float64).tiny))


def _incomparable(posteriors: Sequence[Posterior], why: object) -> IncompatibleSilosError:
    """An error about the component that is least like the others, in what can be computed."""
    size = np.log10(_sizes(posteriors))
    odd = np.zeros(len(size))
    if len(size) <= _MOST_COMPARED and len({p.family for p in posteriors}) == 1:
        natural = np.concatenate([p.natural for p in posteriors])
        with np.errstate(all="ignore"):
            bad = ~np.isfinite(posteriors[0].family.kl(natural, natural))
        odd = bad.sum(axis=0) + bad.sum(axis=1)
    middle = float(np.median(size))
    row = int(np.lexsort([np.abs(size - middle), odd])[-1])
    ends = np.cumsum([p.n_components for p in posteriors])
    j = int(np.searchsorted(ends, row, side="right"))
    name, component = posteriors[j].name, row - int(ends[j]) + posteriors[j].n_components
    return IncompatibleSilosError(
        f"silo {name!r}, component {component}: expected parameters that can be compared with the "
        f"others', got natural parameters of size {10.0 ** size[row]:.3g}, where the median is "
        f"{10.0**middle:.3g} ({why})",
        silo=name,
    )


def match_silos(
    posteriors: Sequence[Posterior],
    weights: FloatArray,
    method: Method,
    n_components: int | None,
    rng: np.random.Generator,
    report: Report,
) -> tuple[Prepared, Matching]:
    """Prepare the silos' components and match those; global components are ordered by size."""
    search = method.search(n_components, rng, report)
    prepared = prepare(posteriors, weights, clean=method.cleans and len(posteriors) > 1)
    problem = prepared.problem
    check_size(method, n_components, problem.largest_silo, problem.n, posteriors)
    if len(posteriors) == 1 and not method.within_silos:
        penalty = method.given_penalty or 0.0
        labels, value = np.arange(problem.n), penalty * problem.n  # all stay themselves
        found = Matching(labels, value, value, [value], penalty, Status.SINGLE_SILO)
    elif isinstance(method, ByName):
        found = method.match_names(posteriors, prepared, search)
    else:
        problem = problem.ignoring(unmeasured(posteriors))
        found = method.match(problem, search)
        if method.divergence != KL.name:
            found = _other_divergence(method, problem, found, search)
    found = found.of_rows(np.arange(problem.n), problem.n)
    if found.part_of is not None and (found.part_of >= 0).any():
        prepared, found = _with_parts(prepared, found, found.part_of)
    return prepared, _ordered(found, prepared)


def _with_parts(
    prepared: Prepared, found: Matching, part_of: IntArray
) -> tuple[Prepared, Matching]:
    """Fragments of components as rows of the components they belong to."""
    alone = np.flatnonzero(part_of < 0)
    path, probability = found.path, found.probability
    if path is not None and path.rows is not None:
        path = replace(path, rows=path.rows[alone])
    if probability is not None:
        probability = probability[alone]
    found = replace(found, labels=found.labels[alone], path=path, probability=probability)
    return prepared.with_parts(part_of), found


def _other_divergence(
    method: Method, problem: FusionProblem, found: Matching, search: Search
) -> Matching:
    """Alternate under the method's divergence, from the matching under KL."""
    kept, variation = np.flatnonzero(found.labels >= 0), found.variation
    some = method.compared(problem.some(kept)).with_variation(variation)
    other = problem_with_divergence(some, method.divergence)
    start = replace(found, labels=found.labels[kept])
    new = other_divergence(other, start, method.given_penalty, search)
    return replace(new.of_rows(kept, problem.n), variation=variation)


def _ordered(found: Matching, prepared: Prepared) -> Matching:
    """Global components with the most members first, then as they first appear in the silos."""
    size = found.plan.shape[1] if found.plan is not None else int(found.labels.max()) + 1
    counts = np.bincount(found.labels[found.labels >= 0], minlength=size)
    order = by_size(counts, found.labels, prepared.first)
    order = order[counts[order] > 0]
    return replace(
        found,
        labels=numbering(order, size)[found.labels],
        plan=None if found.plan is None else found.plan[:, order],
        location=None if found.location is None else found.location[order],
    )


def check_size(
    method: Method, n_components: int | None, largest_silo: int, n: int, silos: Sequence[Silo]
) -> None:
    """Refuse a size below that of the largest silo, or above that of all ``n`` components."""
    if n_components is None:
        return
    if n_components < largest_silo and not method.within_silos:
        largest = max(silos, key=lambda p: p.n_components)
        advice = "; within_silos=True of kf.MaxLoss goes below"
        raise IncompatibleSilosError(
            f"expected n_components >= {largest_silo}, the size of silo {largest.name!r} "
            f"(its components stay apart{advice * isinstance(method, PathMethod)}), "
            f"got {n_components}"
        )
    if n_components > n:
        raise IncompatibleSilosError(
            f"expected n_components <= {n}, the number of local components to match "
            "(some methods first leave out those without data and merge splits), "
            f"got {n_components}"
        )
