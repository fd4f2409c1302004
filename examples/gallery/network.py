"""A network from five sites.

Five sites have images of four of the ten digits each. Each site trains a Bayesian neural network on
its own images and sends the posterior of its weights.

The picture shows the share of new images that each network recognises, digit by digit. The last row
is the fused network. It recognises all ten digits after one round of communication.

Use this for networks whose weights have independent Normal posteriors. It needs PyTorch.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import klfusion as kf

x, y = load_digits(return_X_y=True)
x, new = x / 16, np.arange(len(y)) % 3 == 0
networks = {}
for j in range(5):
    own = ~new & np.isin(y, [(2 * j + k) % 10 for k in range(4)])
    network = kf.learners.MeanFieldBNN(hidden=(20,), epochs=40, batch_size=100, learning_rate=0.02)
    networks[f"site {j}"] = network.fit(x[own], y[own])
networks["fused"] = kf.fuse(networks).model()

right = np.array([network.predict(x[new]) == y[new] for network in networks.values()])
table = np.array([right[:, y[new] == digit].mean(axis=1) for digit in range(10)]).T
for name, accuracy in zip(networks, right.mean(axis=1)):
    print(f"{name}: accuracy {accuracy:.1f}")

plt.figure(figsize=(8, 4), layout="constrained")
plt.imshow(table, cmap="Blues", vmin=0, vmax=1, aspect="auto")
for (row, digit), share in np.ndenumerate(table):
    plt.text(digit, row, f"{share:.0%}", ha="center", va="center", color="wk"[int(share < 0.5)])
plt.xticks(range(10))
plt.yticks(range(len(networks)), networks)
plt.title("Share of new images that each network recognises, by digit")
plt.savefig("network.png")
