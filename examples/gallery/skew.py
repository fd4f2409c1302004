"""Ten sites of one digit each.

Every site has images of a single digit. On features that all compute from an agreed seed, the
statistics of a Bayesian linear classifier add up. The fused classifier is that of all images in one
place.

The first panel compares confidence with accuracy on new images, after one round of communication
and after two small ones more, which calibrate the probabilities. The second shows the images of
which the classifier is least certain.

Use this for classifiers where sites have few classes each.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import klfusion as kf
from klfusion.learners import BayesianHead, ConvolutionalFeatures

x, y = load_digits(return_X_y=True)
x, new = x / 16, np.arange(len(y)) % 2 == 0
agreed = ConvolutionalFeatures(10, sides=(3,), stride=1, random_state=0)
rows = {f"site {k}": np.flatnonzero(~new & (y == k)) for k in range(10)}

heads = {site: BayesianHead(agreed).fit(x[own], y[own]) for site, own in rows.items()}
head = kf.fuse(heads).model()
versions = {"one round": head}
for _ in range(2):
    sent = [head.calibration(x[own], y[own], name=site) for site, own in rows.items()]
    head = head.calibrated(kf.fuse(sent))
versions["calibrated"] = head

panels = plt.subplots(1, 2, figsize=(8, 3.5), layout="constrained")[1]
for name, version in versions.items():
    p = version.predict_proba(x[new])
    right = p.argmax(axis=1) == y[new]
    order = np.array_split(np.argsort(p.max(axis=1)), 8)
    points = [(p[part].max(axis=1).mean(), right[part].mean()) for part in order]
    panels[0].plot(*np.transpose(points), "o-", label=name)
    print(f"{name}: accuracy {right.mean():.3f}, confidence {p.max(axis=1).mean():.3f}")
panels[0].plot([0, 1], [0, 1], color="grey", linewidth=0.5)
panels[0].set(xlim=(0.5, 1.01), ylim=(0.5, 1.01), xlabel="confidence", ylabel="accuracy")
panels[0].legend()
doubtful = np.argsort(p.max(axis=1))[:20]
panels[1].imshow(
    np.block([[*x[new][row].reshape(-1, 8, 8)] for row in doubtful.reshape(4, 5)]), cmap="Greys"
)
panels[1].set(title="least certain", xticks=[], yticks=[])
plt.savefig("skew.png")
