"""Many silos.

A photograph is cut into 294 tiles. Each tile is a silo, which fits a mixture of two colours to its
own hundred pixels.

The left picture is the photograph. On the right, each pixel has the mean colour of its global
component. Eight colours, a number given to `kf.fuse`, describe the whole photograph.

The call is the same for five silos and for thousands of them.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_sample_image
from sklearn.mixture import GaussianMixture

import klfusion as kf

photograph = load_sample_image("flower.jpg")[:420:3, :630:3] / 255
tiles = photograph.reshape(14, 10, 21, 10, 3).swapaxes(1, 2).reshape(294, 100, 3)
silos = []
for number, pixels in enumerate(tiles):
    model = GaussianMixture(n_components=2, reg_covar=1e-3, random_state=0).fit(pixels)
    silos.append(kf.extract(model, name=f"tile {number}", n_observations=len(pixels)))
fusion = kf.fuse(silos, n_components=8)
model = fusion.model()
print("silos:", len(silos))
print("silos per global component:", *(fusion.contributions > 0).sum(axis=0))

colours = model.means_[model.predict(photograph.reshape(-1, 3))].reshape(photograph.shape)
panels = plt.subplots(1, 2, figsize=(7, 2.6), layout="constrained")[1]
panels[0].imshow(photograph)
panels[0].set(title="294 silos", xticks=[], yticks=[])
panels[1].imshow(colours)
panels[1].set(title="one model of eight colours", xticks=[], yticks=[])
plt.savefig("many_silos.png")
