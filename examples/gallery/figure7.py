"""Figure 7 of the paper.

Ten silos draw data from two or three of three Gaussian components, which differ a little from silo
to silo. On the left are the components that the silos fitted. Components of one cluster have one
colour. On the right are the fused and the true components. The size is found, not given.

This is figure 7 of Claici, Yurochkin, Ghosh and Solomon (ICML 2020) in miniature.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.mixture import BayesianGaussianMixture

import klfusion as kf

rng = np.random.default_rng(7)
means = np.array([[-3.0, 0.0], [2.0, 0.5], [-0.5, -2.5]])
roots = np.array([[[1.5, 0.0], [-1.0, 0.8]], [[1.5, 0.0], [0.4, 0.6]], [[0.8, 0.0], [-0.6, 1.5]]])
settings = {"mean_prior": [0.0, 0.0], "covariance_prior": np.eye(2), "n_init": 4, "random_state": 0}
models = {}
for j in range(10):
    own = rng.permutation(3)[: rng.integers(2, 4)]
    moved = means + 0.15 * rng.normal(size=(3, 2))
    x = [moved[k] + rng.normal(size=(150, 2)) @ roots[k].T for k in own]
    model = BayesianGaussianMixture(n_components=len(own), max_iter=500, **settings)
    models[f"silo {j}"] = model.fit(np.concatenate(x))
fusion = kf.fuse(models)
print(fusion.n_components, "clusters of", fusion.contributions.sum(axis=0), "local components")

angle = np.linspace(0, 2 * np.pi, 100)
circle = 2 * np.stack([np.cos(angle), np.sin(angle)])
left, right = plt.subplots(1, 2, figsize=(9, 4), sharex=True, sharey=True, layout="constrained")[1]
drawn = [*zip([left] * 10, models.values(), fusion.labels), (right, fusion.model(), range(3))]
for panel, model, labels in drawn:
    for mean, covariance, g in zip(model.means_, model.covariances_, labels):
        panel.plot(*(mean[:, None] + np.linalg.cholesky(covariance) @ circle), f"C{g}")
right.plot(*(means[:, :, None] + roots @ circle).transpose(1, 2, 0), "k--")
left.set(title="components of ten silos, by cluster")
right.set(title="fused components, and the true ones (dashed)")
plt.savefig("figure7.png")
