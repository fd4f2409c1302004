"""`BayesianHead`: a conjugate classifier on agreed features, exact for every partition."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError

from klfusion._utils.arrays import FloatArray, IntArray
from klfusion._utils.checks import check_columns, check_flag, column_names, naming_silo
from klfusion._utils.package import provenance
from klfusion._utils.text import brief
from klfusion.errors import KLFusionError
from klfusion.families import Normal
from klfusion.families.triangles import pack
from klfusion.fusion.result import Fusion
from klfusion.fusion.settings import FuseSettings
from klfusion.learners._head import (
    LinearPosterior,
    Softmax,
    Statistics,
    check_scales,
    design,
    linear_posterior,
    statistics,
)
from klfusion.learners._rows import batches, labels_of, mapped, n_rows, width
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import Structure
from klfusion.posteriors.structure.head import CALIBRATION, same_probe
from klfusion.posteriors.structure.kinds import NAMED, NAMES

_PROBE_SEED = 0
_MOST_CLASSES = 30  # whose calibration, of the fourth power of their number, stays below 4 MB


class _NotFittedHeadError(KLFusionError, NotFittedError):  # type: ignore[misc]
    """Of klfusion, and of scikit-learn."""


@dataclass(eq=False, repr=False)
class BayesianHead(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A Bayesian linear classifier on features that all sites compute in the same way.

    One-hot labels are regressed on the features: matrix Normal coefficients, inverse Wishart noise,
    and the ridge of the highest evidence. The posterior depends on counts and sums by class and on
    the scatter of the features. They add up, so the fused head is that of the pooled data, for
    every partition: one class per site, classes that one site alone has, sites of few rows.

    Parameters
    ----------
    features : transformer or function, optional
        The agreed feature map: an object with ``transform``, such as `ConvolutionalFeatures`,
        `FourierFeatures` or a fitted transformer that all sites have, or a function of rows, such
        as a module of PyTorch. Default: the columns themselves.

    Attributes
    ----------
    classes_ : array (c,)
    statistics_ : Statistics
        Counts (c,), sums (c, d) and squared norms (c,) by class; the scatter (d, d).
    coef_, intercept_ : arrays (c, d), (c,)
        Expected coefficients of the one-hot labels.
    posterior_ : LinearPosterior
        Mean and covariance of the coefficients, the noise, the ridge and its evidence.

    Examples
    --------
    >>> import numpy as np, klfusion as kf
    >>> from klfusion.learners import BayesianHead
    >>> rng = np.random.default_rng(0)
    >>> centres = {"a": [0.0, 0.0], "b": [4.0, 0.0], "c": [0.0, 4.0]}
    >>> x = {name: centre + rng.normal(size=(100, 2)) for name, centre in centres.items()}
    >>> sites = {f"site {k}": BayesianHead().fit(rows, [k] * 100) for k, rows in x.items()}
    >>> fusion = kf.fuse(sites)  # every site has one class
    >>> fusion.model().predict([[0, 0], [4, 0], [0, 4]])
    array(['a', 'b', 'c'], dtype='<U1')
    """

    features: Any = None

    def fit(self, X: Any, y: Any) -> Self:
        """Add up the statistics of rows X and labels y (n,)."""
        labels = labels_of(X, y)
        classes, row = np.unique(labels, return_inverse=True)
        self.feature_names_in_ = column_names(X)
        found = statistics(self._blocks(X, row), len(classes))
        return self.set_statistics(classes, found, n_inputs=width(X))

    def set_statistics(self, classes: Any, total: Statistics, n_inputs: int | None) -> Self:
        """Be the head of these sums over rows."""
        self.classes_, self.statistics_ = np.asarray(classes), total
        self.n_inputs_ = n_inputs
        self.softmax_: Softmax | None = None
        self.__dict__.pop("posterior_", None)
        self.probe_: FloatArray | None = None
        self._checked: Any = self.features  # the map that gave the sums
        return self

    def _check_fitted(self) -> None:
        if not hasattr(self, "statistics_"):
            raise _NotFittedHeadError("expected a fitted BayesianHead; call fit first")

    @cached_property
    def posterior_(self) -> LinearPosterior:
        """The posterior of the coefficients, computed when it is first used: sites send sums."""
        self._check_fitted()
        if self.features is None:
            check_scales(self.statistics_)
        return linear_posterior(self.statistics_)

    @property
    def coef_(self) -> FloatArray:
        """Expected coefficients (c, d)."""
        return self.posterior_.weights.T

    @property
    def intercept_(self) -> FloatArray:
        """Expected labels (c,) of a row of zeros."""
        return self.posterior_.shares - self.coef_ @ self.posterior_.centre

    def transform(self, X: Any) -> FloatArray:
        """The features (n, d) of rows."""
        return self._transformed(X, "rows")

    def _transformed(self, X: Any, what: str) -> FloatArray:
        expected = f"expected finite features (n, d) of {what}"
        found = X if self.features is None else mapped(self.features, X)
        found = found.toarray() if hasattr(found, "toarray") else found  # of a sparse matrix
        try:
            found = np.asarray(found, dtype=np.float64)
        except (TypeError, ValueError):
            got = f"{brief(found)}, not all of whose entries are numbers"
            raise KLFusionError(f"{expected}, got {got}") from None
        if found.ndim != 2 or found.shape[1] == 0 or not np.isfinite(found).all():
            wrong_shape = found.ndim != 2 or found.shape[1] == 0
            got = f"shape {found.shape}" if wrong_shape else "numbers that are not finite"
            raise KLFusionError(f"{expected}, got {got}")
        if len(found) != n_rows(X):
            raise KLFusionError(f"expected features of {n_rows(X)} rows, got {len(found)}")
        return found

    def probe(self) -> FloatArray:
        """Features of one agreed row of numbers in [0, 1], by which sites compare their maps.

        For rows of another kind, such as texts: a checksum of the names of the features, in four
        bytes, or nothing if the map has no names.
        """
        if self.n_inputs_ is None:
            if not hasattr(self.features, "get_feature_names_out"):
                return np.empty(0)
            words = "\n".join(map(str, self.features.get_feature_names_out()))
            return np.array([*zlib.crc32(words.encode()).to_bytes(4, "big")], dtype=np.float64)
        row: Any = np.random.default_rng(_PROBE_SEED).uniform(size=(1, self.n_inputs_))
        names = getattr(self.features, "feature_names_in_", None)
        if names is not None and len(names) == self.n_inputs_:  # a transformer of tables
            with suppress(ImportError):  # other tables than those of pandas
                import pandas as pd  # noqa: PLC0415 (an extra)

                row = pd.DataFrame(row, columns=names)
        return np.asarray(self._transformed(row, "one agreed row in [0, 1]")[0])

    def expect(self, probe: FloatArray) -> None:
        """Of a head from a file: what its map is to give for the agreed row."""
        self.probe_, self._checked = probe, ()

    def check_map(self) -> None:
        """Refuse another feature map than that of the rows, of a fused head by the agreed row."""
        if self._checked is self.features:
            return
        if self.probe_ is None:
            got = f"got {brief(self.features)}: call fit again"
            raise KLFusionError(f"expected the feature map that the head was fitted with, {got}")
        if not same_probe(self.probe_, self.probe()):
            got = "got different features of one agreed row"
            raise KLFusionError(f"expected the same feature map as that of the sites, {got}")
        self._checked = self.features

    def predict_proba(self, X: Any) -> FloatArray:
        """Class probabilities (n, c); uncertain coefficients of unfamiliar rows make them even."""
        self._check_fitted()
        nothing = np.empty((0, len(self.classes_)))
        return np.concatenate([nothing, *(self._probabilities(x) for x in self._features(X))])

    def predict(self, X: Any) -> Any:
        """The most probable class of each row."""
        probable = self.predict_proba(X).argmax(axis=1)
        return self.classes_[probable]

    def calibration(self, X: Any, y: Any, *, name: str, held_out: bool = False) -> Posterior:
        """What a site sends in a second, small round, after which probabilities are calibrated.

        It is a Normal posterior of a multinomial logistic regression of labels on the head's ``c``
        scores, expanded at the present coefficients: a gradient and an information matrix, which
        add up over sites. Scores of rows that the head was fitted to are those without the row.

        Parameters
        ----------
        X, y
            Rows and labels (n,).
        name : str
            Of the site.
        held_out : bool
            Whether the head was fitted without these rows.

        Examples
        --------
        >>> import numpy as np, klfusion as kf
        >>> from klfusion.learners import BayesianHead
        >>> x = np.random.default_rng(0).normal(size=(300, 2))
        >>> y = np.where(x[:, 0] > 0, "up", "down")
        >>> head = kf.fuse({"a": BayesianHead().fit(x, y)}).model()
        >>> head = head.calibrated(kf.fuse([head.calibration(x, y, name="a")]))
        >>> bool(head.predict_proba(x).max(axis=1).mean() > 0.8)
        True
        """
        self._check_fitted()
        check_flag("held_out", held_out)
        with naming_silo(name):
            n, gradient, information = self._expansion(X, y, held_out)
        start, now = Softmax.of_noise(self.posterior_), self._softmax()
        size = start.coefficients.size
        # The prior is as wide as the slope at the start.
        precision = np.eye(size) / start.coefficients[0, 0] ** 2
        family, at = Normal(size), now.coefficients.T.ravel()
        before = np.concatenate([precision @ start.coefficients.T.ravel(), pack(precision)])
        added = np.concatenate([information @ at + gradient.T.ravel(), pack(information)])
        info = {NAMES: [CALIBRATION], "settings": self._round()}
        return Posterior(
            family, (before + added)[None], name, before, np.array([float(n)]),
            Structure(NAMED, {}, info), provenance(),
        )  # fmt: skip

    def _expansion(self, X: Any, y: Any, held_out: bool) -> tuple[int, FloatArray, FloatArray]:
        """Number of rows, and the gradient and information of the present coefficients."""
        self._check_few_classes()
        labels = labels_of(X, y)
        unknown = sorted(set(labels.tolist()) - set(self.classes_.tolist()), key=str)
        if unknown:
            got = brief(unknown[0])
            raise KLFusionError(f"expected labels among the classes of the head, got {got}")
        row, now = np.searchsorted(self.classes_, labels), self._softmax()
        size = now.coefficients.size
        gradient, information = np.zeros_like(now.coefficients), np.zeros((size, size))
        for x, own in zip(self._features(X), batches(row), strict=True):
            scored = self.posterior_.scores(x) if held_out else self.posterior_.left_out(x, own)
            part = now.expansion(design(self.posterior_, *scored), own)
            gradient, information = gradient + part[0], information + part[1]
        return len(labels), gradient, information

    def calibrated(self, fusion: Fusion | Posterior) -> BayesianHead:
        """The head with the coefficients that the fusion of its sites' calibrations has.

        This is one step of Newton's method, shortened where the expansion would not hold. A second
        one, with `calibration` of the result, gains less.

        Parameters
        ----------
        fusion : Fusion or Posterior
            ``kf.fuse`` of what `calibration` of this head returned at each site, or its posterior,
            which is what a site of a federation receives.
        """
        self._check_fitted()
        given = fusion if isinstance(fusion, Posterior) else getattr(fusion, "posterior", None)
        posterior: Posterior | None = given
        info = {} if posterior is None or posterior.structure is None else posterior.structure.info
        if posterior is None or info.get(NAMES) != [CALIBRATION]:
            raise KLFusionError("expected a fusion of what calibration of this head returned")
        if isinstance(fusion, Fusion) and not _adds_up(fusion.settings):
            got = "calibrations are fused with pooling 'product' and without weights"
            raise KLFusionError(f"expected the sum of all sites' calibrations, got another: {got}")
        if info.get("settings") != self._round():
            raise KLFusionError(
                "expected calibrations of this head at its coefficients, got those of another head "
                "or another round"
            )
        k = len(self.classes_)
        mean = posterior.params()["mean"][0].reshape(k, k + 1).T
        found = copy(self)
        found.softmax_ = self._softmax().towards(mean, self.posterior_)
        return found

    def _check_few_classes(self) -> None:
        if not 2 <= len(self.classes_) <= _MOST_CLASSES:
            expected = f"expected 2 to {_MOST_CLASSES} classes to calibrate"
            raise KLFusionError(f"{expected}, got {len(self.classes_)}")

    def _round(self) -> dict[str, Any]:
        """What sites that calibrate in one round have in common; rounding may differ."""
        digits = " ".join(f"{value:.6g}" for value in self._softmax().coefficients.ravel())
        return {"classes": self.classes_.tolist(), "coefficients": zlib.crc32(digits.encode())}

    def _softmax(self) -> Softmax:
        return self.softmax_ or Softmax.of_noise(self.posterior_)

    def _probabilities(self, x: FloatArray) -> FloatArray:
        scored = self.posterior_.scores(x)
        if self.softmax_ is None:
            return self.posterior_.probabilities(*scored)
        return np.asarray(self.softmax_.probabilities(design(self.posterior_, *scored)))

    def _features(self, X: Any) -> Iterator[FloatArray]:
        check_columns(getattr(self, "feature_names_in_", None), X)
        self.check_map()
        expected = self.statistics_.sums.shape[1]
        for rows in batches(X):
            x = self.transform(rows)
            if x.shape[1] != expected:
                raise KLFusionError(f"expected {expected} features, got {x.shape[1]}")
            yield x

    def _blocks(self, X: Any, row: IntArray) -> Iterator[tuple[FloatArray, IntArray]]:
        yield from zip(map(self.transform, batches(X)), batches(row), strict=True)


def _adds_up(settings: FuseSettings) -> bool:
    """Whether the evidence of silos was added up."""
    return settings.pooled == "product" and set(settings.weights) == {1.0}
