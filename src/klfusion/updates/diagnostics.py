"""How far a fusion can be trusted: each match, each silo, each component."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from klfusion._fuse import fuse
from klfusion._utils.arrays import BoolArray, FloatArray, IntArray, joining
from klfusion._utils.checks import check_integer, generator
from klfusion.errors import KLFusionError
from klfusion.fusion.result import Fusion
from klfusion.methods.matching import comparing
from klfusion.objective.clusters import Clusters
from klfusion.pooling.pool import matched
from klfusion.pooling.robust import RADIUS
from klfusion.posteriors.columns import unmeasured
from klfusion.posteriors.compatibility import aligned_silos
from klfusion.posteriors.posterior import Posterior
from klfusion.updates.findings import Finding, findings_of
from klfusion.updates.heterogeneity import doubtful_columns
from klfusion.updates.price import price_of
from klfusion.updates.table import kept_silos

_BySilo = tuple[FloatArray, ...]
_MOST_SHOWN = 20  # findings, where a diagnosis is printed


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    """What `diagnose` found.

    Parameters
    ----------
    margins : tuple of arrays
        Per silo and component, the nats to the next best plan of its silo without this match. Small
        is doubtful, 0 a tie, NaN an unmatched component. Below 0 the other plan costs less, and the
        method found this one more probable.
    misfit : array of shape (silos,)
        Cost of a silo's matches relative to the median member; NaN without others to compare.
    support : int array of shape (components,)
        How many silos have each global component.
    stability : tuple of arrays, optional
        Per silo and component, the mean Jaccard index of its cluster when random halves of the
        silos are fused; NaN for an unmatched component.
    findings : tuple of Finding
    """

    margins: _BySilo
    misfit: FloatArray
    support: IntArray
    stability: _BySilo | None
    findings: tuple[Finding, ...]

    def __repr__(self) -> str:
        """What looks wrong first, then each measure's extremes; one line each."""
        shown, n = [f"  {finding}" for finding in self.findings[:_MOST_SHOWN]], len(self.findings)
        rest, lines = n - len(shown), [f"Diagnosis: {n or 'no'} finding{'s' * (n != 1)}"]
        lines += [*shown, f"  and {rest} more in findings"] if rest else shown
        measures = {
            "margins (nats to the next best plan)": np.concatenate(self.margins),
            "misfit (1 is the median)": self.misfit,
            "support (silos of a component)": self.support.astype(np.float64),
            "stability (1: always the same cluster)": np.concatenate(self.stability or [[np.nan]]),
        }
        for name, values in measures.items():
            known = values[~np.isnan(values)]
            if len(known):
                low, middle, high = known.min(), np.median(known), known.max()
                lines.append(f"  {name}: {low:.3g} to {high:.3g}, median {middle:.3g}")
        return "\n".join(lines)


def diagnose(fusion: Fusion, *, resamples: int = 0, random_state: int = 0) -> Diagnosis:
    """Look for doubtful matches, silos that do not fit, and components that look made up.

    Costs are those of ``"kl"``, whatever divergence the fusion minimised.

    Parameters
    ----------
    fusion : Fusion
        With its silos (``keep_silos=True``).
    resamples : int
        How often to fuse a random half of the silos, for ``stability``.
    random_state : int

    Examples
    --------
    >>> import klfusion as kf
    >>> rates = kf.families.Gamma()
    >>> shapes = {"a": [30, 900], "b": [910, 32], "c": [910, 31], "d": [29, 880]}
    >>> silos = [kf.Posterior(rates, rates.natural(s, [10, 10]), name=n) for n, s in shapes.items()]
    >>> kf.diagnose(kf.fuse(silos))
    Diagnosis: 2 findings
      silo 'b', component 0: a copy of component 0 of silo 'c'
      silo 'c', component 0: a copy of component 0 of silo 'b'
      margins (nats to the next best plan): ...
    """
    check_integer("resamples", resamples, least=0)
    rng = generator(random_state)
    if not isinstance(fusion, Fusion):
        raise KLFusionError(f"expected a Fusion, as kf.fuse returns it, got {fusion!r}")
    silos = aligned_silos(kept_silos(fusion, "diagnose"))
    with comparing(silos):
        margins, costs = _margins(fusion, silos)
    misfit = _misfit(fusion, costs)
    support = (fusion.contributions > 0).sum(axis=0)
    stability = _stability(fusion, silos, resamples, rng) if resamples > 0 else None
    findings = [
        Finding(name, None, f"its matches cost {value:.3g} times the median")
        for name, value in zip(fusion.silo_names, misfit, strict=True)
        if value > RADIUS  # where robust pooling leaves members out
    ]
    findings += [*_alone(fusion, support), *_hindering(fusion, silos)]
    findings += findings_of(silos)
    findings += [Finding(name, None, reason) for name, reason in doubtful_columns(fusion, silos)]
    return Diagnosis(margins, misfit, support, stability, tuple(findings))


