"""How far draws are from the Normal that stands for them, in nats.

Draws are counted in bins that have equal probability under the Normal. The divergence of the counts
from equal ones is a lower bound of that of the distributions: no function of draws adds
information. Its bias is ``(bins - 1) / (2 n)`` (Miller and Madow).
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import chdtr, chdtri, ndtr

from klfusion._utils.arrays import FloatArray

_BINS = 16  # so that 400 effective draws, the least to be trusted, are 25 per bin
# A finding: as far as a Normal from one shifted by a quarter of its standard deviation.
FAR = 0.5 * 0.25**2
BY_CHANCE = 0.01  # probability that draws of a Normal are reported


def distances(draws: FloatArray, effective: float) -> tuple[FloatArray, float]:
    """Divergence of draws (n, d) from their Normal, per coordinate (d,) and joint, in nats.

    ``effective`` is the effective sample size. Of the joint distribution, the distances from the
    centre are compared, which are chi-squared under a Normal.
    """
    centred = draws - draws.mean(axis=0)
    scores = ndtr(centred / draws.std(axis=0, ddof=1))
    factor = np.linalg.cholesky(np.cov(draws.T).reshape(draws.shape[1], -1))
    radius = np.square(np.linalg.solve(factor, centred.T)).sum(axis=0)
    joint = chdtr(draws.shape[1], radius)
    own = np.array([_divergence(column, effective) for column in scores.T])
    return own, max(_divergence(joint, effective), float(own.max()))


def _divergence(uniform: FloatArray, effective: float) -> float:
    """Of numbers that would be uniform in (0, 1); zero if chance explains it."""
    where = np.minimum((uniform * _BINS).astype(np.intp), _BINS - 1)
    share = np.bincount(where, minlength=_BINS) / len(uniform)
    present = share[share > 0]
    found = float(present @ np.log(present * _BINS))
    if 2.0 * effective * found < chdtri(_BINS - 1, BY_CHANCE):
        return 0.0
    return max(found - (_BINS - 1) / (2.0 * effective), 0.0)


def doubts(draws: FloatArray, names: Sequence[str], effective: float) -> list[str]:
    """A line if the Normal is far from the draws (n, d)."""
    own, joint = distances(draws, effective)
    worst = int(np.argmax(own))
    if own[worst] > FAR:
        return [f"draws of {names[worst]!r} are {own[worst]:.2g} nats or more from a Normal"]
    return [f"draws are {joint:.2g} nats or more from a joint Normal"] if joint > FAR else []
