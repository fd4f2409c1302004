"""A silo added and removed.

Three cellars have wines of two of three growers each. The fused model of north and south exists.
Then north withdraws, and nobody else has wines of its first grower. Later, east joins.

Each panel shows the fused model after one step, over all wines; a colour is a grower. Removing a
silo leaves exactly what the others sent. Adding one takes a single assignment.

Use this when silos come and go, or have the right to be forgotten.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.mixture import BayesianGaussianMixture

import klfusion as kf

x, grower = load_wine(return_X_y=True)
x, cellar = np.log(x[:, [6, 12]]), np.arange(len(x)) % 3
settings = {"mean_prior": [0.6, 6.5], "covariance_prior": 0.05 * np.eye(2), "random_state": 0}
models = {}
for j, (name, growers) in enumerate({"north": [0, 1], "south": [1, 2], "east": [0, 2]}.items()):
    own = x[(cellar == j) & np.isin(grower, growers)]
    models[name] = BayesianGaussianMixture(n_components=2, max_iter=500, **settings).fit(own)
east = models.pop("east")
steps = {"north and south": kf.fuse(models)}
steps["north is removed"] = steps["north and south"].remove("north")
steps["east is added"] = steps["north is removed"].add(east, name="east")

angle = np.linspace(0, 2 * np.pi, 100)
circle = np.stack([np.cos(angle), np.sin(angle)])
panels = plt.subplots(1, 3, figsize=(9, 3.2), sharex=True, sharey=True, layout="constrained")[1]
for panel, (title, fusion) in zip(panels, steps.items()):
    print(f"{title}: {fusion.n_components} components")
    means, roots = fusion.model().means_, np.linalg.cholesky(fusion.model().covariances_)
    panel.scatter(*x.T, s=6, c=grower)
    panel.plot(*(means[:, :, None] + 2 * roots @ circle).transpose(1, 2, 0), "k", lw=2)
    panel.set(title=title, xlabel="log flavanoids")
plt.savefig("add_remove.png")
