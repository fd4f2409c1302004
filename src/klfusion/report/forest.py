"""Forest plots: each coefficient of a regression at every silo, their mean, and a new silo."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from klfusion._utils.intervals import DEVIATIONS
from klfusion.fusion.result import Fusion
from klfusion.posteriors.posterior import Posterior
from klfusion.report.views import short

WIDTH = 460.0  # pixels of a plot, without names and numbers
_MARGIN = 12.0
_MAX_COEFFICIENTS = 60
_MAX_SILOS = 60  # rows of one plot
_TICKS = 5
_COUNTS = 0.2  # times an equal share of the weight
_SIDE = 14.0  # pixels, the side of the square of a silo that has all the weight


def forest_view(fusion: Fusion, silos: Sequence[Posterior] | None) -> dict[str, Any]:
    """Data of the plots; without the silos' posteriors, the global coefficients only."""
    structure, params = fusion.posterior.structure, fusion.posterior.params()
    assert structure is not None
    names = structure.info["coordinates"]
    wide = DEVIATIONS * np.sqrt(np.diagonal(params["covariance"][0]))
    fused = [
        {"mean": short(m), "low": short(m - w), "high": short(m + w)}
        for m, w in zip(params["mean"][0], wide, strict=True)
    ]
    view: dict[str, Any] = {
        "kind": "regression",
        "pooling": fusion.settings.pooled or fusion.settings.pooling,
        "local": list(structure.info["local"]),
        "n_coefficients": len(names),
        "n_not_shown": max(0, len(names) - _MAX_COEFFICIENTS),
        "coefficients": [
            {"name": name, "fused": own, "plot": None}
            for name, own in zip(names[:_MAX_COEFFICIENTS], fused, strict=False)
        ],
        "width": WIDTH,
    }
    if silos is None:
        return view
    found = replace(fusion, silos=tuple(silos)).heterogeneity()
    for one in view["coefficients"]:
        own = found.get(one["name"])
        if own is None:  # no silo's data say more than the prior
            continue
        keys = ("estimate", "tau2", "i2", "q", "q_p_value")
        one |= {key: short(getattr(own, key)) for key in keys}
        for key in ("interval", "prediction_interval"):
            one[key] = [short(value) for value in getattr(own, key)]
        one["plot"] = _plot(own, one["fused"])
    return view


def _plot(own: Any, fused: dict[str, Any]) -> dict[str, Any]:
    """Positions in pixels of the silos with most weight, the mean, and the prediction interval."""
    order = np.argsort(-np.array(own.weights), kind="stable")[:_MAX_SILOS]
    shown = sorted(order.tolist())
    # A silo that hardly counts may run out of the plot.
    ends = [own.intervals[j] for j in shown if own.weights[j] > _COUNTS / len(own.silos)]
    new = own.prediction_interval if len(own.silos) > 1 else own.interval
    low = min(*(e[0] for e in ends), new[0], 0.0)
    high = max(*(e[1] for e in ends), new[1], 0.0)
    span = (high - low) or 1.0

    def at(value: float) -> float:
        place = _MARGIN + (WIDTH - 2 * _MARGIN) * (value - low) / span
        return round(float(np.clip(place, 0.0, WIDTH)), 1)

    rows = [
        {
            "silo": own.silos[j],
            "estimate": short(own.estimates[j]),
            "low": short(own.intervals[j][0]),
            "high": short(own.intervals[j][1]),
            "weight": round(100 * own.weights[j], 1),
            "x": [at(own.intervals[j][0]), at(own.estimates[j]), at(own.intervals[j][1])],
            "side": round(max(3.0, _SIDE * float(np.sqrt(own.weights[j]))), 1),
        }
        for j in shown
    ]
    step = 10.0 ** np.floor(np.log10(span / _TICKS))
    step *= next(k for k in (1, 2, 5, 10) if span / (k * step) <= _TICKS + 1)
    ticks = np.arange(np.ceil(low / step), np.floor(high / step) + 1) * step
    return {
        "rows": rows,
        "n_not_shown": len(own.silos) - len(rows),
        "zero": at(0.0),
        "mean": [at(own.interval[0]), at(own.estimate), at(own.interval[1])],
        "new": [at(value) for value in new],
        "fused": [at(fused[key] or 0.0) for key in ("low", "mean", "high")],
        "ticks": [{"x": at(value), "text": f"{value + 0.0:.4g}"} for value in ticks],
    }
