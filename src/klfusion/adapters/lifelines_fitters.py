"""lifelines' `CoxPHFitter` and `WeibullAFTFitter`.

Each silo has its own baseline hazard of Cox's model, as in a stratified fit. With ``times=``, its
logarithm at these times is sent as coefficients that stay local, and survival curves come back.
Without, the fused model has hazard ratios.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from lifelines import CoxPHFitter, WeibullAFTFitter
from lifelines.utils import CensoringType

from klfusion._utils.arrays import BoolArray, FloatArray
from klfusion._utils.text import few
from klfusion.adapters import _likelihoods
from klfusion.adapters._fused_lifelines import INTERCEPT, FusedCoxPHFitter, design
from klfusion.adapters._regressions import Options, Prior, references, scales, scales_of, table
from klfusion.adapters._same_data import check_fit
from klfusion.errors import KLFusionError
from klfusion.fusion.result import Fusion
from klfusion.pooling.regressions import joint
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure.regression import Information

_SEPARATOR = ": "  # between the parameter of a Weibull model and the covariate
_NO_FIT = 50  # rows that stand for data; nothing that is returned depends on them
_FINE = 50  # steps of a baseline between two times, of which a median is the first beyond
_SHAPE = f"rho_{_SEPARATOR}{INTERCEPT}"  # the logarithm of a Weibull model's shape


def extract(
    model: Any,
    name: str,
    *,
    data: Any = None,
    duration_col: str | None = None,
    event_col: str | None = None,
    prior_sd: Prior = None,
    local: Sequence[str] = (),
    units: Mapping[str, str] | None = None,
    at: Fusion | Posterior | None = None,
    times: Sequence[float] | None = None,
) -> Posterior:
    """Coefficients and their precision; ``data``, the frame of the fit, for all but the fit."""
    cox, is_fitted = isinstance(model, CoxPHFitter), getattr(model, "params_", None) is not None
    censoring = CensoringType.str_censoring_type(model) if is_fitted else "right"
    info = {"package": "lifelines", "class": "CoxPHFitter" if cox else "WeibullAFTFitter"}
    if cox:
        info |= {"likelihood": "proportional hazards", "ties": "efron"}
    else:
        info |= {"likelihood": "Weibull", "censoring": censoring}
    options = Options(name, prior_sd, local, units, at, info)
    if np.any(np.asarray(model.l1_ratio) > 0):
        raise KLFusionError("expected an l2 penalty, which is a Gaussian prior, got l1_ratio > 0")
    if (baseline := getattr(model, "baseline_estimation_method", "breslow")) != "breslow":
        raise KLFusionError(
            f"expected a CoxPHFitter with baseline_estimation_method='breslow', got {baseline!r}: "
            "kf.coefficients takes estimates and their covariance"
        )
    if data is not None:
        if censoring != "right":
            raise KLFusionError(f"expected right censoring with data=, got {censoring} censoring")
        sample, columns = _read(model, data, duration_col, event_col)
        added = {"outcome": columns, "scales": scales(*sample[:2])}
        options = replace(options, info={**options.info, **added})
        return _cox(model, options, sample, times) if cox else _weibull(model, options, sample)
    if not is_fitted:
        raise KLFusionError(
            f"expected a fitted {info['class']}; call fit first, or give data, duration_col and "
            "event_col"
        )
    if at is not None or times is not None or (cox and prior_sd is not None):
        raise KLFusionError("expected data=, with which there can be at, times or another prior")
    _check_plain(model)
    events = float(np.asarray(model.event_observed).sum())
    if events == 0 and censoring != "interval":  # intervals say more than events
        raise KLFusionError(
            "expected events, got none: give data, which may lack them, and prior_sd"
        )
    index = model.params_.index
    names = [str(c) if cox else _SEPARATOR.join(map(str, c)) for c in index]
    n, own = int(model._n_examples), _penalties(model, model._norm_std)
    precision = np.linalg.pinv(model.variance_matrix_.to_numpy(), hermitian=True)
    fitted = Information(precision @ model.params_.to_numpy(), precision - np.diag(own))
    pair = ("lower_bound", "upper_bound") if censoring == "interval" else ("duration", "event")
    arrays, columns = {"events": events}, [getattr(model, f"{key}_col") for key in pair]
    found: dict[str, Any] = _scales(model, names) if cox else {}
    parts = [str(c) if cox else str(c[1]) for c in index]
    levels = [references(own, parts) for own in model.regressors.mappings.values()]
    found["reference"] = {factor: level for own in levels for factor, level in own.items()}
    options = replace(options, info={**options.info, "outcome": columns, **found})
    return options.posterior(names, fitted, options.precision(names, own), n, arrays)


def _check_plain(model: Any) -> None:
    """Refuse a fit whose covariance is not that of its likelihood."""
    for key in ("robust", "weights_col", "cluster_col"):
        if value := getattr(model, key, None):
            raise KLFusionError(
                f"expected a fit without {key}, for its information is not that of a likelihood, "
                f"got {key}={value!r}: kf.coefficients takes estimates and their covariance"
            )


def _scales(model: Any, names: list[str]) -> dict[str, Any]:
    """Deviations of the columns, by which lifelines standardised them."""
    n = int(model._n_examples)
    mean, deviation = (np.asarray(own, float) for own in (model._norm_mean, model._norm_std))
    return {"scales": scales_of(mean, deviation**2 * (n - 1) / n, names)}


def _penalties(model: Any, deviations: Any) -> FloatArray:
    """The prior's precision: a penalty per observation, of coefficients of standardised columns."""
    if isinstance(model, WeibullAFTFitter) and np.ndim(model.penalizer):
        raise KLFusionError("expected one number as the penalizer of a WeibullAFTFitter")
    strength = np.asarray(model.penalizer) * np.asarray(deviations, dtype=np.float64) ** 2
    if isinstance(model, CoxPHFitter):
        return np.asarray(model._n_examples * strength)
    total = float(np.asarray(model.weights).sum())
    return np.where(np.asarray(model._cols_to_not_penalize), 0.0, total * strength)


