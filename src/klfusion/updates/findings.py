"""What looks wrong in what silos sent, before anything is matched."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtr

from klfusion._utils.arrays import FloatArray
from klfusion._utils.text import few, printable
from klfusion.families import GaussianObservations, Tempered
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import class_densities
from klfusion.posteriors.structure.kinds import observations
from klfusion.updates.units import other_units

_DIGITS = 9  # in which copies agree; independent fits do not
_OVERCLAIM = 3.0  # times the median certainty is no finding
_SLACK = 10.0  # observations that a prior may be worth
_OUTLYING = 6.0  # robust deviations, of logarithms
_BY_CHANCE = 1e-6  # probability of a mean so near zero, unless it was subtracted


@dataclass(frozen=True)
class Finding:
    """Something a person should look at: which silo, which component (None: all), and why."""

    silo: str
    component: int | None
    reason: str

    def __str__(self) -> str:
        where = "" if self.component is None else f", component {self.component}"
        return f"silo {self.silo!r}{where}: {self.reason}"


def findings_of(silos: Sequence[Posterior]) -> list[Finding]:
    """Claims that do not agree, copies, and columns that may not be the same everywhere."""
    found = [*of_draws(silos), *_overclaims(silos), *_copies(silos), *_columns(silos)]
    return [*found, *_class_statistics(silos)]


def of_draws(silos: Sequence[Posterior]) -> list[Finding]:
    """What silos found doubtful about their own draws."""
    given = ((p.name, p.provenance.get("findings")) for p in silos)
    known = ((name, texts) for name, texts in given if isinstance(texts, list | tuple))
    return [Finding(name, None, printable(str(text))) for name, texts in known for text in texts]


def _class_statistics(silos: Sequence[Posterior]) -> list[Finding]:
    """Networks without class statistics beside others with them."""
    sent = [p.structure is not None and class_densities.n_sites(p.structure.arrays) for p in silos]
    reason = "it has no class statistics, so those of the other silos are not used"
    return [
        Finding(p.name, None, reason)
        for p, own in zip(silos, sent, strict=True)
        if any(sent) and not own
    ]


def _columns(silos: Sequence[Posterior]) -> list[Finding]:
    """Columns without names beside named ones, and columns that silos scaled in their own way."""
    if len(silos) < 2:
        return []
    features: dict[str, list[str]] = {}
    for p in silos:
        if p.structure is not None and p.structure.info.get("features") is not None:
            features[p.name] = p.structure.info["features"]
    first = next(iter(features), "")
    found = [
        Finding(p.name, None, f"its columns have no names, those of silo {first!r} have: "
                f"expected the order {few(features[first])}")
        for p in silos if features and p.name not in features
    ]  # fmt: skip
    moments = {p.name: m for p in silos if (m := _moments(p)) is not None}
    centred = [name for name, m in moments.items() if _is_centred(*m)]
    found += [
        Finding(name, None, "its overall mean is zero in every column, as if it had been "
                "standardised by itself: silos need common units and a common origin")
        for name in centred
    ]  # fmt: skip
    for own in [] if centred else other_units(silos):
        known = "all columns"
        if own.columns is not None:
            words = [features[first][c] if features else c for c in own.columns]
            known = f"column{'s' * (len(words) > 1)} {few(words, len(words))}"
        times = ", ".join(f"{scale:.3g}" for scale in own.scales)
        text = f"mean and spread of {known} are {times} times the other silos', with probability"
        found.append(Finding(own.silo, None, f"{text} {own.probability:.2f}: other units?"))
    return found


def _moments(posterior: Posterior) -> tuple[float, FloatArray, FloatArray] | None:
    """Number of observations, mean and standard deviation (d,) of all data of a silo.

    What data add to the priors of all components are sums over observations, exactly. A prior that
    is not known is part of them; where it lies at the mean of the data, this stays.
    """
    family, prior = posterior.family, posterior.prior
    if not isinstance(family, GaussianObservations):
        return None
    total = (posterior.natural - (0.0 if prior is None else prior)).sum(axis=0)[None]
    n = float(family.effective_size(total)[0]) if isinstance(family, Tempered) else 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        mean, covariance = family.observation_moments(total)
        variance = covariance[0] if covariance.ndim == 2 else np.diag(covariance[0])
        deviation = np.sqrt(variance)
    return (n, mean[0], deviation) if n > 1 and np.isfinite(deviation).all() else None


def _is_centred(n: float, mean: FloatArray, deviation: FloatArray) -> bool:
    """Whether the mean is nearer to zero than sampling allows, unless it was subtracted.

    Of data with mean zero, ``n mean^2 / variance`` over all columns is chi-squared.
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # of a constant column
        square = n * float(((mean / deviation) ** 2).sum())
    return bool(chdtr(len(mean), square) < _BY_CHANCE)


def _overclaims(silos: Sequence[Posterior]) -> list[Finding]:
    """Components whose certainty and number of observations do not agree, as they do elsewhere.

    Where a silo sent no counts, components far more certain than the median.
    """
    family = silos[0].family
    if not isinstance(family, Tempered):
        return []
    sizes, claims = [family.effective_size(p.natural) for p in silos], [*map(_claimed, silos)]
    counts = [n for n in claims if n is not None]
    known = len(counts) == len(silos)
    if known:
        per_one = [size / (_SLACK + n) for size, n in zip(sizes, counts, strict=True)]
        rate = float(np.median(np.concatenate(per_one)))  # certainty per observation
        sizes = [
            (_SLACK + size / rate) / (_SLACK + n) for size, n in zip(sizes, counts, strict=True)
        ]
    logs = [np.log(size) for size in sizes]
    middle = np.median(np.concatenate(logs))
    spread = 1.4826 * float(np.median(np.abs(np.concatenate(logs) - middle)))
    limit = max(_OUTLYING * spread, np.log(_OVERCLAIM))
    found = []
    for j, posterior in enumerate(silos):
        beyond = logs[j] - middle
        for k in np.flatnonzero(np.abs(beyond) > limit if known else beyond > limit):
            reason = f"{np.exp(beyond[k]):.3g} times as certain as the median"
            if known:
                reason += " for its observations"
            if beyond[k] < 0:
                factor = np.exp(-beyond[k])
                reason = f"claims {factor:.3g} times the observations that its certainty shows"
            found.append(Finding(posterior.name, int(k), reason))
    return found


def _claimed(posterior: Posterior) -> FloatArray | None:
    """Observations per component that a silo claims, in its counts or in its structure."""
    given = (posterior.counts, observations(posterior.structure))
    known = [counts for counts in given if counts is not None]
    return np.max(known, axis=0) if known else None


def _copies(silos: Sequence[Posterior]) -> list[Finding]:
    """Components that equal another silo's: independent fits never agree to so many digits."""
    first: dict[bytes, list[tuple[str, int]]] = {}
    for posterior in silos:
        scale = np.abs(posterior.natural).max(axis=1, keepdims=True)
        power = 10.0 ** (_DIGITS - np.ceil(np.log10(np.maximum(scale, 1e-300))))
        for k, row in enumerate(np.round(posterior.natural * power)):
            first.setdefault(row.tobytes(), []).append((posterior.name, k))
    return [
        Finding(name, k, f"a copy of component {other[1]} of silo {other[0]!r}")
        for alike in first.values()
        for name, k in alike
        for other in [next((o for o in alike if o[0] != name), None)]
        if other is not None
    ]
