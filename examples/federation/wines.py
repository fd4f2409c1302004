"""Three cellars that may not share their wines make one model of them."""

import numpy as np
from sklearn.mixture import BayesianGaussianMixture

from klfusion.federation import Round, Site


def fit(site: Site) -> BayesianGaussianMixture:
    """Fit two kinds of wine to the table of a cellar."""
    x = np.loadtxt(f"{site.config['folder']}/{site.name}.csv", delimiter=",", skiprows=1)
    return BayesianGaussianMixture(n_components=2, n_init=5, max_iter=1000, random_state=0).fit(x)


ROUND = Round(name="wines", fit=fit, n_silos=3, timeout=120)

if __name__ == "__main__":  # NVFlare runs this file at each site
    from klfusion.federation.nvflare import run_site

    run_site(ROUND)
