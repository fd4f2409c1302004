"""How large a share of a component a cluster may be: evidence that a fit describes two clusters.

Natural parameters of observations add up. So a share ``w`` of a component may be a cluster if the
rest, ``(eta - w eta_g) / (1 - w)``, is a distribution of the family. A component that describes two
clusters has a large share of either, also if these vary between silos. Different components hardly
ever have, and how often they do shows in those of one silo.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray, IntArray
from klfusion.families import CERTAIN, Family, Tempered
from klfusion.families.gaussian import GaussianPosterior

_MOST_PAIRS = 1 << 16  # of different components, that stand for more
SHARES = np.linspace(0.1, 0.9, 17)  # of the first of two clusters in an average


@dataclass(frozen=True, eq=False)
class Shares:
    """Components (n, p), and centres of clusters (G, p)."""

    family: Family
    natural: FloatArray
    centres: FloatArray
    held: BoolArray  # clusters of a component's silo other than its own, (n, G)

    def possible(self, rows: IntArray, clusters: IntArray, share: float) -> BoolArray:
        """Whether each of some clusters may be such a share of some components, (rows, k)."""
        own, centres = self._observed
        out = self._near(rows, clusters, share)
        row, cluster = np.nonzero(out)
        rest = own[rows[row]] - share * centres[clusters[cluster]]
        out[row, cluster] = self.family.inside(rest / (1.0 - share))
        return out

    def overlap(self, rows: IntArray, clusters: IntArray, share: float) -> BoolArray:
        """Whether either of a component and a cluster may be such a share of the other, (rows, k).

        Else all observations of the component lie where the cluster has none.
        """
        own, centres = self._observed
        rest = centres[clusters] - share * own[rows][:, None]
        parts = self.family.inside((rest / (1.0 - share)).reshape(-1, rest.shape[-1]))
        return self.possible(rows, clusters, share) | parts.reshape(rest.shape[:2])

    def _near(self, rows: IntArray, clusters: IntArray, share: float) -> BoolArray:
        """Whether means are so near that a covariance may be left, (rows, k).

        That of the rest is less than ``C / (1 - w) - w d d' / (1 - w)^2``, with ``d`` the
        difference of the means. So ``d' inv(C) d`` is less than ``(1 - w) / w``.
        """
        if self._whitening is None:
            return np.full((len(rows), len(clusters)), True)
        roots, locations, of_centres = self._whitening
        apart = of_centres[clusters] @ roots[rows] - (locations[rows, None] @ roots[rows])
        return np.asarray(np.einsum("nkd,nkd->nk", apart, apart) < (1.0 - share) / share)

    def log_odds(self, row: int, pairs: IntArray) -> FloatArray:
        """Log-likelihood ratio of describing both of two clusters against being another, (k,).

        The statistic is the largest share that either may be, the smaller of both. If the component
        describes both, it is anything up to one half. Its chance otherwise follows from components
        of one silo by Laplace's rule of succession.
        """
        every, where = np.unique(pairs, return_inverse=True)
        largest = self._largest(np.full(len(every), row), every)
        smaller = largest[where.reshape(pairs.shape)].min(axis=1)
        out = np.full(len(pairs), -np.inf)
        for share in np.unique(smaller[smaller > 0.0]):
            known = self._of_different
            chance = (1.0 + (known >= share).sum()) / (2.0 + len(known))
            out[smaller == share] = np.log1p(-2.0 * share) - np.log(chance)
        return out

    @cached_property
    def _of_different(self) -> FloatArray:
        """Largest share of each component that each cluster its silo holds may be."""
        rows, clusters = np.nonzero(self.held)
        some = slice(None, None, -(-len(rows) // _MOST_PAIRS) or 1)
        return self._largest(rows[some], clusters[some])

    def _largest(self, rows: IntArray, clusters: IntArray) -> FloatArray:
        """Largest share below one half of each row that the cluster may be, (m,); 0 if none."""
        out, left = np.zeros(len(rows)), np.arange(len(rows))
        own, centres = self._alike
        for share in SHARES[SHARES < 0.5]:
            rest = (own[rows[left]] - share * centres[clusters[left]]) / (1.0 - share)
            left = left[self.family.inside(rest)]
            out[left] = share
        return out

    @cached_property
    def _observed(self) -> tuple[FloatArray, FloatArray]:
        """Components and centres as equally many observations, of Gaussians without their priors.

        Degrees of freedom of a prior would count as observations around the mean.
        """
        family = self.family
        if not isinstance(family, GaussianPosterior):
            return self._alike
        own, centres = (
            family.observed(*family.observation_moments(eta), np.full(len(eta), CERTAIN))
            for eta in (self.natural, self.centres)
        )
        return own, centres

    @cached_property
    def _whitening(self) -> tuple[FloatArray, FloatArray, FloatArray] | None:
        """``R`` with ``R R' = inv(C)`` of components with covariance matrices ``C``; locations."""
        if not isinstance(self.family, GaussianPosterior):
            return None
        locations, covariance = self.family.observation_moments(self.natural)
        if covariance.ndim == 2:
            return None
        roots = np.linalg.inv(np.linalg.cholesky(covariance)).swapaxes(1, 2)
        return roots, locations, self.family.location(self.centres)

    @cached_property
    def _alike(self) -> tuple[FloatArray, FloatArray]:
        """Components and centres at one effective sample size."""
        family = self.family
        if not isinstance(family, Tempered):
            return self.natural, self.centres
        own, centres = (
            family.tempered(eta, 1.0 / family.effective_size(eta))
            for eta in (self.natural, self.centres)
        )
        return own, centres
