"""`StickyHDPHMM`: a hidden Markov model that finds its number of states."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.progress import progress_bar
from klfusion.errors import KLFusionError
from klfusion.families import NormalWishart
from klfusion.learners import _decoding, _starts
from klfusion.learners._inference import Fit, Frames, Model, iterate
from klfusion.learners._input import count, number, sequences
from klfusion.learners._moves import simplify
from klfusion.learners._transitions import TransitionPrior


class StickyHDPHMM(_decoding.Decoder, BaseEstimator):  # type: ignore[misc]
    """Sticky hierarchical Dirichlet process hidden Markov model with Gaussian states.

    Variational inference with Normal-Wishart posteriors of the states' means and precisions. The
    lower bound never falls; it decides between restarts, and which states are merged or dropped.

    Parameters
    ----------
    n_components : int
        Most states there can be; fewer are kept where that raises the bound.
    kappa, gamma, eta : float
        Stickiness, concentration of the weights that states share, and of each state's steps
        around them: ``pi_k ~ DP(eta beta + kappa delta_k)``, ``beta ~ GEM(gamma)``.
    n0 : float, optional
        Degrees of freedom of the prior of a state's precision, above d + 1; default d + 2.
    S : array of shape (d, d), optional
        The covariance a state is expected to have, ``E[inv(precision)] = S``; default the
        variances of the features, on the diagonal.
    mu0 : array of shape (d,), optional
        Prior mean of the states' means; default that of the data.
    mean_strength : float
        How many frames ``mu0`` is worth (``lambda`` in the paper).
    frame_weight : float or "auto"
        What a frame counts for in telling states from each other. Frames that follow each other
        closely repeat themselves, and taken for independent they call for ever more states.
        "auto" estimates it from their correlation within the states of a first fit: 1 for
        independent frames. That fit has all ``n_components`` states, so it errs towards 1.
    n_init : int
        Restarts; one in four begins with stretches of time, the others with k-means.
    max_iter : int
        Iterations between two changes of the number of states.
    tol : float
        Stop when an iteration gains less than this, in nats a frame.
    random_state : int, Generator or None
    progress : bool, optional
        Show a bar; by default on a terminal only.

    Attributes
    ----------
    n_states_ : int
    startprob_, transmat_ : arrays of shape (K,) and (K, K)
        Expected probabilities.
    means_, covars_ : arrays of shape (K, d) and (K, d, d)
    weights_ : array of shape (K + 1,)
        Expected weights the states share; the last is for states not seen.
    frame_weight_ : float
    lower_bound_ : float
    lower_bounds_ : list of float
        After each iteration of the best start.
    converged_ : bool

    Examples
    --------
    >>> import numpy as np
    >>> from klfusion.learners import StickyHDPHMM
    >>> rng = np.random.default_rng(0)
    >>> place = np.repeat([0.0, 9.0, 0.0, 9.0], 50)
    >>> x = place[:, None] + rng.normal(size=(200, 2))
    >>> model = StickyHDPHMM(n_components=5, n_init=2, random_state=0).fit(x, lengths=[100, 100])
    >>> model.n_states_
    2
    >>> int((np.diff(model.predict(x, [100, 100])) != 0).sum())
    3
    """

    def __init__(
        self,
        n_components: int = 25,
        *,
        kappa: float = 10.0,
        gamma: float = 5.0,
        eta: float = 0.5,
        n0: float | None = None,
        S: Any = None,
        mu0: Any = None,
        mean_strength: float = 0.1,
        frame_weight: float | str = "auto",
        n_init: int = 5,
        max_iter: int = 200,
        tol: float = 1e-5,
        random_state: Any = None,
        progress: bool | None = None,
    ) -> None:
        self.n_components = n_components
        self.kappa = kappa
        self.gamma = gamma
        self.eta = eta
        self.n0 = n0
        self.S = S
        self.mu0 = mu0
        self.mean_strength = mean_strength
        self.frame_weight = frame_weight
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, lengths: Any = None) -> Self:
        """Fit to one or several sequences.

        Parameters
        ----------
        X : array of shape (n_frames, n_features)
            Sequence after sequence.
        lengths : sequence of int, optional
            How long each is; default one sequence.
        """
        x, sizes = sequences(X, lengths)
        n_init, n_states = count(self.n_init, "n_init"), count(self.n_components, "n_components")
        max_iter = count(self.max_iter, "max_iter")
        tol = number(self.tol, "tol", above=0.0, allow_equal=True) * len(x)
        rng = np.random.default_rng(self.random_state)
        # Units in which all features are alike, so that no digits are lost.
        centre, scale = x.mean(axis=0), x.std(axis=0)
        scale[scale <= 1e-9 * np.abs(centre) + np.finfo(np.float64).tiny] = 1.0
        x = (x - centre) / scale
        model = self._model(centre, scale)
        frames = Frames.of(x, sizes)
        n_states = min(n_states, len(x))
        frames, weight = self._weighted(model, frames, x, sizes, n_states, rng, max_iter, tol)
        best: Fit | None = None
        with progress_bar(self.progress) as report:
            for start in range(n_init):
                report("fitting", start, n_init)
                if start % 4 == 3:
                    labels = _starts.by_time(len(x), n_states, rng)
                else:
                    labels = _starts.by_place(x, n_states, rng)
                first = _starts.statistics_of(frames, labels, sizes)
                fit = iterate(model, frames, first, max_iter=max_iter, tol=tol)
                fit = simplify(model, frames, fit, max_iter=max_iter, tol=tol)
                if best is None or fit.bound > best.bound:
                    best = fit
        assert best is not None
        self._keep(X, model, best, weight, centre, scale)
        return self

    def _model(self, centre: FloatArray, scale: FloatArray) -> Model:
        """The priors, in units of ``scale`` around ``centre``."""
        d = len(centre)
        family = NormalWishart(d)
        n0 = d + 2.0 if self.n0 is None else number(self.n0, "n0", above=d + 1.0)
        expected = np.eye(d) if self.S is None else self._matrix(d) / np.outer(scale, scale)
        mean = np.zeros(d)
        if self.mu0 is not None:
            mean = np.asarray(self.mu0, dtype=np.float64)
            if mean.shape != (d,) or not np.isfinite(mean).all():
                raise KLFusionError(f"mu0: expected {d} finite numbers, got {self.mu0!r}")
            mean = (mean - centre) / scale
        strength = number(self.mean_strength, "mean_strength", above=0.0)
        prior = family.natural(mean[None], [strength], (n0 - d - 1.0) * expected[None], [n0])
        return Model(
            family,
            prior[0],
            TransitionPrior(
                number(self.kappa, "kappa", above=0.0, allow_equal=True),
                number(self.gamma, "gamma", above=0.0),
                number(self.eta, "eta", above=0.0),
            ),
        )

    def _matrix(self, d: int) -> FloatArray:
        matrix = np.asarray(self.S, dtype=np.float64)
        symmetric = matrix.shape == (d, d) and np.allclose(matrix, matrix.T)
        if not symmetric or not np.linalg.eigvalsh(matrix)[0] > 0:
            raise KLFusionError(f"S: expected a symmetric positive definite ({d}, {d}) matrix")
        return matrix

    def _weighted(
        self,
        model: Model,
        frames: Frames,
        x: FloatArray,
        sizes: IntArray,
        n_states: int,
        rng: np.random.Generator,
        max_iter: int,
        tol: float,
    ) -> tuple[Frames, float]:
        """Frames that count for what they are worth, and what that is."""
        if self.frame_weight == "auto":
            labels = _starts.by_place(x, n_states, rng)
            first = _starts.statistics_of(frames, labels, sizes)
            fit = iterate(model, frames, first, max_iter=max_iter, tol=tol)
            weight = _starts.effective_share(model, frames, x, fit.estimate)
        else:
            weight = number(self.frame_weight, "frame_weight", above=0.0)
        return replace(frames, features=weight * frames.features), weight

    def _keep(
        self, X: Any, model: Model, fit: Fit, weight: float, centre: FloatArray, scale: FloatArray
    ) -> None:
        """Results, in the units of the data."""
        estimate, n = fit.estimate, len(fit.estimate.natural)
        family = model.family
        self.family_ = family
        self.natural_, (self.prior_,) = (
            _in_units(family, eta, centre, scale) for eta in (estimate.natural, model.prior[None])
        )
        rows = model.transitions.rows(estimate.transitions.sticks)
        self.start_prior_, self.transition_prior_ = rows[n, :n], rows[:n, :n]
        concentration = estimate.transitions.concentration
        self.start_counts_ = concentration[n, :n] - self.start_prior_
        self.transition_counts_ = concentration[:n, :n] - self.transition_prior_
        self.weights_ = estimate.transitions.sticks.weights
        self.frame_weight_ = weight
        n_frames = float(fit.statistics.frames.sum())
        # Densities in the data's units.
        units = weight * n_frames * float(np.log(scale).sum())
        self.lower_bounds_ = [bound - units for bound in fit.trace]
        self.lower_bound_ = self.lower_bounds_[-1]
        self.converged_ = fit.converged
        self.n_features_in_ = family.dim
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.asarray(X.columns, dtype=object)


def _in_units(
    family: NormalWishart, natural: FloatArray, centre: FloatArray, scale: FloatArray
) -> FloatArray:
    p = family.params(natural)
    return family.natural(
        centre + scale * p["mean"], p["kappa"], np.outer(scale, scale) * p["scale_inv"], p["dof"]
    )
