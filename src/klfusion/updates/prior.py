"""The strength of a prior, estimated from what silos sent (empirical Bayes)."""

import numpy as np
from scipy.optimize import minimize_scalar

from klfusion.errors import KLFusionError
from klfusion.fusion.result import Fusion
from klfusion.pooling.regressions import Silos, added
from klfusion.posteriors.coefficients import is_regression
from klfusion.posteriors.compatibility import aligned_silos
from klfusion.updates.table import kept_silos

_RANGE = (1e-4, 1e4)  # standard deviations, times that of the estimates


def estimate_prior_sd(fusion: Fusion) -> float:
    """The standard deviation of a common prior of shared coefficients that is most probable.

    It maximises the marginal likelihood of all silos, from what they sent. Give it to the silos as
    ``prior_sd`` for a next round, or use it to fit other models of the same columns. Coefficients
    whose prior is flat stay so. Columns should have comparable scales.

    Parameters
    ----------
    fusion : Fusion
        Of regressions, with its silos (``keep_silos=True``).

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> rng = np.random.default_rng(0)
    >>> names, true, silos = [f"x{k}" for k in range(40)], rng.normal(scale=0.5, size=40), {}
    >>> for name in "abc":
    ...     mean = true + rng.normal(scale=0.2, size=40)
    ...     silos[name] = kf.coefficients(mean, 0.04 * np.eye(40), names, name=name)
    >>> print(f"{np.sqrt(np.mean(true**2)):.2f} {kf.estimate_prior_sd(kf.fuse(silos)):.2f}")
    0.39 0.39
    """
    if not isinstance(fusion, Fusion) or not is_regression(fusion.posterior):
        raise KLFusionError(f"expected a fusion of regressions, got {fusion!r}")
    posteriors = aligned_silos(kept_silos(fusion, "estimate a prior"))
    silos = Silos.of(posteriors, fusion.settings.weight_array(), "product")
    whole = added(*silos.likelihoods)
    proper = np.diag(silos.prior.precision) > 0
    rows = np.flatnonzero(proper if proper.any() else np.ones(silos.dim))
    rest = np.setdiff1d(np.arange(silos.dim), rows)
    part = whole.split(rest)[0] if len(rest) else whole
    alike = np.eye(len(rows))  # covariances of a prior with deviation 1
    if len(_classes(fusion)) > 2 and proper.any():  # of differences from the first class
        own = np.linalg.inv(silos.prior.some(rows).precision)
        alike = 2.0 * own / np.sqrt(np.outer(np.diag(own), np.diag(own)))

    def loss(log_sd: float) -> float:
        """Minus the log marginal likelihood, up to a constant."""
        prior = np.exp(2.0 * log_sd) * alike
        mixing = np.eye(len(rows)) + part.precision @ prior
        fitted = part.shift @ prior @ np.linalg.solve(mixing, part.shift)
        return float(0.5 * np.linalg.slogdet(mixing)[1] - 0.5 * fitted)

    typical = float(
        np.sqrt(np.mean(np.linalg.lstsq(part.precision, part.shift, rcond=None)[0] ** 2))
    )
    bounds = np.log(np.array(_RANGE) * max(typical, np.finfo(np.float64).tiny))
    return float(np.exp(minimize_scalar(loss, bounds=tuple(bounds), method="bounded").x))


def _classes(fusion: Fusion) -> list[object]:
    """Of a logistic regression."""
    structure = fusion.posterior.structure
    return [] if structure is None else list(structure.info.get("classes", []))
