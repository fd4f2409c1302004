"""Prior of failed fits: how probable it is that local fits failed, given those known to have.

Failed fits come together. A fit that describes two components by one has another to spare, which
describes a third one twice, or next to nothing. So of the fits beside a failed one of their silo
any share may have failed, and of the others a share with a given mean. Likewise any share of either
may be unexplained.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import betaln

from klfusion._utils.arrays import BoolArray, IntArray
from klfusion.model_size.partitions import PartitionPrior


@dataclass(frozen=True, eq=False)
class FailedFits:
    """Numbers of fits of each silo, (J,)."""

    share: float  # expected to fail by themselves
    fits: IntArray
    failed: IntArray
    unexplained: IntArray  # of the failed ones

    @classmethod
    def none(cls, share: float, silo: IntArray) -> FailedFits:
        """No failed fits among those of the silos (n,)."""
        fits = np.bincount(silo)
        return cls(share, fits, np.zeros_like(fits), np.zeros_like(fits))

    def more(self, failed: IntArray, unexplained: IntArray) -> FailedFits:
        """With more fits known to have failed, given by their silos."""
        every = [np.bincount(silos, minlength=len(self.fits)) for silos in (failed, unexplained)]
        return replace(self, failed=self.failed + every[0], unexplained=self.unexplained + every[1])

    def log_odds(self, silo: IntArray) -> float:
        """Log-odds that fits of these silos, (m,), failed, too."""
        beside = self.failed[silo] > 0
        single, several = self.failed == 1, self.failed > 1
        # Fits beside a failed one, themselves failed or not.
        fits = int(self.fits[several].sum() + (self.fits[single] - 1).sum())
        failed = int(self.failed[several].sum())
        others = int(self.fits.sum()) - fits, int(single.sum())
        alone = _log_more(1.0 / self.share - 1.0, *others, int((~beside).sum()))
        return alone + _log_more(1.0, fits, failed, int(beside.sum()))

    def unexplained_among(
        self, silo: IntArray, sizes: IntArray, prior: PartitionPrior
    ) -> BoolArray:
        """Which components that are clusters by themselves are rather failed fits, (m,).

        They are of the silos ``silo``; other clusters have ``sizes``. Those beside other failed
        fits are all taken for failed ones, or none of them, and so are the rest.
        """
        out, left = np.zeros(len(silo), dtype=bool), len(silo)
        several = self.failed > 1
        for some, counted in ((self.failed[silo] > 0, several), (self.failed[silo] == 0, ~several)):
            n = int(some.sum())
            if n == 0 or not (sizes > 1).any():
                continue
            without, with_ = (
                prior.of_sizes(np.append(sizes, np.ones(count, dtype=np.intp)))
                for count in (left - n, left)
            )
            unexplained = int(self.unexplained[counted].sum())
            kind = _log_more_of(int(self.failed[counted].sum()), unexplained, n)
            if without - with_ + self.log_odds(silo[some]) + kind > 0:
                out |= some
                left -= n
        return out


def _log_more(others: float, n: int, failed: int, more: int) -> float:
    """Log-odds that of ``n`` fits ``more`` than those ``failed`` did.

    Their share has a Beta prior of one failure and so many ``others``.
    """
    sound = others + n - failed
    return float(betaln(1.0 + failed + more, sound - more) - betaln(1.0 + failed, sound))


def _log_more_of(n: int, unexplained: int, more: int) -> float:
    """Log-probability that ``more`` failed fits are unexplained; so many of ``n`` have been."""
    explained = 1.0 + n - unexplained
    return float(betaln(1.0 + unexplained + more, explained) - betaln(1.0 + unexplained, explained))
