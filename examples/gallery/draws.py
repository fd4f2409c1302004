"""Draws with switched labels.

Three hospitals sample a mixture of patients with MCMC. Labels of components switch from draw to
draw, so averages of draws mean nothing: the left picture.

`kf.from_draws` undoes it at each hospital. `kf.fuse` then matches components of hospitals, the
right picture, where the third hospital lacks one. Circles hold half of each posterior.
"""

import matplotlib.pyplot as plt
import numpy as np

import klfusion as kf

rng = np.random.default_rng(2)
kinds = np.array([[-2.0, 0.0], [0.0, 2.0], [2.0, 0.0]])
sees = {"hospital A": [0, 1, 2], "hospital B": [0, 1, 2], "hospital C": [1, 2]}
dims, draws, silos = {"mu": ["component", "column"]}, {}, []
for name, own in sees.items():
    centre = kinds[own] + 0.15 * rng.normal(size=(len(own), 2))
    mu = rng.normal(centre, 0.2, (4, 250, len(own), 2))  # chains, draws, components, columns
    order = rng.permuted(np.tile(np.arange(len(own)), (4, 250, 1)), axis=2)
    draws[name] = {"mu": np.take_along_axis(mu, order[..., None], axis=2)}
    silos.append(kf.from_draws(draws[name], name=name, components="component", dims=dims))
fusion = kf.fuse(silos)
print(fusion.n_components, "components;", silos[0].provenance["findings"][0])
left, right = plt.subplots(1, 2, figsize=(8, 3.6), sharey=True, layout="constrained")[1]
for k in range(3):
    left.plot(*draws["hospital A"]["mu"][:, ::5, k].reshape(-1, 2).T, ".", c=f"C{k}", ms=3)
left.set(title="draws of hospital A by label", aspect="equal")
for j, silo in enumerate(silos):
    for mean, k in zip(silo.params()["mean"], fusion.labels[j]):
        right.add_patch(plt.Circle(mean, 0.235, fill=False, ec=f"C{k}", ls=["-", "--", ":"][j]))
for k, mean in enumerate(fusion.posterior.params()["mean"]):
    right.plot(*mean, "o", c=f"C{k}")
right.set(title="relabelled, matched and fused", aspect="equal", xlim=(-3, 3), ylim=(-1.2, 3))
plt.savefig("draws.png")
