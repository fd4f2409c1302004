"""What a fusion of draws gives back: draws, and the prior of the next model."""

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
            Of PyMC and NumPyro, a function to be called within a model. It samples one Normal
            vector named ``"fused"`` and returns the variables by name. Of Stan, a program to
            which data and likelihood are added.

        Examples
        --------
        >>> import numpy as np, klfusion as kf
        >>> rng = np.random.default_rng(0)
        >>> own = {name: {"sigma": rng.lognormal(0.0, 0.1, (4, 500))} for name in "ab"}
        >>> silos = [kf.from_draws(draws, name=name) for name, draws in own.items()]
        >>> print(kf.fuse(silos).as_prior("stan").splitlines()[-6])
          sigma = 0.0 + exp(fused[1]);
        """
        return provided("as_prior")(self, library, silo)
