"""Mixtures of hospitals.

Three hospitals measure breast tumours. The screening unit has benign tumours only, the cancer
centre malignant ones only, the general hospital a few of both. No record leaves its hospital.

The first three panels show each hospital's records and its mixture. The last panel shows the fused
model over new tumours, which no hospital predicts as well. A colour is one global component.

Start here: scikit-learn fits, with the same prior everywhere, and `kf.fuse` runs with defaults.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.mixture import BayesianGaussianMixture

import klfusion as kf

x, benign = load_breast_cancer(return_X_y=True)
x, sixth = np.log(x[:, [20, 24]]), np.arange(len(x)) % 6  # largest radius and smoothness
rows = {"screening unit": (sixth < 2) & (benign == 1), "cancer centre": (sixth < 2) & (benign == 0)}
rows |= {"general hospital": sixth == 2, "fused model": sixth > 2}
settings = {"mean_prior": [2.7, -2.0], "covariance_prior": 0.05 * np.eye(2), "random_state": 0}
models = {}
for name, size in {"screening unit": 1, "cancer centre": 1, "general hospital": 2}.items():
    models[name] = BayesianGaussianMixture(n_components=size, **settings).fit(x[rows[name]])
fusion = kf.fuse(models)
models["fused model"] = fusion.model()

angle = np.linspace(0, 2 * np.pi, 100)
circle = np.stack([np.cos(angle), np.sin(angle)])
panels = plt.subplots(1, 4, figsize=(10, 3), sharex=True, sharey=True, layout="constrained")[1]
for panel, (name, model), labels in zip(panels, models.items(), [*fusion.labels, [0, 1]]):
    print(f"{name}: log-likelihood {model.score(x[sixth > 2]):.2f} per new tumour")
    panel.scatter(*x[rows[name]].T, s=6, color="0.7")
    outlines = model.means_[:, :, None] + 2 * np.linalg.cholesky(model.covariances_) @ circle
    for outline, g in zip(outlines, labels):
        panel.plot(*outline, f"C{g}", lw=2)
    panel.set(title=name, xlabel="log radius")
plt.savefig("hospitals.png")