def _margins(fusion: Fusion, silos: list[Posterior]) -> tuple[_BySilo, _BySilo]:
    """Margin of each match, and what it adds to the divergence, the silo being taken out."""
    settings = fusion.settings
    units = matched(silos, fusion.labels, settings.weight_array())
    variation = settings.variation_array(units.problem.family)
    # In the columns that were compared when they were matched.
    some = replace(units.problem, prior=units.priors).ignoring(unmeasured(silos))
    problem = settings.method.compared(some, variation=variation)
    clusters = Clusters(problem, units.labels)
    penalty = price_of(fusion, clusters)
    present = [j for j, own in enumerate(fusion.labels) if (own >= 0).any()]
    margins, costs = ([np.full(len(own), np.nan) for own in fusion.labels] for _ in range(2))
    for j, rows in zip(present, problem.silos, strict=True):
        own = clusters.labels[rows].copy()  # without gaps, unlike those of the fusion
        clusters.take_out(rows)
        added = clusters.increases(rows)
        margin = _next_best(added, own, clusters.counts, penalty)
        clusters.put_in(rows, own)
        for row, label in enumerate(units.labels[rows]):
            margins[j][fusion.labels[j] == label] = margin[row]
            costs[j][fusion.labels[j] == label] = added[row, own[row]]
    return tuple(margins), tuple(costs)


def _next_best(added: FloatArray, own: IntArray, counts: IntArray, penalty: float) -> FloatArray:
    """What one assignment of a silo loses when each match in turn is forbidden."""
    n = len(own)
    # Without a penalty the size was given, and nothing may open a component.
    new = np.full((n, n), penalty if penalty > 0 else np.inf)
    costs = np.hstack([added + joining(counts, penalty), new])
    best = costs[np.arange(n), own].sum()
    margin = np.empty(n)
    for row in range(n):
        other = costs.copy()
        other[row, own[row]] = np.inf
        if counts[own[row]] == 0:  # alone: a component of its own by another name is no other plan
            other[row, added.shape[1] :] = np.inf
        try:
            margin[row] = other[linear_sum_assignment(other)].sum() - best
        except ValueError:  # no other plan there is
            margin[row] = np.inf
    return margin


