"""Predictions of a fitted hidden Markov model with Gaussian states."""

from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import gammaln

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion.errors import KLFusionError
from klfusion.families import NormalWishart
from klfusion.learners._input import sequences
from klfusion.learners._messages import Blocks, Smoothed, Workspace, viterbi

Decoded = tuple[float, IntArray]


class Decoder:
    """Predictions from the posteriors of states and transitions.

    Frames follow the posterior predictive distribution of their state, a Student's t. Steps have
    their expected probabilities. Log-densities of frames are multiplied by ``frame_weight_``, as
    in the fit, except in `score`.
    """

    family_: NormalWishart
    natural_: FloatArray
    start_counts_: FloatArray
    start_prior_: FloatArray
    transition_counts_: FloatArray
    transition_prior_: FloatArray
    frame_weight_: float
    n_features_in_: int

    @property
    def n_states_(self) -> int:
        """Number of states."""
        return len(self.natural_)

    @property
    def startprob_(self) -> FloatArray:
        """Expected probability that a sequence begins in each state, (K,)."""
        total = self.start_counts_ + self.start_prior_
        return np.asarray(total / total.sum())

    @property
    def transmat_(self) -> FloatArray:
        """Expected probability of a step from row to column, (K, K)."""
        total = self.transition_counts_ + self.transition_prior_
        return np.asarray(total / total.sum(axis=1, keepdims=True))

    @property
    def means_(self) -> FloatArray:
        """Expected means, (K, d)."""
        return self.family_.params(self.natural_)["mean"]

    @property
    def covars_(self) -> FloatArray:
        """Inverses of the expected precisions, (K, d, d)."""
        p = self.family_.params(self.natural_)
        return np.asarray(p["scale_inv"] / p["dof"][:, None, None])

    def decode(self, X: Any, lengths: Any = None, algorithm: str = "viterbi") -> Decoded:
        """Log-probability, and the state of each frame (T,).

        ``"viterbi"`` gives the most probable path; ``"map"`` the most probable state of each frame,
        with the sum of their log-probabilities.
        """
        if algorithm == "map":
            posterior = self.predict_proba(X, lengths)
            return float(np.log(posterior.max(axis=1)).sum()), posterior.argmax(axis=1)
        if algorithm != "viterbi":
            raise KLFusionError(f"algorithm: expected 'viterbi' or 'map', got {algorithm!r}")
        x, sizes = self._checked(X, lengths)
        blocks = Blocks.of(sizes, longest=int(sizes.max()))
        log_density = self.frame_weight_ * self._log_density(x[blocks.order])
        value, path = viterbi(blocks, log_density, *self._log_steps())
        return value, path[blocks.back]

    def predict(self, X: Any, lengths: Any = None) -> IntArray:
        """The states of the most probable path, (T,)."""
        return self.decode(X, lengths)[1]

    def predict_proba(self, X: Any, lengths: Any = None) -> FloatArray:
        """Probability of each state at each frame, (T, K)."""
        smoothed, blocks = self._smoothed(X, lengths, weighted=True)
        return smoothed.posterior[blocks.back]

    def score(self, X: Any, lengths: Any = None) -> float:
        """Log-density of the sequences."""
        return self._smoothed(X, lengths, weighted=False)[0].log_evidence

    def _smoothed(self, X: Any, lengths: Any, *, weighted: bool) -> tuple[Smoothed, Blocks]:
        x, sizes = self._checked(X, lengths)
        blocks = Blocks.of(sizes)
        log_density = self._log_density(x[blocks.order])
        if weighted:
            log_density *= self.frame_weight_
        return Workspace(blocks, self.n_states_).smooth(log_density, *self._log_steps()), blocks

    def _checked(self, X: Any, lengths: Any) -> tuple[FloatArray, IntArray]:
        if not hasattr(self, "natural_"):
            raise KLFusionError("expected a fitted StickyHDPHMM; call fit first")
        return sequences(X, lengths, self.n_features_in_)

    def _log_steps(self) -> tuple[FloatArray, FloatArray]:
        with np.errstate(divide="ignore"):  # probabilities may be zero
            return np.log(self.startprob_), np.log(self.transmat_)

    def _log_density(self, x: FloatArray) -> FloatArray:
        """Posterior predictive log-density of each frame in each state, (T, K)."""
        p, d = self.family_.params(self.natural_), self.family_.dim
        dof = p["dof"] - d + 1.0
        shape = p["scale_inv"] * ((p["kappa"] + 1.0) / (p["kappa"] * dof))[:, None, None]
        out = np.empty((len(x), len(dof)))
        for k, factor in enumerate(np.linalg.cholesky(shape)):
            z = solve_triangular(factor, (x - p["mean"][k]).T, lower=True)
            out[:, k] = -0.5 * (dof[k] + d) * np.log1p(np.square(z).sum(axis=0) / dof[k])
            out[:, k] -= np.log(np.diag(factor)).sum() + 0.5 * d * np.log(dof[k] * np.pi)
        return out + gammaln(0.5 * (dof + d)) - gammaln(0.5 * dof)
