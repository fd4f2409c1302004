"""`from_draws`: the posterior that draws stand for."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from klfusion._utils.checks import check_number
from klfusion._utils.package import provenance
from klfusion.draws.components import SOURCE, components_posterior
from klfusion.draws.moments import doubts_of_prior, matched_normal
from klfusion.draws.priors import prior_information
from klfusion.draws.variables import Draws, read_draws
from klfusion.errors import KLFusionError
from klfusion.pooling.noise_power import NoisePower
from klfusion.posteriors.coefficients import regression
from klfusion.posteriors.posterior import UNKNOWN, Posterior


def from_draws(
    draws: Mapping[str, Any],
    *,
    name: str,
    variables: Sequence[str] | None = None,
    supports: Mapping[str, Any] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Sequence[Any]] | None = None,
    components: str | Sequence[str] | None = None,
    scales: Mapping[str, str] | None = None,
    local: Sequence[str] = (),
    prior: Any = None,
    units: Mapping[str, str] | None = None,
    n_observations: float | None = None,
    diverging: Any = None,
) -> Posterior:
    """The posterior that draws stand for: a Normal over unconstrained coordinates.

    Without ``components`` it is one Normal of all coordinates, as `coefficients` makes it. Silos
    share a coordinate if its name is the same. With ``components`` each component is a Normal, and
    components are matched. Label switching is undone first, as `relabel` does it.
    R-hat, effective sample sizes, divergent transitions and the distance of draws from a Normal
    are checked. What is doubtful is in ``provenance["findings"]``, which `diagnose` lists.

    Parameters
    ----------
    draws : mapping of name to array (chain, draw, ...)
    name : str
        The silo's name.
    variables : sequence of str, optional
        Which variables to use; default: all. Discrete ones and linear functions of others are
        refused; leave other functions of variables out.
    supports : mapping of name to support, optional
        ``"real"``, ``"positive"``, ``"unit_interval"``, ``"simplex"``, ``"ordered"``,
        ``"positive_ordered"``, ``"cholesky"``, ``"cholesky_corr"``, or a pair of bounds. Default:
        by name and values, such as ``sigma`` for a positive variable; else real.
    dims, coords : mappings, optional
        Names of the axes of each variable, and labels along each, as ArviZ has them.
    components : str or sequence of str, optional
        The dim along which components lie; further names of the same dim, as of the columns of a
        transition matrix.
    scales : mapping of name to name, optional
        Coefficients and the noise of a linear regression, such as ``{"beta": "sigma"}``; or means
        and deviations of components. Their coordinates are ``beta / sigma`` and ``1 / sigma``, in
        which the likelihood is nearly Normal even where sites differ in noise (Olsen, 1978).
    local : sequence of str
        Variables or coordinates that differ between silos. They are marginalised out, and given
        back by ``fusion.site(name)``.
    prior : mapping of name to prior, or one for all variables, optional
        The prior that the draws include, to be counted once. A number is the standard deviation of
        a Normal around zero, a pair its mean and deviation, within the support. A distribution of
        scipy, NumPyro or Pyro, or a function, gives a log-density. An array has draws. For weights
        of components, a number is the concentration of a Dirichlet. Default: ``"flat"``.
    units : mapping of coordinate to str, optional
        Silos that give other units are refused.
    n_observations : float, optional
        With ``scales`` it makes the fusion of linear regressions exact but for errors of the draws.
    diverging : array, optional
        Which transitions diverged.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> rng, silos = np.random.default_rng(0), []
    >>> for name, dose in {"a": 0.2, "b": 0.4}.items():
    ...     draws = {"beta": rng.normal([1.0, dose], 0.1, (4, 500, 2)),
    ...              "sigma": rng.lognormal(0.5, 0.1, (4, 500))}
    ...     silos.append(kf.from_draws(draws, name=name, dims={"beta": ["covariate"]},
    ...                                coords={"covariate": ["age", "dose"]}))
    >>> fusion = kf.fuse(silos)
    >>> fusion.posterior.structure.info["coordinates"]
    ['beta[age]', 'beta[dose]', 'log(sigma)']
    >>> fusion.posterior.params()["mean"][0, :2].round(1)
    array([1. , 0.3])
    """
    where = f"silo {name!r}"
    if n_observations is not None:
        check_number(f"{where}: n_observations", n_observations)
    read = read_draws(
        draws, where, variables=variables, supports=supports, dims=dims, coords=coords,
        diverging=diverging,
    )  # fmt: skip
    if components is not None:
        if local or units:
            expected = "local and units: expected draws without components"
            raise KLFusionError(f"{where}: {expected}")
        return components_posterior(read, components, prior, name, scales)
    if scales:
        read = read.scaled_by(scales, where)
    table, names = read.table(), read.coordinates
    information, findings, effective = matched_normal(table, names, where, read.n_divergent)
    before = prior_information(read, prior, where)
    findings += doubts_of_prior(before, information, names, effective)
    findings += read.doubts()
    info = {**SOURCE, "variables": [v.to_json() for v in read.variables], "units": units}
    made = regression(
        information,
        before,
        names,
        name,
        _expanded(local, read, where),
        n_observations,
        info,
    )
    if scales and n_observations is not None and NoisePower.of([made], np.ones(1)) is None:
        findings.append(
            f"n_observations = {n_observations:g} is not used: expected one noise, as well known "
            "as that of a linear regression with so many"
        )
    n_draws = table.shape[0] * table.shape[1]
    stated = UNKNOWN if prior is None else None
    own = provenance(n_draws=n_draws, findings=findings or None, prior=stated)
    return replace(made, provenance=own)


def _expanded(local: Sequence[str], draws: Draws, where: str) -> list[str]:
    """Coordinates of the variables, or coordinates, that are local."""
    if isinstance(local, str):
        raise KLFusionError(f"{where}: local: expected a list of names, got {local!r}")
    own = {v.name: v.coordinates for v in draws.variables}
    units = [key for key in local if any(v.scale == key for v in draws.variables)]
    if units:
        raise KLFusionError(f"{where}: local: expected no scale of others, got {units[0]!r}")
    return [name for key in local for name in own.get(key, [key])]