_Sample = tuple[FloatArray, list[str], FloatArray, BoolArray]


def _read(
    model: Any, data: Any, duration_col: str | None, event_col: str | None
) -> tuple[_Sample, list[str | None]]:
    """Columns, their names, times, and whether the event happened; names of the last two."""
    duration = duration_col or getattr(model, "duration_col", None)
    event = event_col or getattr(model, "event_col", None)
    if not hasattr(data, "columns") or duration is None:
        raise KLFusionError("expected data to be a data frame, and duration_col, event_col")
    missing = [c for c in (duration, event) if c is not None and c not in data.columns]
    if missing:
        raise KLFusionError(f"expected the column {missing[0]!r}, got {few(list(data.columns))}")
    if getattr(model, "strata", None):
        raise KLFusionError("expected no strata with data=; without data= they are allowed")
    rest = data.drop(columns=[c for c in (duration, event) if c is not None])
    x, names, _ = table((rest, None), _columns(model))
    time = np.asarray(data[duration], dtype=np.float64)
    if not (np.isfinite(time).all() and (time >= 0).all()):
        raise KLFusionError(f"expected times >= 0 in {duration!r}")
    happened = np.ones(len(x)) if event is None else np.asarray(data[event], dtype=np.float64)
    if not np.isin(happened, (0.0, 1.0)).all():
        raise KLFusionError(f"expected 0 and 1 in {event!r}")
    return (x, names, time, happened > 0), [duration, event]


def _columns(model: Any) -> list[str] | None:
    """The columns of a fit, without intercepts."""
    if getattr(model, "params_", None) is None:
        return None
    if isinstance(model, CoxPHFitter):
        return [str(c) for c in model.params_.index]
    return [str(c) for c in model.params_["lambda_"].index if c != INTERCEPT]


