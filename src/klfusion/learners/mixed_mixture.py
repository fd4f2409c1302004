"""`MixedMixture`: a Bayesian mixture over columns of different kinds, with missing cells."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from operator import attrgetter
from typing import Any, Self

import numpy as np
from scipy.special import logsumexp
from sklearn.base import BaseEstimator

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.checks import check_integer, generator, number
from klfusion._utils.text import brief
from klfusion.errors import KLFusionError
from klfusion.learners._blocks import parts_of, product_of, two_part_means
from klfusion.learners._cells import check_rows, like
from klfusion.learners._columns import Part, PriorStrength
from klfusion.learners._mixture import (
    Design,
    DirichletWeights,
    Fit,
    Problem,
    ProcessWeights,
    Weights,
    iterate,
    iterate_from,
    merges,
    start,
)
from klfusion.learners.schema import Schema
from klfusion.posteriors.posterior import Posterior

DIRICHLET, PROCESS = "dirichlet_distribution", "dirichlet_process"
_STRENGTHS = ("mean_strength", "variance_strength", "rate_strength", "category_strength")


class _Model:
    """All parts side by side."""

    def __init__(self, parts: list[Part], strength: PriorStrength) -> None:
        self.parts = parts
        priors = [part.prior(strength) for part in parts]
        self.prior = np.concatenate(priors)
        self._edges = np.cumsum([len(own) for own in priors])[:-1]

    def split(self, natural: FloatArray) -> list[FloatArray]:
        """By part."""
        return np.split(natural, self._edges, axis=-1)

    def mean(self, natural: FloatArray) -> FloatArray:
        """Mean parameters."""
        both = zip(self.parts, self.split(natural), strict=True)
        return np.concatenate([part.mean(own) for part, own in both], axis=1)

    def log_partition(self, natural: FloatArray) -> FloatArray:
        """The sum over parts."""
        both = zip(self.parts, self.split(natural), strict=True)
        return np.asarray(sum(part.log_partition(own) for part, own in both))


@dataclass(eq=False, repr=False)
class MixedMixture(BaseEstimator):  # type: ignore[misc]
    """Mixture over continuous, semicontinuous, categorical and count columns; cells may lack.

    Variational Bayes with conjugate priors: Normal-Gamma of means and precisions, Dirichlet of
    categories, Gamma of rates. A semicontinuous column has two parts: whether a row has the shared
    value, and a continuous column of the rows that do not. Missing cells are integrated out, also
    columns that a site never measured. Columns are independent within a component, unless the
    schema has blocks. Priors follow from the schema alone, so that sites with one schema have one
    prior. No iteration lowers the bound. It selects among several starts, and among the sizes that
    merges of components lead to.

    Parameters
    ----------
    schema : Schema, optional
        Names, kinds, categories and reference ranges; default: `Schema.suggest` of the data. Sites
        that are to be fused need the same.
    n_components : int
        Largest number of components; merges to fewer are kept if that raises the bound.
    weight_concentration_prior_type : {"dirichlet_distribution", "dirichlet_process"}
        Prior of the components' shares.
    weight_concentration_prior : float, optional
        Concentration, of each component or of the process; default ``1 / n_components``.
    mean_strength, variance_strength : float
        Observations that the prior of a mean, and of a variance, is worth. A mean's prior has the
        centre of the reference range, and its standard deviation over ``sqrt(mean_strength)``.
    rate_strength, category_strength : float
        Events that the prior of a rate is worth; observations per category.
    n_init : int
        Starts, each with k-means.
    max_iter : int
        Most iterations between two merges.
    tol : float
        Stop when an iteration gains less than this, in nats per row.
    random_state : int, Generator or None

    Attributes
    ----------
    family_, natural_, prior_ : Product, arrays of shape (K, p) and (p,)
        Posteriors of the components, one factor per column, in the units of the data.
    counts_, weights_ : arrays of shape (K,)
        Expected rows of each component, and expected shares.
    measured_ : array of shape (K, columns)
        Expected rows of each component in which a column was measured. A semicontinuous column has
        two: rows, and rows of another value than the shared one.
    n_components_, n_features_in_ : int
    feature_names_in_ : array of str
    schema_ : Schema
    lower_bound_, converged_, lower_bounds_ : float, bool, list
    bounds_by_size_ : dict of int to float
        The highest bound of each number of components that was found, in nats. Data do not
        distinguish sizes within a few nats of each other.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> rng = np.random.default_rng(0)
    >>> kind = rng.integers(2, size=300)
    >>> frame = {"pressure": np.where(kind, 150.0, 110.0) + rng.normal(0, 8, 300),
    ...          "smoker": np.where(rng.random(300) < np.where(kind, 0.9, 0.1), "yes", "no")}
    >>> frame["pressure"][::10] = np.nan
    >>> model = kf.learners.MixedMixture(kf.Schema.suggest(frame), random_state=0).fit(frame)
    >>> model.n_components_
    2
    >>> model.impute({"smoker": ["yes", "no"]})["pressure"].round(-1)
    array([150., 110.])
    """

    schema: Schema | None = None
    n_components: int = 10
    _: KW_ONLY
    weight_concentration_prior_type: str = DIRICHLET
    weight_concentration_prior: float | None = None
    mean_strength: float = 0.1
    variance_strength: float = 2.0
    rate_strength: float = 1.0
    category_strength: float = 0.5
    n_init: int = 5
    max_iter: int = 300
    tol: float = 1e-5
    random_state: Any = None

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to a data frame, a mapping of columns, or an array in the order of the schema."""
        del y
        check_integer("n_init", self.n_init)
        if self.schema is not None and not isinstance(self.schema, Schema):
            raise KLFusionError(f"schema: expected a klfusion.Schema, got {brief(self.schema)}")
        self.set_schema(Schema.suggest(X) if self.schema is None else self.schema)
        problem, standard = self._problem(X)
        rng, features = generator(self.random_state), _features(self._parts, standard)
        fits: list[Fit] = []
        for _ in range(self.n_init):
            first = start(problem.design, features, self.n_components, rng)
            fits += merges(problem, iterate(problem, first, self.max_iter), self.max_iter)
        best, size = max(fits, key=attrgetter("bound")), {len(fit.counts) for fit in fits}
        self.bounds_by_size_ = {
            k: max(fit.bound for fit in fits if len(fit.counts) == k) for k in sorted(size)
        }
        self._keep(problem.model.prior + best.sums, best)
        return self

    def refit(self, X: Any, start: Posterior, prior: FloatArray) -> Self:
        """Fit from the components of a posterior, each with its own prior (K, p); all stay.

        It is what a site does in a later round of `klfusion.refine_rounds`. Shares of components
        are those of ``start``, the global model. The bound is not computed.
        """
        assert start.structure is not None and start.counts is not None
        self.set_schema(Schema.from_config(start.structure.info["schema"]))
        problem, _ = self._problem(X)
        own, given = self._standardised(start.natural), self._standardised(prior)
        share = start.counts * len(problem.design) / start.counts.sum()
        fit = iterate_from(problem, Fit(share, own - given), given, self.max_iter)
        self._keep(given + fit.sums, fit)
        return self

    def _problem(self, X: Any) -> tuple[Problem, list[FloatArray]]:
        """What is fitted to data; and the standardised columns of each part."""
        for name in ("n_components", "max_iter"):
            check_integer(name, getattr(self, name))
        values = self._encoded(X)
        check_rows(values)
        standard = [part.standardised(values[:, part.places]) for part in self._parts]
        statistics = zip(self._parts, standard, strict=True)
        design = Design.of([own for part, x in statistics for own in part.statistics(x)])
        base = sum(part.log_base(values[:, part.places]) for part in self._parts)
        tol = number(self.tol, "tol", above=0.0, allow_equal=True) * len(values)
        model = _Model(self._parts, self._strength())
        return Problem(model, design, self._weights(), base, tol), standard

    def _standardised(self, natural: FloatArray) -> FloatArray:
        """Natural parameters by part, of standardised columns."""
        own = [part.from_units(natural[:, part.index]) for part in self._parts]
        return np.concatenate(own, axis=1)

    def _strength(self) -> PriorStrength:
        return PriorStrength(*(number(getattr(self, k), k, above=0.0) for k in _STRENGTHS))

    def _weights(self) -> Weights:
        given, kind = self.weight_concentration_prior, self.weight_concentration_prior_type
        if kind not in (DIRICHLET, PROCESS):
            raise KLFusionError(
                f"weight_concentration_prior_type: expected {DIRICHLET!r} or {PROCESS!r}, "
                f"got {brief(kind)}"
            )
        own = 1.0 / self.n_components if given is None else given
        own = number(own, "weight_concentration_prior", above=0.0)
        self.weight_prior_ = own
        return ProcessWeights(own) if kind == PROCESS else DirichletWeights(own, self.n_components)

    def set_schema(self, schema: Schema) -> None:
        """Set the schema, and what follows from it."""
        self.schema_, self.family_ = schema, product_of(schema)
        self._parts = parts_of(schema, self.family_)
        self.n_features_in_ = len(schema)
        self.feature_names_in_ = np.array(schema.names, dtype=object)

    def _keep(self, natural: FloatArray, fit: Fit) -> None:
        """Set the fitted attributes, in the units of the data and in the order of the schema."""
        model = _Model(self._parts, self._strength())
        rows = np.vstack([natural, model.prior])
        out = np.empty((len(rows), self.family_.size))
        for part, own in zip(self._parts, model.split(rows), strict=True):
            out[:, part.index] = part.in_units(own)
        self.set_components(out[:-1], out[-1], fit.counts)
        self.measured_ = np.empty((len(fit.counts), len(self.schema_.expanded)))
        for part, own in zip(self._parts, model.split(fit.sums), strict=True):
            self.measured_[:, part.places] = part.measured(own)
        self.lower_bounds_, self.lower_bound_ = fit.trace, fit.bound
        self.converged_ = fit.converged

    def set_components(self, natural: FloatArray, prior: FloatArray, counts: FloatArray) -> None:
        """Set the posteriors (K, p) of the components, their prior (p,) and counts (K,)."""
        self.natural_, self.prior_, self.counts_ = natural, prior, counts
        if self.weight_concentration_prior_type == PROCESS:
            a, b = 1.0 + counts, self.weight_prior_ + np.cumsum(counts[::-1])[::-1] - counts
            share = a / (a + b) * np.concatenate([[1.0], np.cumprod(b / (a + b))[:-1]])
        else:
            share = self.weight_prior_ + counts
        self.weights_ = share / share.sum()

    @property
    def n_components_(self) -> int:
        """Number of components."""
        return len(self.natural_)

    def predict(self, X: Any) -> IntArray:
        """The most probable component of each row, (n,)."""
        return np.asarray(self.predict_proba(X).argmax(axis=1))

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of each component, (n, K); of a row without cells, the weights."""
        joint = self._log_joint(self._checked(X))
        return np.asarray(np.exp(joint - logsumexp(joint, axis=1, keepdims=True)))

    def score_samples(self, X: Any) -> FloatArray:
        """Posterior predictive log-density of each row's measured cells, (n,)."""
        values = self._checked(X)
        logarithms = values[:, [column.log for column in self.schema_.expanded]]
        volume = np.nansum(logarithms, axis=1)  # a density is per unit of the value itself
        return np.asarray(logsumexp(self._log_joint(values), axis=1) - volume)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean of `score_samples`."""
        del y
        return float(self.score_samples(X).mean())

    def impute(self, X: Any) -> Any:
        """The data with missing cells filled in, as a frame or mapping like the one given.

        Columns of a frame keep their types where the values fit.

        Continuous and semicontinuous cells get their expected value, columns of logarithms that of
        the expected logarithm. Counts are rounded, categories are the most probable ones, and
        ordered columns have the median. Columns that were never measured are added.
        """
        values = self._checked(X)
        joint = self._log_joint(values)
        share = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
        filled = np.empty_like(values)
        for part in self._parts:
            natural, own = self.natural_[:, part.index], values[:, part.places]
            filled[:, part.places] = part.imputed(natural, share, own)
        means = two_part_means(self.schema_, self.family_, self.natural_)
        single = dict(zip(self.schema_.expanded.names, filled.T, strict=True))
        given, found = self.schema_.encoded(X), {}
        for column, own in zip(self.schema_, given.T, strict=True):
            name = column.name
            fill = share @ means[name] if name in means else column.in_units(single[name])
            own[:] = np.where(np.isnan(own), fill, own)
            found[name] = column.decoded(own)
        return like(X, found, given)

    def unlikeness(self, X: Any) -> FloatArray:
        """How unlike every component a row is, (n,), in standard deviations.

        In a component, the log-density of a row's measured cells has a mean and a standard
        deviation. This is by how many of the latter a row is less probable than the mean, in the
        component that it fits best.
        """
        values = self._checked(X)
        there = (~np.isnan(values)).astype(np.float64)
        log_density, average, variance = (np.zeros((len(values), len(self.counts_))) for _ in "abc")
        for part in self._parts:
            natural, prior = self.natural_[:, part.index], self.prior_[part.index]
            log_density += part.log_predictive(natural, prior, values[:, part.places])
            mean, square = part.typical(natural, prior, there[:, part.places])
            average += mean
            variance += square
        deviation = np.sqrt(np.maximum(variance, np.finfo(np.float64).tiny))
        return np.asarray(((average - log_density) / deviation).min(axis=1))

    def _log_joint(self, values: FloatArray) -> FloatArray:
        out = np.tile(np.log(self.weights_), (len(values), 1))
        for part in self._parts:
            natural, prior = self.natural_[:, part.index], self.prior_[part.index]
            out += part.log_predictive(natural, prior, values[:, part.places])
        return out

    def _checked(self, X: Any) -> FloatArray:
        if not hasattr(self, "natural_"):
            raise KLFusionError("expected a fitted MixedMixture; call fit first")
        return self._encoded(X)

    def _encoded(self, X: Any) -> FloatArray:
        """Values of the expanded columns."""
        return self.schema_.expand(self.schema_.encoded(X))


def _features(parts: list[Part], standard: list[FloatArray]) -> FloatArray:
    """What k-means begins with: numbers of unit variance, and indicators of categories."""
    out = []
    for part, values in zip(parts, standard, strict=True):
        if part.columns[0].is_numeric:
            with np.errstate(invalid="ignore", divide="ignore"):
                count = np.maximum(np.count_nonzero(~np.isnan(values), axis=0), 1)
                centred = values - np.nansum(values, axis=0) / count
                deviation = np.sqrt(np.nansum(centred**2, axis=0) / count)
            out.append(np.nan_to_num(centred / np.where(deviation > 0, deviation, 1.0)))
        else:
            out.append(np.column_stack(part.statistics(values)))
    return np.hstack(out)
