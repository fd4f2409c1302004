"""Meaning or prediction.

Six sites have data along a curve. There are no clusters, so each site cuts it in its own places.
Fused components, on the left, are those that match. They are wide where sites cut differently. On
the right, `fusion.model(predictive=True)` shares local components out between as many global ones,
so that the likelihood is largest. It uses nothing but what was sent.

Use `fusion.model()` for components that mean something, `predictive=True` for densities.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.mixture import BayesianGaussianMixture

import klfusion as kf

rng = np.random.default_rng(0)
angle = rng.uniform(0.0, 1.5 * np.pi, size=(7, 300))
curve = 6.0 * np.stack([np.cos(angle), np.sin(angle)], axis=2)
*sites, new = curve + rng.normal(scale=0.4, size=(7, 300, 2))
fits = {}
for j, x in enumerate(sites):
    model = BayesianGaussianMixture(n_components=5, random_state=j, max_iter=500)
    fits[f"site {j}"] = model.fit(x)
fusion = kf.fuse(fits)
models = {"fusion.model()": fusion.model(), "predictive=True": fusion.model(predictive=True)}
for name, model in models.items():
    print(f"{name:16} {model.score(new):.1f} nats per new observation")
share = fusion.predictive().responsibilities["site 0"][0]
print(f"component 0 of site 0 went to component {share.argmax()} for the most part")

panels = plt.subplots(1, 2, figsize=(8, 4), sharex=True, sharey=True, layout="constrained")[1]
turn = np.linspace(0, 2 * np.pi, 100)
circle = np.stack([np.cos(turn), np.sin(turn)])
for panel, (name, model) in zip(panels, models.items()):
    panel.scatter(*new.T, s=3, color="0.8")
    for outline in model.means_[:, :, None] + 2 * np.linalg.cholesky(model.covariances_) @ circle:
        panel.plot(*outline, lw=2)
    panel.set(title=name, aspect="equal")
plt.savefig("predictive.png")