def _cox(model: Any, options: Options, sample: _Sample, times: Sequence[float] | None) -> Posterior:
    """Cox's model at the silo's data, and its baseline at ``times``."""
    x, names, time, event = sample
    penalty = np.asarray(model.penalizer, dtype=np.float64)
    own = np.broadcast_to(len(x) * penalty, len(names)) * x.std(axis=0, ddof=1) ** 2
    likelihood = _likelihoods.cox(x, time, event)
    if getattr(model, "params_", None) is not None:
        check_fit(likelihood, model.params_.to_numpy(), own)
    precision, point = options.centre(names, likelihood, own)
    found = _likelihoods.expanded(likelihood, point)
    arrays = {"events": float(event.sum())}
    if times is None:
        return options.posterior(names, found, precision, len(x), arrays)
    at = _checked_times(times, time[event])
    offset, slope, covariance = _likelihoods.log_baseline(x, time, event, point, at)
    baseline = [_baseline(value) for value in at]
    options = replace(
        options,
        local=[*options.local, *baseline],
        info={**options.info, "times": at.tolist()},
    )
    whole = np.zeros((len(names) + len(at),) * 2)
    whole[: len(names), : len(names)] = precision
    return options.posterior(
        [*names, *baseline], joint(found, offset, slope, covariance), whole, len(x), arrays
    )


def _baseline(time: float) -> str:
    return f"log baseline hazard until {time:g}"


def _checked_times(times: Any, events: FloatArray) -> FloatArray:
    """Times with an event of the silo before the first, and between any two."""
    at = np.asarray(times, dtype=np.float64).reshape(-1)
    if len(at) == 0 or not (np.isfinite(at).all() and (np.diff(at, prepend=0.0) > 0).all()):
        raise KLFusionError(f"expected increasing times > 0, got {times!r}")
    number = np.searchsorted(np.sort(events), at, side="right")
    empty = np.flatnonzero(np.diff(number, prepend=0) == 0)
    if len(empty):
        k = int(empty[0])
        since = 0.0 if k == 0 else float(at[k - 1])
        raise KLFusionError(
            f"expected an event after {since:g} and until {at[k]:g}, got none: give fewer times, "
            "the same at all silos"
        )
    return at


def _weibull(model: Any, options: Options, sample: _Sample) -> Posterior:
    """The Weibull model at the silo's data."""
    columns, names, time, event = sample
    if model.model_ancillary:
        raise KLFusionError("expected no ancillary columns with data=; without data= are allowed")
    if not (time > 0).all():
        raise KLFusionError("expected times > 0 of a Weibull model")
    fitted = getattr(model, "params_", None) is not None
    known = list(model.params_["lambda_"].index) if fitted else [INTERCEPT] * model.fit_intercept
    intercept = [INTERCEPT] * (INTERCEPT in known)
    x = np.hstack([columns, np.ones((len(columns), len(intercept)))])
    names = [*(f"lambda_{_SEPARATOR}{c}" for c in [*names, *intercept]), _SHAPE]
    own, likelihood = None, _likelihoods.weibull(x, time, event)
    if fitted:
        index = [_SEPARATOR.join(map(str, c)) for c in model.params_.index]
        order = [index.index(key) for key in names]
        own = _penalties(model, model._norm_std)[order]
        check_fit(likelihood, model.params_.to_numpy()[order], own)
    elif options.prior_sd is None and np.any(model.penalizer):
        raise KLFusionError("expected prior_sd, or a fit with this penalizer")
    arrays = {"events": float(event.sum())}
    return options.laplace(names, likelihood, own, len(x), arrays)


