"""Who contributed what.

Eight sites have images of handwritten digits, three digits each. Each site fits a mixture to the
low frequencies of its images. No site says which of its components is which digit.

The top row shows the mean of each global component. Each row below shows what one site contributed:
the mean of its component that was matched. An empty place means that the site contributed nothing.

Use `fusion.sources(g)` or `fusion.contributions` to trace a global component to its silos.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.fft import dctn, idctn
from sklearn.datasets import load_digits
from sklearn.mixture import BayesianGaussianMixture

import klfusion as kf

images, digit = load_digits().images, load_digits().target
low = np.add.outer(range(8), range(8)) < 5  # 15 of 64 frequencies
x = dctn(images, axes=(1, 2), norm="ortho")[:, low]
prior = {"mean_prior": np.zeros(15), "covariance_prior": 64 * np.eye(15)}  # the same everywhere
models = {}
for j in range(8):
    own = [np.flatnonzero(digit == (j + k) % 8)[i::3] for i, k in enumerate([0, 1, 3])]
    mixture = BayesianGaussianMixture(n_components=3, n_init=5, random_state=0, **prior)
    models[f"site {j}"] = mixture.fit(x[np.concatenate(own)])
fusion = kf.fuse(models)
print(fusion.contributions)

panels = plt.subplots(9, fusion.n_components, figsize=(6, 7), layout="constrained")[1]
for g, mean in enumerate(fusion.model().means_):
    shown = {"fused": mean} | {name: models[name].means_[k] for name, k in fusion.sources(g)}
    for row, name in enumerate(["fused", *models]):
        spectrum = np.zeros((8, 8))
        spectrum[low] = shown.get(name, 0)
        panels[row, g].imshow(idctn(spectrum, norm="ortho"), cmap="gray_r", vmin=0, vmax=16)
        panels[row, g].set(xticks=[], yticks=[], ylabel="" if g else name)
plt.savefig("contributions.png")
