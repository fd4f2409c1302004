"""More rounds.

Eight sites cluster their images of digits. In each further round a site gets the global clusters as
its start, and what the other sites found as its prior. Then it refits and answers again.

The curve shows how far the global clusters are from those of all images in one place. The second
round removes most of that distance. Use this when silos can answer more than once.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import softmax
from sklearn.datasets import load_digits

import klfusion as kf

x = np.random.default_rng(0).permutation(load_digits().data // 8)  # ink per pixel, from 0 to 2
family = kf.families.Dirichlet(64)
prior = family.natural(concentration=np.full((10, 64), 0.5))


def fit(images, start, given):
    natural = prior + images[:10] if start is None else start.natural
    for _ in range(100):
        ink = family.params(natural)["concentration"]
        share = softmax(images @ np.log(ink.T / ink.sum(axis=1)), axis=1)
        natural = (prior if given is None else given) + share.T @ images
    return kf.Posterior(family, natural, prior=prior[0])


sites = {f"site {j}": lambda *sent, j=j: fit(x[j::8], *sent) for j in range(8)}
refined = kf.refine_rounds(sites, rounds=6, n_components=10)
pooled = fit(x, refined.posterior, None).natural
kl = [np.diag(family.kl(found.natural, pooled)).mean() for found in refined.rounds]
print("nats per cluster after each round:", *np.round(kl, 1))

plt.semilogy(range(1, 7), kl, "o-")
title = "Distance to the fit of all images in one place"
plt.gca().set(title=title, xlabel="round", ylabel="KL divergence (nats per cluster)")
plt.savefig("rounds.png")
