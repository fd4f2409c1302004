"""The Normal with the moments of draws, and what is doubtful about it."""

from collections.abc import Sequence

import numpy as np

from klfusion._utils.arrays import FloatArray
from klfusion._utils.text import few
from klfusion.draws import convergence, normality
from klfusion.draws.priors import precision_of
from klfusion.errors import KLFusionError
from klfusion.posteriors.coefficients import narrower
from klfusion.posteriors.structure.regression import Information

NARROWER = "is narrower than the draws"  # of a prior, in findings


def matched_normal(
    table: FloatArray, names: Sequence[str], where: str, n_divergent: int = 0
) -> tuple[Information, list[str], float]:
    """The Normal with the moments of draws (chains, draws, d), and what is doubtful about them.

    Last is the effective sample size.
    """
    flat, dim = table.reshape(-1, table.shape[-1]), table.shape[-1]
    findings = convergence.doubts(table, names, n_divergent)
    effective = float(len(flat))
    if table.shape[1] >= 4:
        effective = float(np.minimum(np.nan_to_num(convergence.ess(table)), effective).mean())
    _check_rank(flat, names, where)
    if not effective > dim + 2:
        reason = f" ({findings[0]})" if findings else ""
        raise KLFusionError(
            f"{where}: expected an effective sample size above {dim + 2}, for {dim} coordinates, "
            f"got {effective:.0f} of {len(flat)} draws{reason}"
        )
    findings += normality.doubts(flat, names, effective)
    precision = precision_of(np.cov(flat.T).reshape(dim, dim), effective)
    return Information(precision @ flat.mean(axis=0), precision), findings, effective


def doubts_of_prior(
    prior: Information, found: Information, names: Sequence[str], effective: float
) -> list[str]:
    """A line if a prior is narrower than the Normal of draws that include it.

    By chance ``n`` draws of a distribution look wider than it in some direction. The bound is that
    of the largest eigenvalue of a Wishart matrix (Davidson and Szarek, 2001).
    """
    dim, n = len(names), effective
    wider = 1.0 + np.sqrt(dim / n) + np.sqrt(-2.0 * np.log(normality.BY_CHANCE) / n)
    unbiased = (n - dim - 2.0) / (n - 1.0)  # as `precision_of` makes it
    rows = narrower(prior, found, float(wider**2 / unbiased))
    if not len(rows):
        return []
    which = few([names[k] for k in rows.tolist()])
    reason = "without it less than nothing is left; is it the prior that draws include?"
    return [f"the prior of {which} {NARROWER}: {reason}"]


def _check_rank(flat: FloatArray, names: Sequence[str], where: str) -> None:
    """Refuse coordinates that are constant, or linear functions of others."""
    n, dim = flat.shape
    if n <= dim + 2:
        raise KLFusionError(
            f"{where}: expected more than {dim + 2} draws of {dim} coordinates, got {n}"
        )
    scale = flat.std(axis=0)
    still = np.flatnonzero(~(scale > np.finfo(np.float64).eps * np.abs(flat).max(axis=0)))
    if len(still):
        which = few([names[int(k)] for k in still])
        raise KLFusionError(
            f"{where}: expected draws that vary, got constant ones of {which}: leave "
            "them out by variables=, or give the support of a factor by supports="
        )
    values, vectors = np.linalg.eigh(np.corrcoef(flat.T).reshape(dim, dim))
    if not values[0] > np.finfo(np.float64).eps * dim:
        large = np.flatnonzero(np.abs(vectors[:, 0]) > 0.1 * np.abs(vectors[:, 0]).max())
        which = few([names[int(k)] for k in large])
        raise KLFusionError(
            f"{where}: expected coordinates that are no functions of each other, got {which}; "
            "name the free variables in variables="
        )
