"""A federation with a bad message.

Three cellars send a posterior of their wines; the message of a fourth arrives cut short. The server
sets it aside, says why, and fuses the rest.

Each cellar has wines of two of three growers. The picture shows the fused model over new wines of
all three. A folder, Flower or NVFlare carries the same messages between machines.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.mixture import BayesianGaussianMixture

from klfusion.federation import Reply, Round, Server, Site

x, grower = load_wine(return_X_y=True)
x, part = np.log(x[:, [6, 12]]), np.arange(len(x)) % 4  # flavanoids and proline
growers = {"cellar-1": [0, 1], "cellar-2": [1, 2], "cellar-3": [0, 2], "cellar-4": [0, 1]}


def fit(site):
    mine = (part == int(site.name[-1]) % 3) & np.isin(grower, growers[site.name])
    prior = {"mean_prior": [0.5, 6.5], "covariance_prior": 0.1 * np.eye(2), "random_state": 0}
    return BayesianGaussianMixture(n_components=2, **prior).fit(x[mine])


wines = Round(name="wines", fit=fit)
server = Server(wines)
for name in growers:
    message = wines.reply(Site(name))
    server.receive(name, Reply(message.data[:-8]) if name == "cellar-4" else message)
model = server.fuse().model()
print(server.fusion, *server.left_out, sep="\n")

circle = np.stack([f(np.linspace(0, 2 * np.pi, 100)) for f in (np.cos, np.sin)])
outlines = model.means_[:, :, None] + 2 * np.linalg.cholesky(model.covariances_) @ circle
plt.scatter(*x[part == 3].T, c=[f"C{g}" for g in grower[part == 3]], s=12)
plt.plot(*np.moveaxis(outlines, 0, -1), "0.3")
plt.savefig("federation.png")
