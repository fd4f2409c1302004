"""Noise that intervals include.

Ten hospitals relate a dose to recovery. Each adds noise to its sums, for a privacy budget of its
own, and sends them. The fused posterior includes the noise: with less budget intervals are wider,
and they still hold the true effect, the dashed line.

Noise has a seed here, so that the picture stays the same. `kf.privatize` refuses seeds otherwise.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import LinearRegression

import klfusion as kf
from klfusion.privacy.mechanism import seeds_allowed

rng, data, silos = np.random.default_rng(0), {}, []
for name in "ABCDEFGHIJ":
    x = pd.DataFrame(rng.uniform(-1, 1, size=(400, 2)), columns=["dose", "age"])
    data[name] = x, 0.8 * x["dose"] - 0.4 * x["age"] + rng.uniform(-0.5, 0.5, size=400)
bounds = {"dose": (-1, 1), "age": (-1, 1), "y": (-2, 2)}  # known before any patient came
panel = plt.subplots(figsize=(6, 3.2), layout="constrained")[1]
for row, epsilon in enumerate([0.1, 0.5, 1.0, 2.0, 5.0, 10.0]):
    with seeds_allowed():
        silos = [
            kf.privatize(
                LinearRegression(), name=name, data=own, epsilon=epsilon, delta=1e-5,
                bounds=bounds, prior_sd=1.0, random_state=[7, row, k],
            )
            for k, (name, own) in enumerate(data.items())
        ]  # fmt: skip
    found = kf.fuse(silos).posterior.params()
    mean, sd = found["mean"][0, 1], found["covariance"][0, 1, 1] ** 0.5
    print(f"epsilon {epsilon:4.1f}: effect of the dose {mean:.1f}, deviation {sd:.1g}")
    panel.errorbar(row, mean, 1.96 * sd, fmt="sC0", capsize=4)
panel.axhline(0.8, ls="--", c="k", lw=1)
panel.set(xticks=range(6), xticklabels=[0.1, 0.5, 1, 2, 5, 10], xlabel="epsilon", ylabel="effect")
plt.savefig("private.png")
