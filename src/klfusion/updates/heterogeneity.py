"""How much coefficients differ between silos, as a meta-analysis of each; doubtful columns."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion._utils.text import few
from klfusion.draws.moments import NARROWER
from klfusion.draws.variables import names_of
from klfusion.errors import KLFusionError
from klfusion.fusion.result import Fusion
from klfusion.methods.matching import comparing
from klfusion.pooling.meta_analysis import MetaAnalysis, meta_analysis, varying
from klfusion.pooling.regressions import NOTHING, VARYING, Silos
from klfusion.posteriors.coefficients import flattest, is_regression, leading, narrower
from klfusion.posteriors.compatibility import aligned_silos
from klfusion.posteriors.posterior import UNKNOWN, Posterior
from klfusion.posteriors.structure.regression import Information
from klfusion.updates.findings import of_draws
from klfusion.updates.table import kept_silos

# Ratio of a column's deviations at two silos. Hospitals differ a few times; metres and centimetres,
# years and months, or mmol/l and mg/dl by ten times and more. Nearer units are not found.
_OTHER_UNITS = 10.0
_SAYS_NOTHING = "is constant: it says nothing"


def heterogeneity(fusion: Fusion) -> dict[str, MetaAnalysis]:
    """See `Fusion.heterogeneity`."""
    if not is_regression(fusion.posterior):
        raise KLFusionError("expected a fusion of regressions, got other models")
    posteriors = aligned_silos(kept_silos(fusion, "compare coefficients"))
    with comparing(posteriors):
        return _heterogeneity(posteriors, fusion)


def _heterogeneity(posteriors: Sequence[Posterior], fusion: Fusion) -> dict[str, MetaAnalysis]:
    silos = Silos.of(posteriors, fusion.settings.weight_array(), "product")
    structure = posteriors[0].structure
    assert structure is not None
    found = {}
    for k, name in enumerate(structure.info["coordinates"]):
        numbers, estimates, variances = silos.estimates(k)
        if not numbers:
            continue
        names = tuple(posteriors[j].name for j in numbers)
        found[str(name)] = meta_analysis(estimates, variances, names)
    return found


def doubtful_columns(fusion: Fusion, silos: Sequence[Posterior]) -> list[tuple[str, str]]:
    """Silo and reason: constant columns, other units, coefficients that silos do not share."""
    found, spreads = [], [_scales(silo) for silo in silos]
    for name in dict.fromkeys(key for own in spreads for key in own):
        middle = float(np.median([own[name] for own in spreads if name in own]))
        for silo, own in zip(silos, spreads, strict=True):
            spread = own.get(name, middle)
            if spread == 0:
                found.append((silo.name, f"column {name!r} {_SAYS_NOTHING}"))
            elif middle > 0 and not 1 / _OTHER_UNITS < spread / middle < _OTHER_UNITS:
                text = f"column {name!r} has deviation {spread:.2g}, that of others is {middle:.2g}"
                found.append((silo.name, f"{text}: other units?"))
    if not is_regression(fusion.posterior):
        return found
    constant = {name for name, text in found if text.endswith(_SAYS_NOTHING)}
    told = constant | {own.silo for own in of_draws(silos) if NARROWER in own.reason}
    for silo in silos:
        found += [(silo.name, text) for text in _undetermined(silo, silo.name in told)]
    found += _other_priors(silos)
    tests = heterogeneity(fusion)
    for name in varying(tests):
        test = tests[name]
        (called,) = names_of(fusion.posterior.structure, [name])
        text = f"coefficient {called!r} differs most from those of other silos (Q {test.q:.3g}, "
        text += f"p {test.q_p_value:.1e})"
        if fusion.settings.pooling not in VARYING:
            text += ": pooling='hierarchical' lets it vary"
        found.append((test.silos[int(_falls_of_q(test).argmax())], text))
    return found


def _falls_of_q(test: MetaAnalysis) -> FloatArray:
    """By how much Cochran's Q is smaller without each silo, (J,).

    It is the square of a silo's difference to the mean of the others, in standard errors of that
    difference: the deleted residual. So a precise silo is not blamed for a mean that another moves.
    """
    weights, estimates = 1.0 / np.array(test.variances), np.array(test.estimates)
    share = weights / weights.sum()
    squares = weights * (estimates - share @ estimates) ** 2
    return np.asarray(squares / np.maximum(1.0 - share, np.finfo(np.float64).eps))


def _other_priors(silos: Sequence[Posterior]) -> list[tuple[str, str]]:
    """Silos that state no prior where others do, or one of another deviation."""
    unknown = [silo.name for silo in silos if silo.provenance.get("prior") == UNKNOWN]
    found = [
        (name, "states no prior, other silos do: what it has is counted once more: give prior=")
        for name in unknown if len(unknown) < len(silos)
    ]  # fmt: skip
    structure = silos[0].structure
    assert structure is not None
    names = structure.info["coordinates"]
    precisions = [Information.of(np.asarray(p.prior), len(names)).precision for p in silos]
    for k, name in enumerate(names):
        own = {
            p.name: a[k, k] ** -0.5 for p, a in zip(silos, precisions, strict=True) if a[k, k] > 0
        }
        middle = float(np.median([*own.values()])) if own else 0.0
        text = f"its prior of {name!r} has deviation {{:.2g}}, those of others {middle:.2g}"
        found += [
            (silo, text.format(sd))
            for silo, sd in own.items()
            if not 1 / _OTHER_UNITS < sd / middle < _OTHER_UNITS
        ]
    return found


def _undetermined(silo: Posterior, told: bool) -> list[str]:
    """Coefficients about which the silo's data say nothing, for the prior is all it has there.

    They may be ``told`` already. Draws of the prior alone may be wider than it, by chance.
    """
    structure, prior = silo.structure, silo.prior
    assert structure is not None and prior is not None
    names = list(structure.info["coordinates"])
    columns = structure.info.get("columns") or names
    found = [f"lacks {name!r}, which has the prior there" for name in names if name not in columns]
    rows = np.array([k for k, name in enumerate(names) if name in columns], dtype=np.intp)
    own, before = (Information.of(eta, len(names)).some(rows) for eta in (silo.natural[0], prior))
    value, direction = flattest(Information(own.shift, own.precision - before.precision))
    if told or value >= NOTHING:
        return found
    wider = rows[narrower(before, own)]
    if len(wider) and "variables" not in structure.info:
        which = few([names[k] for k in wider.tolist()])
        return [*found, f"its posterior of {which} is wider than its prior: is it its own?"]
    which = few([names[k] for k in rows[leading(direction[:, None])].tolist()])
    return [*found, f"its data do not separate the coefficients of {which}: the prior does"]


def _scales(silo: Posterior) -> dict[str, float]:
    """Standard deviations of columns, where a silo sent them."""
    found: Any = {} if silo.structure is None else silo.structure.info.get("scales")
    return {str(key): float(sd) for key, sd in found.items()} if isinstance(found, dict) else {}
