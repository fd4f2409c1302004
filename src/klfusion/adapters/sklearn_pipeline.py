"""scikit-learn's `Pipeline` whose last step an adapter knows, and scaling that sites agreed on.

Steps before the last must do the same at every site. A scaler that was fitted to a site's own rows
does not: what it calls 1 differs between sites.
"""

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import make_pipeline

from klfusion._utils.arrays import FloatArray
from klfusion._utils.text import brief
from klfusion.adapters.dispatch import extract as extract_step
from klfusion.adapters.dispatch import rebuild as rebuild_step
from klfusion.errors import KLFusionError
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure.kinds import SCALING

_PIPELINE = {"package": "sklearn", "class": "Pipeline"}
_STEP = "step"  # key in `info`: package and class of the last step


class AgreedScaling(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """See `agreed_scaling`."""

    def __init__(self, means: Any, deviations: Any) -> None:
        self.means = means
        self.deviations = deviations

    def fit(self, X: Any, y: Any = None) -> Self:
        """Nothing is estimated; columns are counted."""
        del y
        self._scaled(X)
        return self

    def transform(self, X: Any) -> FloatArray:
        """``(X - means) / deviations``."""
        return self._scaled(X)

    def inverse_transform(self, X: Any) -> FloatArray:
        """Back to the units of the data."""
        means, deviations = self._numbers()
        return np.asarray(np.asarray(X, dtype=np.float64) * deviations + means)

    def _scaled(self, X: Any) -> FloatArray:
        means, deviations = self._numbers()
        x = np.asarray(X, dtype=np.float64)
        if x.ndim != 2 or x.shape[1] != len(means):
            raise KLFusionError(f"agreed scaling of {len(means)} columns: got {brief(x)}")
        return np.asarray((x - means) / deviations)

    def _numbers(self) -> tuple[FloatArray, FloatArray]:
        try:
            means, deviations = (
                np.atleast_1d(np.array(own, dtype=np.float64))
                for own in (self.means, self.deviations)
            )
        except (TypeError, ValueError) as error:
            raise KLFusionError(f"agreed scaling: expected numbers ({error})") from error
        fits = means.ndim == 1 and means.shape == deviations.shape and np.isfinite(means).all()
        if not fits or not (np.isfinite(deviations) & (deviations > 0)).all():
            expected = "as many means as deviations > 0, all finite"
            raise KLFusionError(f"agreed scaling: expected {expected}")
        return means, deviations

    def __sklearn_is_fitted__(self) -> bool:
        return True


def agreed_scaling(means: Any, deviations: Any) -> AgreedScaling:
    """A transformer with means and deviations that all sites use, for a scikit-learn `Pipeline`.

    Parameters
    ----------
    means, deviations : sequences of float
        One per column, agreed on before any site fits, such as reference values.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> from sklearn.mixture import BayesianGaussianMixture
    >>> from sklearn.pipeline import make_pipeline
    >>> x = np.random.default_rng(0).normal([60.0, 130.0], [10.0, 20.0], (100, 2))
    >>> scaling = kf.agreed_scaling([60, 130], [10, 20])
    >>> fit = lambda x: make_pipeline(scaling, BayesianGaussianMixture(random_state=0)).fit(x)
    >>> fusion = kf.fuse({"a": fit(x[:50]), "b": fit(x[50:])})
    >>> fusion.model().predict([[60.0, 130.0]])
    array([0])
    """
    scaling = AgreedScaling(means, deviations)
    scaling._numbers()
    return scaling


def extract(model: Any, name: str, **options: Any) -> Posterior:
    """The posterior of the last step; the steps before it must be agreed on."""
    steps = [step for step in model.steps[:-1] if step[1] not in (None, "passthrough")]
    for step, transformer in steps:
        if not isinstance(transformer, AgreedScaling):
            raise KLFusionError(
                f"pipeline step {step!r}: expected kf.agreed_scaling(means, deviations), which is "
                f"the same at every site, got {type(transformer).__name__}, which a site fits to "
                "its own rows; if it was agreed on, pass the last step: pipeline[-1]"
            )
    posterior = extract_step(model.steps[-1][1], name, **options)
    structure = posterior.structure
    if structure is None or not steps:
        return posterior
    agreed = [[own.tolist() for own in transformer._numbers()] for _, transformer in steps]
    info = {**structure.info, SCALING: agreed, **_PIPELINE}
    info[_STEP] = {key: structure.info[key] for key in _PIPELINE}
    return replace(posterior, structure=replace(structure, info=info))


def rebuild(posterior: Posterior) -> Any:
    """A pipeline of the agreed scaling and the model."""
    structure = posterior.structure
    assert structure is not None  # it has the name of this class
    info = {**structure.info, **structure.info[_STEP]}
    steps = [agreed_scaling(*own) for own in info.pop(SCALING)]
    model = rebuild_step(replace(posterior, structure=replace(structure, info=info)))
    return make_pipeline(*steps, model)
