"""lifelines' `CoxPHFitter` and `WeibullAFTFitter`.

The baseline hazard of Cox's model is not sent. Each silo has its own, as in a stratified fit. So
the fused model has hazard ratios; survival curves need a silo's own baseline, or the Weibull model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from lifelines import CoxPHFitter, WeibullAFTFitter

from klfusion._utils.text import few
from klfusion.adapters import _likelihoods
from klfusion.adapters._regressions import Options, Prior, scales, table
from klfusion.errors import KLFusionError
from klfusion.fusion.result import Fusion
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure.regression import Information

_SEPARATOR = ": "  # between the parameter of a Weibull model and the covariate
_NO_FIT = 50  # rows that stand for data; nothing that is returned depends on them


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
) -> Posterior:
    """Coefficients and their precision; ``data``, the frame of the fit, only for other priors."""
    cox = isinstance(model, CoxPHFitter)
    likelihood = "proportional hazards" if cox else "Weibull"
    info = {"package": "lifelines", "class": "CoxPHFitter" if cox else "WeibullAFTFitter"}
    options = Options(name, prior_sd, local, units, at, {**info, "likelihood": likelihood})
    if data is not None and cox:
        return _from_data(model, options, data, duration_col, event_col)
    if getattr(model, "params_", None) is None:
        expected = "call fit first" + ", or give data, duration_col and event_col" * cox
        raise KLFusionError(f"expected a fitted {info['class']}; {expected}")
    if data is not None or at is not None or (cox and prior_sd is not None):
        raise KLFusionError(
            "expected data=, with which a CoxPHFitter can have another prior or at="
        )
    if np.any(np.asarray(model.l1_ratio) > 0):
        raise KLFusionError("expected an l2 penalty, which is a Gaussian prior, got l1_ratio > 0")
    index = model.params_.index
    names = [str(c) if cox else _SEPARATOR.join(map(str, c)) for c in index]
    penalty = np.broadcast_to(np.asarray(model.penalizer, dtype=np.float64), len(names))
    n = int(model._n_examples)
    own = np.zeros(len(names))
    if cox:  # the penalty is per observation, of coefficients of standardised columns
        own = n * penalty * np.asarray(model._norm_std, dtype=np.float64) ** 2
    elif penalty.any():
        raise KLFusionError("expected a WeibullAFTFitter without penalizer; prior_sd adds a prior")
    precision = np.linalg.pinv(model.variance_matrix_.to_numpy(), hermitian=True)
    whole = Information(precision @ model.params_.to_numpy(), precision)
    fitted = Information(whole.shift, whole.precision - np.diag(own))
    events = np.asarray(model.event_observed).sum()
    arrays = {"n": n, "events": float(events)}
    return options.posterior(names, fitted, options.precision(names, own), n, arrays)


def _from_data(
    model: Any, options: Options, data: Any, duration_col: str | None, event_col: str | None
) -> Posterior:
    """Cox's model at the silo's data."""
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
    known = [str(c) for c in model.params_.index] if hasattr(model, "params_") else None
    x, names, _ = table((rest, None), known)
    time = np.asarray(data[duration], dtype=np.float64)
    if not (np.isfinite(time).all() and (time >= 0).all()):
        raise KLFusionError(f"expected times >= 0 in {duration!r}")
    happened = np.ones(len(x)) if event is None else np.asarray(data[event], dtype=np.float64)
    likelihood = _likelihoods.cox(x, time, happened > 0)
    options = replace(options, info={**options.info, "scales": scales(x, names)})
    penalty = np.broadcast_to(np.asarray(model.penalizer, dtype=np.float64), len(names))
    own = len(x) * penalty * x.std(axis=0, ddof=1) ** 2
    return options.laplace(names, likelihood, own, len(x))


def rebuild(posterior: Posterior) -> Any:
    """A fitter with the posterior's mean and covariance."""
    structure = posterior.structure
    assert structure is not None
    info, params = structure.info, posterior.params()
    known = list(info["coordinates"])
    rows = [known.index(c) for c in info["columns"] if c in known]
    names = [known[row] for row in rows]
    mean, covariance = params["mean"][0][rows], params["covariance"][0][np.ix_(rows, rows)]
    cox = info["class"] == "CoxPHFitter"
    columns = (
        names if cox else [c.split(_SEPARATOR, 1)[1] for c in names if c.startswith("lambda_")]
    )
    columns = [c for c in columns if c != "Intercept" or cox]
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(_NO_FIT, len(columns))), columns=columns)
    frame["T"], frame["E"] = rng.exponential(size=_NO_FIT), 1.0
    model = (CoxPHFitter if cox else WeibullAFTFitter)(penalizer=1.0).fit(frame, "T", "E")
    inner = model._model if cox else model
    index = inner.params_.index
    where = [names.index(str(c) if cox else _SEPARATOR.join(map(str, c))) for c in index]
    inner.params_ = pd.Series(mean[where], index=index, name=inner.params_.name)
    inner.variance_matrix_ = pd.DataFrame(
        covariance[np.ix_(where, where)], index=index, columns=index
    )
    inner.standard_errors_ = pd.Series(np.sqrt(np.diag(covariance)[where]), index=index, name="se")
    inner.confidence_intervals_ = inner._compute_confidence_intervals()
    model.penalizer = inner.penalizer = 0.0
    if cox:  # hazards relative to the origin; the baseline is each silo's own
        inner._norm_mean = pd.Series(np.zeros(len(columns)), index=index)
        for name in ("baseline_cumulative_hazard_", "baseline_hazard_", "baseline_survival_"):
            setattr(inner, name, getattr(inner, name) * np.nan)
    return model
