"""Over-fitted fits.

Three sites have data of the same three clusters. Nobody knows that there are three. Each site fits
six components, and clusters are split.

The first three panels show the six components of each site. Components of one colour went to the
same global component: `kf.fuse` merges components of a site where one describes the data as well.
The fused model on the right has one component per cluster.

Use this when sites cannot know their sizes and choose generous ones.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.mixture import GaussianMixture

import klfusion as kf

rng = np.random.default_rng(0)
centres = np.array([[-4.0, 0.0], [4.0, 0.0], [0.0, 5.0]])
data, models, sent = {}, {}, []
for name in ("site a", "site b", "site c"):
    x = centres[rng.integers(3, size=500)] + rng.normal(size=(500, 2)) @ [[1.0, 0.5], [0.0, 1.0]]
    data[name], models[name] = x, GaussianMixture(n_components=6, random_state=0).fit(x)
    sent.append(kf.extract(models[name], name=name, n_observations=len(x)))
fusion = kf.fuse(sent)
models["fused model"] = fusion.model()
print(sum(site.n_components for site in sent), "local components")
print(fusion.n_components, "global components")

angle = np.linspace(0, 2 * np.pi, 100)
circle = np.stack([np.cos(angle), np.sin(angle)])
panels = plt.subplots(1, 4, figsize=(10, 3), sharex=True, sharey=True, layout="constrained")[1]
for panel, (name, model), labels in zip(panels, models.items(), [*fusion.labels, [0, 1, 2]]):
    panel.scatter(*data.get(name, x[:0]).T, s=3, color="0.8")
    outlines = model.means_[:, :, None] + 2 * np.linalg.cholesky(model.covariances_) @ circle
    for outline, g in zip(outlines, labels):
        panel.plot(*outline, f"C{g}", lw=2)
    panel.set(title=f"{name}: {len(outlines)} components")
plt.savefig("overfitted.png")
