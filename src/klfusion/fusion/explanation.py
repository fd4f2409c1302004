"""Why a fusion has its size: the evidence of every size, and the least probable decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import log_softmax

from klfusion._utils.text import printable
from klfusion.families import GaussianObservations
from klfusion.methods import Auto, MaxLoss
from klfusion.objective.solution import Status
from klfusion.posteriors.compatibility import aligned_silos

if TYPE_CHECKING:
    from klfusion.fusion.result import Fusion

_NAMED = 3  # decisions that the text names; the report lists more
_CLEAR = 0.95  # probability from which a decision needs no name in the text
_BLOCK = 1 << 12  # components that are compared at once
_LARGE_ODDS = 1e4  # odds above which their size says nothing more


class Size(NamedTuple):
    """A size on the merge path."""

    n_components: int
    log_evidence: float  # nats
    behind: float  # nats by which the evidence is below the highest
    probability: float  # among the sizes of the path


class Decision(NamedTuple):
    """Where a local component is: matched to others, or alone."""

    silo: str
    component: int
    global_component: int
    matched: bool
    probability: float

    def __str__(self) -> str:
        where = f"in {self.global_component}" if self.matched else "alone"
        return f"{printable(self.silo)}:{self.component} {where} ({self.probability:.0%})"


def sizes(fusion: Fusion) -> list[Size] | None:
    """Every size of the merge path, the largest first; None where no evidence chose the size.

    Evidence is that of the path's clusters. Of the fusion's size they need not be the fusion's.
    """
    path = fusion.path
    if path is None or path.evidence is None:
        return None
    behind = path.evidence.max() - path.evidence
    columns = path.n_components, path.evidence, behind, np.exp(log_softmax(path.evidence))
    return [Size(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def decisions(fusion: Fusion) -> list[Decision]:
    """Every local component with a probability, the least probable first."""
    if fusion.probability is None:
        return []
    shared = (fusion.contributions > 0).sum(axis=0) > 1
    by_silo = zip(fusion.silo_names, fusion.labels, fusion.probability, strict=True)
    found = [
        Decision(name, int(k), int(labels[k]), bool(shared[labels[k]]), float(sure[k]))
        for name, labels, sure in by_silo
        for k in np.flatnonzero(np.isfinite(sure))
    ]
    return sorted(found, key=lambda one: one.probability)


def why(fusion: Fusion) -> list[str]:
    """Sentences: the size against its rivals, and how sure the matches are."""
    known = sizes(fusion)
    size = _given(fusion) if known is None else _by_evidence(fusion, known)
    return [*size, *_doubts(fusion), *_far_apart(fusion)]


def _given(fusion: Fusion) -> list[str]:
    n, settings = _components(fusion.n_components), fusion.settings
    method, penalty = settings.method, settings.method.given_penalty
    if fusion.status in (Status.SINGLE_SILO, Status.NAMED, Status.KEPT):
        return [f"{n}: {fusion.status}."]
    if settings.n_components[0] is not None:
        return [f"{n}: the size was asked for."]
    if penalty is not None:
        return [f"{n}: the size at a penalty of {penalty:.4g} nats."]
    if isinstance(method, MaxLoss):
        return [f"{n}: the fewest that lose at most {method.max_loss:.4g} nats per observation."]
    name = method.to_config().get("name")
    return [f"{n}: the method {name!r} gives no evidence of other sizes."]


def _by_evidence(fusion: Fusion, known: list[Size]) -> list[str]:
    best, *others = sorted(known, key=lambda one: -one.log_evidence)
    size, last = best.n_components, known[-1].n_components
    sample = " of a sample of silos" * (fusion.path is not None and fusion.path.rows is None)
    verb = "has" if size == 1 else "have"
    text = [f"{_components(size)} {verb} the highest evidence on the merge path{sample}."]
    likely = known[0].log_evidence > best.log_evidence - np.log(_LARGE_ODDS)  # nothing shared
    nearest = [one for one in known if abs(one.n_components - size) == 1]
    rivals = sorted({*nearest, *others[:1], *(known[:1] if likely else [])} - {best})
    text += [_compared(one, best.log_evidence - one.log_evidence) for one in rivals]
    if size == last > 1:
        text.append(
            f"Fewer than {last} cannot be had by merges: any two of them hold components of one "
            "silo, which differ."
        )
    if fusion.n_components != size:
        text.append(_moved(fusion, size))
    if (n := fusion.n_unmatched) > 0:
        text.append(
            f"{n} local {'component was' if n == 1 else 'components were'} left out: "
            "fusion.unmatched says why."
        )
    return text


def _moved(fusion: Fusion, best: int) -> str:
    """Why the size is not the one of highest evidence on the path."""
    n, method = _components(fusion.n_components), fusion.settings.method
    share = getattr(method, "false_matches", None)
    if fusion.status is Status.KEPT:
        return f"This fusion has {n}: the size was picked, or silos came or went."
    if share is not None and fusion.n_components > best:
        return (
            f"This fusion has {n}: matches were undone until at most {share:.0%} of the rest are "
            "expected to be wrong."
        )
    if len(fusion.labels) == 2:
        return (
            f"This fusion has {n}: of two silos, all matchings count, and pairs are matched that "
            "are more probable than not."
        )
    if fusion.n_components > best:
        return (
            f"This fusion has {n}: some were then moved out of the path's clusters, to where they "
            "are more probable given all others."
        )
    return (
        f"This fusion has {n}: some of the path's clusters were then found to be one, or parts of "
        "others. That compares the clusters themselves; the evidence on the path compares each "
        "member with its own cluster."
    )


def _doubts(fusion: Fusion) -> list[str]:
    found = decisions(fusion)
    n = sum(one.matched for one in found)
    if n == 0:
        return ["No local component is matched to one of another silo."] if found else []
    false = fusion.expected_false_matches
    wrong = "fewer than 0.01" if false < 0.01 else f"{false:.2f}"
    text = [f"Of {n} matched local components, {wrong} are expected to be matched wrongly."]
    weak = [one for one in found if one.probability < _CLEAR][:_NAMED]
    if weak:
        text.append(f"Least certain, as silo:component: {', '.join(map(str, weak))}.")
    return text


def _far_apart(fusion: Fusion) -> list[str]:
    """Components of one global component that lie as far apart as different ones do."""
    method, silos = fusion.settings.method, fusion.silos
    if not isinstance(method, Auto) or silos is None:
        return []
    if not isinstance(family := fusion.posterior.family, GaussianObservations):
        return []
    silos = tuple(aligned_silos(silos))
    natural, labels = np.concatenate([own.natural for own in silos]), np.concatenate(fusion.labels)
    rows = np.flatnonzero(labels >= 0)
    first = np.unique(labels[rows], return_index=True)[1]
    other = rows[first[labels[rows]]]
    each = [slice(low, low + _BLOCK) for low in range(0, len(rows), _BLOCK)]
    apart = np.concatenate([family.separation(natural[rows[s]], natural[other[s]]) for s in each])
    k = int(apart.argmax())
    if apart[k] <= method.separation:
        return []
    names = [f"{printable(own.name)}:{i}" for own in silos for i in range(own.n_components)]
    return [
        f"{names[other[k]]} and {names[rows[k]]} are of one global component, and lie "
        f"{apart[k]:.0f} standard deviations of an observation apart: see whether they should be."
    ]


def _components(n: int) -> str:
    return f"{n} component{'s' * (n != 1)}"


def _compared(rival: Size, behind: float) -> str:
    odds, verb = np.exp(min(behind, 50.0)), "is" if rival.n_components == 1 else "are"
    ratio = f"{odds:.1f}" if odds < 10 else f"{float(f'{odds:.2g}'):,.0f}"
    ratio = f"more than {_LARGE_ODDS:,.0f}" if odds > _LARGE_ODDS else ratio
    n = _components(rival.n_components)
    return f"{n} {verb} {behind:.1f} nats less probable, odds of {ratio} to 1."
