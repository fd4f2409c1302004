"""What a fusion of regressions says besides: coefficients per silo, and how these differ."""

from typing import Any

from klfusion._utils.package import provided
from klfusion.posteriors.posterior import Posterior


class OfRegressions:
    """Methods of `Fusion` that need regressions."""

    def site(self, silo: str | None = None) -> Posterior:
        """All coefficients of a regression at one silo, shared and local; default: a new silo.

        Shared coefficients are those of the pooled data. With ``pooling="hierarchical"`` they vary,
        and a silo's own data count more for its own. Local coefficients are those its data give
        beside them. Those of a new silo vary as the silos' do.

        Parameters
        ----------
        silo : str, optional

        Examples
        --------
        >>> import numpy as np, klfusion as kf
        >>> names, local, silos = ["intercept", "age"], ["intercept"], {}
        >>> for name, mean in {"a": [-1.0, 0.4], "b": [2.0, 0.6]}.items():
        ...     cov = [[0.2, -0.05], [-0.05, 0.1]]
        ...     silos[name] = kf.coefficients(mean, cov, names, name=name, local=local)
        >>> site = kf.fuse(silos).site("b")
        >>> dict(zip(site.structure.info["coordinates"], site.params()["mean"][0].round(3)))
        {'age': np.float64(0.5), 'intercept': np.float64(2.05)}
        """
        result: Posterior = provided("site")(self, silo)
        return result

    def heterogeneity(self) -> dict[str, Any]:
        """How shared coefficients of a regression differ between silos: a meta-analysis of each.

        By coefficient, a `klfusion.pooling.meta_analysis.MetaAnalysis` with ``estimate`` and
        ``interval`` (random effects after Paule and Mandel, corrected for few silos after Hartung,
        Knapp, Sidik and Jonkman), ``prediction_interval``, ``tau2``, ``i2``, ``q`` and
        ``q_p_value``. Priors are left out, and so are
        silos whose data say less about a coefficient than the prior. The report draws forest plots.

        Examples
        --------
        >>> import numpy as np, klfusion as kf
        >>> means = {"a": 0.2, "b": 0.9, "c": 0.5}
        >>> silos = [kf.coefficients([m], [[0.04]], ["dose"], name=n) for n, m in means.items()]
        >>> dose = kf.fuse(silos).heterogeneity()["dose"]
        >>> round(dose.q, 2), round(dose.i2, 2), round(dose.tau2, 3)
        (6.17, 0.68, 0.083)
        """
        result: dict[str, Any] = provided("heterogeneity")(self)
        return result
