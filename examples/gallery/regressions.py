"""Regressions with a forest plot.

Five hospitals relate a drug's dose and a patient's age to recovery. Shares of recovery differ
between hospitals, so intercepts are local. The effect of the dose varies, that of age does not.

Squares are the hospitals' own estimates, with 95 % intervals. The diamond is the mean over
hospitals, the thick line where the coefficient of a new hospital lies with probability 95 %.

`kf.extract` reads the data at the hospital to get the precision of the coefficients.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

import klfusion as kf

rng, silos = np.random.default_rng(3), []
for name, dose, n in zip("ABCDE", [0.2, 1.6, 0.9, 1.3, 0.5], [150, 300, 250, 600, 400]):
    x = pd.DataFrame(rng.normal(size=(n, 2)), columns=["dose", "age"])
    logit = rng.normal() + dose * x["dose"] - 0.7 * x["age"]
    y = (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(int)
    own = {"data": (x, y), "local": ["intercept"]}
    silos.append(kf.extract(LogisticRegression(), name=f"hospital {name}", **own))
fusion = kf.fuse(silos, pooling="hierarchical")
panels = plt.subplots(1, 2, figsize=(8, 3), sharey=True, layout="constrained")[1]
for panel, (name, found) in zip(panels, fusion.heterogeneity().items()):
    print(f"{name}: tau2 {found.tau2:.3f}, I2 {found.i2:.0%}, Q {found.q:.1f}")
    for row, (middle, ends) in enumerate(zip(found.estimates, found.intervals)):
        panel.plot(ends, [-row, -row], "k", lw=1)
        panel.plot(middle, -row, "sC0", ms=16 * found.weights[row] ** 0.5)
    low, high = found.interval
    panel.fill([low, found.estimate, high, found.estimate], [-5, -4.7, -5, -5.3], "C1")
    panel.plot(found.prediction_interval, [-5.8, -5.8], "C1", lw=4)
    panel.set(title=name, yticks=[0, -1, -2, -3, -4, -5, -5.8], xlabel="log odds ratio")
    panel.set_yticklabels([*found.silos, "mean", "new hospital"])
plt.savefig("regressions.png")
