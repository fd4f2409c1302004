"""A hostile silo.

Six hospitals send mixtures of two kinds of tumours. The last one lies: it moves its components and
claims a hundred times the certainty that its records give.

On the left, the average follows the hostile hospital. On the right, `pooling="robust"` keeps the
fused model with the honest ones. `kf.diagnose` finds the hostile hospital.

Use this when you cannot vouch for every silo.
"""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.mixture import BayesianGaussianMixture

import klfusion as kf

x = np.log(load_breast_cancer().data[:, [20, 21]])  # largest radius and texture
settings = {"mean_prior": [2.7, 3.2], "covariance_prior": 0.05 * np.eye(2), "random_state": 0}
models = [BayesianGaussianMixture(n_components=2, max_iter=500, **settings) for _ in range(6)]
for j, model in enumerate(models):
    model.fit(x[j::6] + np.array([0.4 if j == 5 else 0, 0]))
sites = [kf.extract(model, name=f"hospital {j}") for j, model in enumerate(models)]
sites[5] = replace(sites[5], natural=100 * sites[5].natural)

angle = np.linspace(0, 2 * np.pi, 100)
circle = np.stack([np.cos(angle), np.sin(angle)])
panels = plt.subplots(1, 2, figsize=(9, 4), sharex=True, sharey=True, layout="constrained")[1]
for panel, pooling in zip(panels, ["average", "robust"]):
    fusion = kf.fuse(sites, n_components=2, pooling=pooling)
    for model, colour in zip([*models, fusion.model()], ["0.8"] * 5 + ["C3", "C0"]):
        outlines = model.means_[:, :, None] + 2 * np.linalg.cholesky(model.covariances_) @ circle
        panel.plot(*outlines.transpose(1, 2, 0), colour)
    panel.legend([panel.lines[k] for k in (0, 10, 12)], ["honest", "hostile", "fused"])
    panel.set(title=f'pooling="{pooling}"', xlabel="log radius", ylabel="log texture")
print("suspicious:", *{finding.silo for finding in kf.diagnose(fusion).findings})
plt.savefig("hostile.png")