def _stability(
    fusion: Fusion, silos: list[Posterior], resamples: int, rng: np.random.Generator
) -> _BySilo:
    total, times = ([np.zeros(len(own)) for own in fusion.labels] for _ in range(2))
    half = max(2, (len(silos) + 1) // 2)
    for _ in range(resamples):
        chosen = np.sort(rng.permutation(len(silos))[:half])
        again = _again(fusion, silos, chosen)
        old = np.concatenate([fusion.labels[j] for j in chosen])
        same_old, same_new = _same_cluster(old), _same_cluster(np.concatenate(again.labels))
        jaccard = (same_old & same_new).sum(axis=1) / (same_old | same_new).sum(axis=1)
        edges = np.cumsum([len(fusion.labels[j]) for j in chosen])[:-1]
        for j, values in zip(chosen, np.split(jaccard, edges), strict=True):
            total[j] += values
            times[j] += fusion.labels[j] >= 0
    with np.errstate(divide="ignore", invalid="ignore"):
        return tuple(np.where(n > 0, t / n, np.nan) for t, n in zip(total, times, strict=True))


def _again(fusion: Fusion, silos: list[Posterior], chosen: IntArray) -> Fusion:
    """Some of the silos fused in the same way."""
    same: dict[str, Any] = {key: getattr(fusion.settings, key) for key in ("method", "pooling")}
    same |= {"n_components": fusion.settings.n_components[0], "keep_silos": False}
    weights = fusion.settings.weight_array()[chosen]
    return fuse([silos[j] for j in chosen], weights=weights, progress=False, **same)


def _same_cluster(labels: IntArray) -> BoolArray:
    """Which components share a label, (n, n); one that was left out is alone."""
    same = (labels[:, None] == labels) & (labels >= 0)
    np.fill_diagonal(same, True)
    return np.asarray(same)


def _misfit(fusion: Fusion, costs: _BySilo) -> FloatArray:
    """Mean over a silo's shared components of its cost over the component's median cost."""
    labels, all_costs = np.concatenate(fusion.labels), np.concatenate(costs)
    shared = np.flatnonzero((fusion.contributions > 0).sum(axis=0) >= 2)
    median = np.full(fusion.n_components, np.nan)
    for g in shared:
        median[g] = max(float(np.median(all_costs[labels == g])), np.finfo(np.float64).tiny)
    out = np.full(fusion.n_silos, np.nan)
    for j, (own, cost) in enumerate(zip(fusion.labels, costs, strict=True)):
        known = np.isin(own, shared)
        if known.any():
            out[j] = float((cost[known] / median[own[known]]).mean())
    return out


def _alone(fusion: Fusion, support: IntArray) -> list[Finding]:
    """Components nobody else has, where others are shared by three silos, or by both of two."""
    if support.max() < min(max(fusion.n_silos, 2), 3):
        return []
    return [
        Finding(*fusion.sources(int(g))[0], "matches no other silo's")
        for g in np.flatnonzero(support == 1)
    ]


def _hindering(fusion: Fusion, silos: list[Posterior]) -> list[Finding]:
    """The silo of the most components, if others share more without it.

    Components of one silo show how different ones differ. Many that overlap say: hardly. Or they
    lie where others have one component, and each draws some of them away.
    """
    if fusion.n_silos < 3 or fusion.settings.n_components[0] is not None:
        return []
    sizes = np.array([silo.n_components for silo in silos])
    largest = int(np.argmax(sizes))
    others = np.delete(np.arange(len(silos)), largest)
    own = [fusion.labels[j] for j in others]
    shared = _mostly_shared(own)
    if shared and not sizes[largest] > sizes[others].max():
        return []
    without = _again(fusion, silos, others)
    if not _mostly_shared(list(without.labels)):
        return []
    if not shared:
        n = int(((without.contributions > 0).sum(axis=0) > 1).sum())
        reason = f"hardly anything matches beside its components; without it others share {n}"
    elif n := _torn(np.concatenate(list(without.labels)), np.concatenate(own), len(others)):
        what = "a component" if n == 1 else f"{n} components"
        reason = f"without it most others share {what}, with it most do not"
    else:
        return []
    return [Finding(silos[largest].name, None, reason)]


def _torn(before: IntArray, after: IntArray, n_silos: int) -> int:
    """Components of most silos of which most are no longer together."""
    members = [after[before == g] for g in range(int(before.max(initial=-1)) + 1)]
    return sum(
        2 * len(own) > n_silos and 2 * np.bincount(own[own >= 0], minlength=1).max() <= len(own)
        for own in members
    )


def _mostly_shared(labels: list[IntArray]) -> bool:
    """Whether most components are shared by silos."""
    every = np.concatenate(labels)
    support = np.bincount(every[every >= 0])
    return bool(support[support > 1].sum() > 0.5 * len(every))
