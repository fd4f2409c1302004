"""What a fusion of draws gives back: draws, and the prior of the next model."""

from collections.abc import Mapping
from typing import Any

from klfusion._utils.package import provided


class OfDraws:
    """Methods of `Fusion` that need posteriors of draws."""

    def to_inference_data(
        self,
        draws: int = 1000,
        *,
        chains: int = 4,
        silo: str | None = None,
        random_state: Any = 0,
    ) -> Any:
        """Draws of the fused posterior as ArviZ has them: in the space of the variables.

        They have the dims and coords of the silos' draws. They are independent, so chains differ
        in name only. Needs ``pip install 'klfusion[draws]'``.

        Parameters
        ----------
        draws : int
            Of each chain.
        chains : int
        silo : str, optional
            Whose local variables to include; default: shared variables only.
        random_state : int

        Returns
        -------
        arviz.InferenceData
            A DataTree with ArviZ 1.
        """
        given = (draws, chains, silo, random_state)
        return provided("to_inference_data")(self, *given)

    def proposals(self, draws: int = 2000, *, random_state: Any = 0) -> dict[str, Any]:
        """Points for one more round: values of all variables, at which silos are asked.

        Each silo evaluates the log-likelihood of its data at every point; see `reweighted`.
        Equal states give equal points, so a silo needs the fusion alone.

        Parameters
        ----------
        draws : int
            Number of points.
        random_state : int

        Returns
        -------
        mapping of name to array (draws, ...)
        """
        result: dict[str, Any] = provided("proposals")(self, draws, random_state)
        return result

    def reweighted(
        self,
        log_likelihoods: Mapping[str, Any],
        *,
        prior: Any = None,
        draws: int = 2000,
        random_state: Any = 0,
    ) -> Any:
        """The fusion after one more round: importance weights correct the Normals of the silos.

        Parameters
        ----------
        log_likelihoods : mapping of silo to array (draws,)
            At the points of `proposals`, without the prior.
        prior : mapping of name to prior, or one for all variables, optional
            As for `klfusion.from_draws`; default: flat.
        draws, random_state
            As for `proposals`.

        Returns
        -------
        Fusion
            Its posterior has the moments of the weighted points. ``provenance["effective"]`` is
            the effective sample size.

        Examples
        --------
        >>> import numpy as np, klfusion as kf
        >>> rng = np.random.default_rng(0)
        >>> data = {"a": rng.poisson(3.0, 9), "b": rng.poisson(3.0, 5)}
        >>> silos = [kf.from_draws({"rate": rng.gamma(y.sum() + 1, 1 / len(y), (4, 500))}, name=n)
        ...          for n, y in data.items()]
        >>> fusion = kf.fuse(silos)
        >>> rate = fusion.proposals()["rate"]
        >>> exact = fusion.reweighted({n: y.sum() * np.log(rate) - len(y) * rate
        ...                            for n, y in data.items()})
        >>> expected = (np.concatenate([*data.values()]).sum() + 1) / 14
        >>> round(float(np.exp(exact.posterior.params()["mean"][0, 0]) / expected), 1)
        1.0
        """
        given = (log_likelihoods, prior, draws, random_state)
        return provided("reweighted")(self, *given)

    def as_prior(self, library: str, *, silo: str | None = None) -> Any:
        """The fused posterior as the prior of another model, correlations included.

        Parameters
        ----------
        library : {"pymc", "numpyro", "stan"}
        silo : str, optional
            Whose local variables to include; default: shared variables only.

        Returns
        -------
        function or str
            Of PyMC and NumPyro, a function to be called within a model. It samples one standard
            Normal vector, ``"fused_z"``, and returns the variables by name. Of Stan, a program to
            which data and likelihood are added.

        Examples
        --------
        >>> import numpy as np, klfusion as kf
        >>> rng = np.random.default_rng(0)
        >>> own = {name: {"sigma": rng.lognormal(0.0, 0.1, (4, 500))} for name in "ab"}
        >>> silos = [kf.from_draws(draws, name=name) for name, draws in own.items()]
        >>> print(kf.fuse(silos).as_prior("stan").splitlines()[-5])
          sigma = 0.0 + exp(fused[1]);
        """
        return provided("as_prior")(self, library, silo)