def rebuild(posterior: Posterior) -> Any:
    """A fitter with the posterior's mean and covariance."""
    structure = posterior.structure
    assert structure is not None
    info, params = structure.info, posterior.params()
    known = list(info["coordinates"])
    times = [t for t in info.get("times", []) if _baseline(t) in known]
    hidden = [_baseline(t) for t in times]
    rows = [known.index(c) for c in info["columns"] if c in known and c not in hidden]
    names = [known[row] for row in rows]
    mean, covariance = params["mean"][0][rows], params["covariance"][0][np.ix_(rows, rows)]
    cox = info["class"] == "CoxPHFitter"
    columns, ancillary = names, []
    if not cox:
        columns, ancillary = (
            [c.removeprefix(own) for c in names if c.startswith(own) and c != own + INTERCEPT]
            for own in (f"lambda_{_SEPARATOR}", f"rho_{_SEPARATOR}")
        )
    rng = np.random.default_rng(0)
    both = list(dict.fromkeys([*columns, *ancillary]))
    frame = pd.DataFrame(rng.normal(size=(_NO_FIT, len(both))), columns=both)
    of_shape = {"ancillary": frame[ancillary]} if ancillary else {}
    frame = frame[columns].copy()
    duration, event = (str(c or "event") for c in [*info["outcome"], None][:2])
    frame[duration], frame[event] = rng.exponential(size=_NO_FIT), np.arange(_NO_FIT) % 2
    kind = WeibullAFTFitter if not cox else CoxPHFitter if times else FusedCoxPHFitter
    model = kind(penalizer=1.0).fit(frame, duration, event, **of_shape)
    inner = model._model if cox else model
    index = inner.params_.index
    keys = [str(c) if cox else _SEPARATOR.join(map(str, c)) for c in index]
    index = index[[key in names for key in keys]]  # a fit may have no intercept
    where = [names.index(key) for key in keys if key in names]
    inner.regressors = design(inner.regressors, index)
    inner.params_ = pd.Series(mean[where], index=index, name=inner.params_.name)
    inner.variance_matrix_ = pd.DataFrame(
        covariance[np.ix_(where, where)], index=index, columns=index
    )
    inner.standard_errors_ = pd.Series(np.sqrt(np.diag(covariance)[where]), index=index, name="se")
    inner.confidence_intervals_ = inner._compute_confidence_intervals()
    model.penalizer = inner.penalizer = 0.0
    inner._central_values *= 0.0  # effects are relative to the origin
    # Statistics of the fit need data.
    inner.log_likelihood_ = inner._ll_null_ = inner._concordance_index_ = np.nan
    n = np.nan if posterior.counts is None else float(posterior.counts.sum())
    events = float(structure.arrays.get("events", np.nan))
    happened = np.asarray(inner.event_observed) > 0  # half of the rows
    inner.weights = pd.Series(np.where(happened, events, n - events) / (_NO_FIT / 2))
    inner.weights.index = inner.event_observed.index
    model._censoring_type = CensoringType(info.get("censoring", "right"))
    if model._censoring_type is CensoringType.INTERVAL:
        model.lower_bound_col, model.upper_bound_col, model.event_col = duration, event, None
    if cox:  # hazards relative to the origin
        inner._norm_mean = pd.Series(np.zeros(len(columns)), index=index)
        logs = params["mean"][0][[known.index(c) for c in hidden]]
        _set_baseline(inner, times, np.maximum.accumulate(np.exp(logs)))
    return model


def _set_baseline(inner: Any, times: Sequence[float], hazard: FloatArray) -> None:
    """A cumulative baseline hazard, zero at the origin and linear between times; or none."""
    name = "baseline cumulative hazard"
    index, values = inner.baseline_hazard_.index, np.full(len(inner.baseline_hazard_), np.nan)
    if times:
        knots, number = [0.0, *times], np.arange(len(times) + 1)
        fine = np.linspace(0.0, len(times), _FINE * len(times) + 1)
        index = pd.Index(np.interp(fine, number, knots))
        values = np.interp(index, knots, [0.0, *hazard])
    inner.baseline_cumulative_hazard_ = pd.DataFrame({name: values}, index=index)
    inner.baseline_hazard_ = pd.DataFrame(
        {"baseline hazard": np.diff(values, prepend=0.0)}, index=index
    )
    inner.baseline_survival_ = pd.DataFrame({"baseline survival": np.exp(-values)}, index=index)
    inner.timeline = index
