"""What a fusion predicts, and draws of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from klfusion._utils.arrays import BoolArray, FloatArray
from klfusion._utils.checks import check_flag, check_integer, generator
from klfusion._utils.package import provided
from klfusion.errors import KLFusionError
from klfusion.families.draws import draws
from klfusion.families.gaussian import GaussianPosterior
from klfusion.fusion.predictive import Predictive, predictive
from klfusion.objective.divergences import problem_with_divergence
from klfusion.pooling.one_prior import observed_alone
from klfusion.pooling.pool import chosen, matched, pool
from klfusion.posteriors.compatibility import aligned_silos
from klfusion.posteriors.posterior import Posterior
from klfusion.posteriors.structure import regression
from klfusion.posteriors.structure.structure import is_point


class Predicting:
    """Methods of `Fusion` that predict."""

    posterior: Posterior
    labels: Any
    settings: Any
    probability: Any
    silos: tuple[Posterior, ...] | None

    def model(self, silo: str | None = None, *, predictive: bool = False) -> Any:
        """A fitted model of the library the silos used, ready to predict.

        Parameters
        ----------
        silo : str, optional
            Of a regression, whose coefficients: those of this silo, with its local ones; default:
            those of a new silo.
        predictive : bool
            The components are those of `predictive`, not the fused ones.
        """
        check_flag("predictive", predictive)
        if predictive and silo is not None:
            raise KLFusionError(
                f"expected predictive=True without a silo: it predicts for all, got {silo!r}"
            )
        return self.predictive().model() if predictive else provided("model")(self, silo)

    def predictive(self) -> Predictive:
        """The model of this size that predicts best from what the silos sent.

        Fused components are averages of matched ones, for their meaning. Here local components
        without their priors are shared out between global ones so that the likelihood is largest.
        For mixtures, HMMs and topics. Another size: ``fusion.at(n_components=...).predictive()``.

        Examples
        --------
        >>> import numpy as np, klfusion as kf
        >>> from sklearn.mixture import BayesianGaussianMixture
        >>> x = np.random.default_rng(0).normal(size=(200, 2)) + [[5.0, 0.0], [-5.0, 0.0]] * 100
        >>> fit = lambda x: BayesianGaussianMixture(n_components=2, random_state=0).fit(x)
        >>> fusion = kf.fuse({"a": fit(x[:100]), "b": fit(x[100:])})
        >>> fusion.predictive().responsibilities["b"].round(2)
        array([[1., 0.],
               [0., 1.]])
        >>> fusion.model(predictive=True).predict([[5.0, 0.0], [-5.0, 0.0]])
        array([0, 1])
        """
        seed, weights = self.settings.random_state, self.settings.weights
        silos, size = self._sent("predictive"), self.posterior.n_components
        return predictive(silos, self.labels, size, weights, seed)

    def posterior_draws(
        self, n: int = 1000, *, random_state: int | np.random.Generator = 0
    ) -> dict[str, FloatArray]:
        """Draws of the global components' parameters, the matching's uncertainty included.

        In each draw a local component is left out of its global one with the probability that it
        is not of it, ``1 - probability``, and the others are pooled. Where ``probability`` is
        None, the matching is taken as it is.

        Parameters
        ----------
        n : int
            Number of draws.
        random_state : int or numpy.random.Generator

        Returns
        -------
        mapping of str to array (n, n_components, ...)
            Such as ``mean`` and ``precision`` of Gaussian components. Of a regression, arrays (n,)
            by coefficient.

        Examples
        --------
        >>> import klfusion as kf
        >>> rates = kf.families.Gamma()
        >>> shapes = {"a": [30, 900], "b": [910, 32], "c": [31, 250]}
        >>> silos = {n: kf.Posterior(rates, rates.natural(s, [10, 10])) for n, s in shapes.items()}
        >>> rate = kf.fuse(silos).posterior_draws(500)["rate"]
        >>> rate.shape, rate.mean(axis=0).ravel().round(0)
        ((500, 3, 1), array([ 3., 91., 25.]))
        """
        check_integer("n", n)
        rng = generator(random_state)
        members, which = np.unique(self._members(n, rng), axis=0, return_inverse=True)
        silos = [] if members.all() else self._sent("posterior_draws")
        numbers, parts = np.bincount(which.ravel()), []
        for own, number in zip(members, numbers.tolist(), strict=True):
            natural = self.posterior.natural if own.all() else self._pooled(silos, own)
            natural = self._without_comparison(natural)
            parts.append(draws(self.posterior.family, natural, number, rng))
        order = np.argsort(np.argsort(which.ravel(), kind="stable"), kind="stable")
        found = {key: np.concatenate([part[key] for part in parts])[order] for key in parts[0]}
        structure = self.posterior.structure
        if structure is None or structure.kind != regression.KIND:
            return found
        return dict(zip(structure.info["coordinates"], found["value"][:, 0].T, strict=True))

    def _without_comparison(self, natural: FloatArray) -> FloatArray:
        """Point estimates without the prior by which silos were compared, as uncertain as they are.

        It is as wide as all data, so covariances would be too large.
        """
        family = self.posterior.family
        if not is_point(self.posterior.structure) or not isinstance(family, GaussianPosterior):
            return natural
        alone = observed_alone(self.posterior, natural)
        return family.relocated(alone, family.location(alone), family.location_covariance(natural))

    def _members(self, n: int, rng: np.random.Generator) -> BoolArray:
        """Whether each local component is of its global one, in each of n draws, (n, locals)."""
        labels = np.concatenate(self.labels)
        if self.probability is None:
            return np.ones((n, len(labels)), dtype=bool)
        sure = np.where(labels < 0, 1.0, np.concatenate(self.probability))
        found = rng.random((n, len(labels))) < sure
        for g in range(self.posterior.n_components):
            own = np.flatnonzero(labels == g)
            found[np.ix_(~found[:, own].any(axis=1), own)] = True  # none left: it is as it was
        return found

    def _pooled(self, silos: Sequence[Posterior], members: BoolArray) -> FloatArray:
        """Natural parameters of the global components, from some of their members."""
        divergence = self.settings.method.divergence
        edges = np.cumsum([len(own) for own in self.labels])[:-1]
        labels = np.split(np.where(members, np.concatenate(self.labels), -1), edges)
        units = matched(silos, labels, self.settings.weight_array())
        units = replace(units, problem=problem_with_divergence(units.problem, divergence))
        return pool(
            chosen(self.settings.pooling, silos, divergence), units, self.posterior.n_components
        )

    def _sent(self, what: str) -> list[Posterior]:
        """The silos, aligned; refused if the fusion does not hold them."""
        if self.silos is None:
            raise KLFusionError(
                f"{what} needs what the silos sent: expected a fusion made with "
                "keep_silos=True, got one without"
            )
        return aligned_silos(self.silos)
