"""lifelines' fitters of a fusion: they predict from columns by name."""

from typing import Any

import pandas as pd
from lifelines import CoxPHFitter
from lifelines.utils import CovariateParameterMappings

from klfusion._utils.text import few
from klfusion.errors import KLFusionError

INTERCEPT = CovariateParameterMappings.INTERCEPT_COL


class FusedCoxPHFitter(CoxPHFitter):  # type: ignore[misc]
    """A `CoxPHFitter` without a baseline, which says so when it is asked for survival curves."""

    def _none(self, *args: Any, **options: Any) -> Any:
        raise KLFusionError(
            "expected a baseline hazard, got none: silos send it with kf.extract(..., data=frame, "
            "times=[...]); without it there are predict_partial_hazard and hazard ratios"
        )

    predict_survival_function = predict_cumulative_hazard = predict_median = _none
    predict_percentile = predict_expectation = plot_partial_effects_on_outcome = _none


class _ByName(CovariateParameterMappings):  # type: ignore[misc]
    """The columns of each parameter, found by name in a data frame."""

    def transform_df(self, df: pd.DataFrame) -> Any:
        """The columns of all parameters; an error names those that the frame lacks."""
        every = dict.fromkeys(c for own in self.mappings.values() for c in own)
        names = [c for c in every if c != INTERCEPT]
        missing = [c for c in names if c not in df.columns]
        if missing:
            parameter = next(iter(self.mappings))
            raise KLFusionError(
                f"expected the columns {few(names)}, got none named {few(missing)}: of a formula, "
                "predict from its design matrix, such as "
                f"fit.regressors.transform_df(frame)[{parameter!r}]"
            )
        return super().transform_df(df)


def design(regressors: Any, index: Any) -> _ByName:
    """The columns of each parameter that have coefficients."""
    found = _ByName({}, pd.DataFrame())
    found.mappings = {
        parameter: [c[1] for c in index if c[0] == parameter] if index.nlevels > 1 else list(index)
        for parameter in regressors.mappings
    }
    found.force_intercept = any(INTERCEPT in own for own in found.mappings.values())
    return found
