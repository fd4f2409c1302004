"""Ten sites of one digit each.

Every site has images of a single digit. On features that all compute from an agreed seed, the
statistics of a Bayesian linear classifier add up. So the fused one is that of all images.

The picture compares confidence with accuracy on new images, after one round of communication and
after two small ones more, which calibrate the probabilities.
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
head = kf.fuse({s: BayesianHead(agreed).fit(x[own], y[own]) for s, own in rows.items()}).model()
versions = {"one round": head}
for number in ("two", "three"):
    sent = [head.calibration(x[own], y[own], name=site) for site, own in rows.items()]
    versions[f"{number} rounds"] = head = head.calibrated(kf.fuse(sent))

plt.figure(figsize=(5, 4), layout="constrained")
for name, version in versions.items():
    p = version.predict_proba(x[new])
    right, confidence = p.argmax(axis=1) == y[new], p.max(axis=1)
    parts = np.array_split(np.argsort(confidence), 8)
    points = [(confidence[part].mean(), right[part].mean()) for part in parts]
    plt.plot(*np.transpose(points), "o-", label=name)
    print(f"{name}: accuracy {right.mean():.2f}, confidence {confidence.mean():.2f}")
plt.plot([0.5, 1], [0.5, 1], color="grey", linewidth=0.5)
plt.xlabel("confidence")
plt.ylabel("accuracy")
plt.legend()
plt.savefig("skew.png")
