"""`StickyHDPHMM`: a hidden Markov model that estimates its number of states."""

from dataclasses import KW_ONLY, dataclass, replace
from operator import attrgetter
from typing import Any, Self

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import gammaln
from sklearn.base import BaseEstimator

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.checks import check_integer, generator, number
from klfusion._utils.running import progress_bar
from klfusion.errors import KLFusionError
from klfusion.families import NormalWishart
from klfusion.learners._inference import (
    Fit,
    Frames,
    Model,
    Problem,
    by_place,
    by_time,
    effective_share,
    iterate,
    simplify,
    statistics_of,
)
from klfusion.learners._messages import Blocks, Smoothed, Workspace, viterbi
from klfusion.learners._transitions import TransitionPrior

_CONSTANT = 1e-9  # standard deviation relative to the mean: below it, a feature is constant
_BY_TIME = 4  # one restart in this many begins with contiguous segments
Decoded = tuple[float, IntArray]


@dataclass(eq=False, repr=False)
class StickyHDPHMM(BaseEstimator):  # type: ignore[misc]
    """Sticky hierarchical Dirichlet process hidden Markov model with Gaussian states.

    Variational inference with Normal-Wishart posteriors of the states' means and precisions. No
    iteration lowers the bound. The bound selects the best restart and accepts merges of states. In
    predictions, frames follow the posterior predictive distribution of their state, a Student's t.
    Its logarithm is multiplied by ``frame_weight_``, as in the fit, except in `score`.

    Parameters
    ----------
    n_components : int
        Largest number of states; fewer are kept if that raises the bound.
    kappa, gamma, eta : float
        Stickiness, concentration of the common weights, and concentration of each state's
        transitions around them: ``pi_k ~ DP(eta beta + kappa delta_k)``, ``beta ~ GEM(gamma)``.
    n0 : float, optional
        Degrees of freedom of the Wishart prior of precisions, above d + 1; default d + 2.
    S : array of shape (d, d), optional
        Expected covariance of a state, ``E[inv(precision)] = S``; default: diagonal, with the
        variances of the features.
    mu0 : array of shape (d,), optional
        Prior mean of the states' means; default: the mean of the data.
    mean_strength : float
        Weight of ``mu0``, in frames (``lambda`` in the paper).
    frame_weight : float or "auto"
        Effective sample size per frame, 1 for independent frames. Correlated frames that count
        as independent lead to too many states. "auto" estimates the weight from the correlation
        of consecutive frames within the states of a first fit. That fit has all
        ``n_components`` states, so the estimate is biased towards 1.
    n_init : int
        Restarts; one in four begins with contiguous segments, the others with k-means.
    max_iter : int
        Most iterations between two changes of the number of states.
    tol : float
        Stop when an iteration gains less than this, in nats per frame.
    random_state : int, Generator or None
    progress : bool, optional
        Show a progress bar; default: only on a terminal.

    Attributes
    ----------
    n_states_, frame_weight_, lower_bound_, converged_ : numbers
    startprob_, transmat_, means_, covars_ : arrays of shape (K,), (K, K), (K, d) and (K, d, d)
    weights_ : array of shape (K + 1,)
        Expected common weights; the last is for states not in use.
    lower_bounds_ : list of float
        After each iteration of the best restart.

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

    n_components: int = 25
    _: KW_ONLY
    kappa: float = 10.0
    gamma: float = 5.0
    eta: float = 0.5
    n0: float | None = None
    S: Any = None
    mu0: Any = None
    mean_strength: float = 0.1
    frame_weight: float | str = "auto"
    n_init: int = 5
    max_iter: int = 200
    tol: float = 1e-5
    random_state: Any = None
    progress: bool | None = None

    def fit(self, X: Any, lengths: Any = None) -> Self:
        """Fit to the frames (T, d) of sequences of these ``lengths``; default: one sequence."""
        x, sizes = _sequences(X, lengths)
        for name in ("n_init", "n_components", "max_iter"):
            check_integer(name, getattr(self, name))
        tol = number(self.tol, "tol", above=0.0, allow_equal=True) * len(x)
        rng = generator(self.random_state)
        # Standardised features lose fewer digits to rounding.
        centre, scale = x.mean(axis=0), x.std(axis=0)
        scale[scale <= _CONSTANT * np.abs(centre) + np.finfo(np.float64).tiny] = 1.0
        x = (x - centre) / scale
        model = self._model(centre, scale)
        frames = Frames.of(x, sizes)
        n_states = min(self.n_components, len(x))

        def fit_from(labels: IntArray) -> Fit:
            first = statistics_of(frames, labels, sizes)
            return iterate(Problem(model, frames, tol), first, self.max_iter)

        if self.frame_weight == "auto":
            estimate = fit_from(by_place(x, n_states, rng)).estimate
            weight = effective_share(model, frames, x, estimate)
        else:
            weight = number(self.frame_weight, "frame_weight", above=0.0)
        frames = replace(frames, features=weight * frames.features)
        fits = []
        with progress_bar(self.progress) as report:
            for start in range(self.n_init):
                report("fitting", start, self.n_init)
                if start % _BY_TIME == _BY_TIME - 1:
                    labels = by_time(len(x), n_states, rng)
                else:
                    labels = by_place(x, n_states, rng)
                problem = Problem(model, frames, tol)
                fits.append(simplify(problem, fit_from(labels), self.max_iter))
        self._keep(X, model, max(fits, key=attrgetter("bound")), weight, centre, scale)
        return self

    def _model(self, centre: FloatArray, scale: FloatArray) -> Model:
        """The priors of standardised features."""
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
        kappa = number(self.kappa, "kappa", above=0.0, allow_equal=True)
        gamma, eta = number(self.gamma, "gamma", above=0.0), number(self.eta, "eta", above=0.0)
        return Model(family, prior[0], TransitionPrior(kappa, gamma, eta))

    def _matrix(self, d: int) -> FloatArray:
        matrix = np.asarray(self.S, dtype=np.float64)
        symmetric = matrix.shape == (d, d) and np.allclose(matrix, matrix.T)
        if not symmetric or not np.linalg.eigvalsh(matrix)[0] > 0:
            raise KLFusionError(f"S: expected a symmetric positive definite ({d}, {d}) matrix")
        return matrix

    def _keep(
        self, X: Any, model: Model, fit: Fit, weight: float, centre: FloatArray, scale: FloatArray
    ) -> None:
        """Set the fitted attributes, in the units of the data."""
        estimate, n, self.family_ = fit.estimate, len(fit.estimate.natural), model.family
        p = self.family_.params(np.vstack([estimate.natural, model.prior]))
        p["mean"] = centre + scale * p["mean"]
        p["scale_inv"] = np.outer(scale, scale) * p["scale_inv"]
        natural = self.family_.natural(p["mean"], p["kappa"], p["scale_inv"], p["dof"])
        self.natural_, self.prior_ = natural[:n], natural[n]
        rows = model.transitions.rows(estimate.transitions.sticks)
        self.start_prior_, self.transition_prior_ = rows[n, :n], rows[:n, :n]
        concentration = estimate.transitions.concentration
        self.start_counts_ = concentration[n, :n] - self.start_prior_
        self.transition_counts_ = concentration[:n, :n] - self.transition_prior_
        self.weights_ = estimate.transitions.sticks.weights
        self.frame_weight_ = weight
        # The Jacobian of the standardisation turns the bound into one of densities of the data.
        log_jacobian = weight * float(fit.statistics.frames.sum()) * float(np.log(scale).sum())
        self.lower_bounds_ = [bound - log_jacobian for bound in fit.trace]
        self.lower_bound_ = self.lower_bounds_[-1]
        self.converged_ = fit.converged
        self.n_features_in_ = len(centre)
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.asarray(X.columns, dtype=object)

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
        return _sequences(X, lengths, self.n_features_in_)

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


def _sequences(X: Any, lengths: Any, n_features: int | None = None) -> tuple[FloatArray, IntArray]:
    """Frames (T, d) and the length of each sequence; by default one sequence."""
    try:
        x = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise KLFusionError(f"X: expected an array of numbers ({error})") from error
    if x.ndim != 2 or x.size == 0:
        raise KLFusionError(f"X: expected frames of shape (n_frames, n_features), got {x.shape}")
    if n_features is not None and x.shape[1] != n_features:
        raise KLFusionError(f"X: expected {n_features} features, as in fit, got {x.shape[1]}")
    if not np.isfinite(x).all():
        row, column = np.argwhere(~np.isfinite(x))[0]
        got = f"{x[row, column]} in frame {row}, feature {column}"
        raise KLFusionError(f"X: expected finite numbers, got {got}")
    sizes = np.array([len(x)]) if lengths is None else np.asarray(lengths)
    whole = sizes.ndim == 1 and sizes.dtype.kind in "iu"
    if not whole or sizes.min(initial=1) < 1 or sizes.sum() != len(x):
        expected = f"expected whole numbers >= 1 that add up to {len(x)} frames"
        raise KLFusionError(f"lengths: {expected}, got {lengths!r}")
    return x, sizes.astype(np.intp)
