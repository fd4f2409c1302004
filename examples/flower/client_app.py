"""A cellar: it has wines of two of three growers, and shows them to nobody."""

import numpy as np
from flwr.app import Context
from sklearn.datasets import load_wine
from sklearn.mixture import BayesianGaussianMixture
from sklearn.utils import Bunch

import klfusion as kf
from klfusion.federation.flower import fit_and_send

GROWERS = [(0, 1), (1, 2), (0, 2)]  # of each cellar: no cellar has all three
COLUMNS = ["alcohol", "flavanoids", "color_intensity", "od280/od315_of_diluted_wines", "proline"]


def columns(bunch: Bunch) -> np.ndarray:
    """Logarithms of five measurements of each wine, (n, 5)."""
    return np.log(bunch.data[:, [bunch.feature_names.index(name) for name in COLUMNS]])


def wines(cellar: int) -> np.ndarray:
    """Training wines of a cellar, no wine in two; every second wine of all is for testing."""
    bunch = load_wine()
    x, grower = columns(bunch)[::2], bunch.target[::2]
    mine = []
    for g in GROWERS[cellar]:
        owners = [i for i, growers in enumerate(GROWERS) if g in growers]
        mine.append(x[grower == g][owners.index(cellar) :: len(owners)])
    return np.concatenate(mine)


def fit(context: Context) -> BayesianGaussianMixture:
    """Fit two kinds of wine, with one public prior: scikit-learn's own is made from the data."""
    model = BayesianGaussianMixture(
        n_components=2,
        mean_prior=np.log([13.0, 2.0, 5.0, 2.5, 750.0]),
        mean_precision_prior=0.01,
        covariance_prior=0.1 * np.eye(len(COLUMNS)),
        degrees_of_freedom_prior=len(COLUMNS) + 2,
        n_init=3,
        max_iter=1000,
        random_state=0,
    )
    return model.fit(wines(int(context.node_config["cellar"])))


def refit(start: kf.Posterior, context: Context) -> BayesianGaussianMixture:
    """Fit again from the fused components, all of them: those not here end up without wines."""
    model = kf.adapters.rebuild(start)
    model.set_params(warm_start=True, max_iter=1000)
    return model.fit(wines(int(context.node_config["cellar"])))


def use(fused: kf.Posterior, context: Context) -> None:
    """Keep the fused model beside the data, if the node says where."""
    folder = context.node_config.get("results")
    if folder:
        kf.save(f"{folder}/{context.node_config['name']}-received.safetensors", fused)


app = fit_and_send(fit, refit=refit, use=use)
