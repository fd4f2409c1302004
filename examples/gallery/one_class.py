"""Sites of one class each.

Three growers have wines of their own only. None can train a classifier, for each has one class. The
statistics of a class add up, so the fused discriminant analysis is that of all wines in one place.

The first panel shows what each grower has. The second shows the regions of the fused model. Its
probabilities equal those of the model of the pooled wines.

Naive Bayes models and quadratic discriminant analyses are fused in the same way.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import klfusion as kf

x, grower = load_wine(return_X_y=True)
x = x[:, [0, 6]]  # alcohol and flavanoids
silos = [
    kf.extract(LinearDiscriminantAnalysis(), name=f"grower {g}", data=(x[grower == g], [g] * n))
    for g, n in enumerate(np.bincount(grower))
]
fused = kf.fuse(silos).model()
pooled = LinearDiscriminantAnalysis().fit(x, grower)
print(f"accuracy {fused.score(x, grower):.3f}, pooled {pooled.score(x, grower):.3f}")
largest = np.abs(fused.predict_proba(x) - pooled.predict_proba(x)).max()
print(f"largest difference of probabilities below 1e-10: {largest < 1e-10}")

panels = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True, layout="constrained")[1]
grid = np.stack(np.meshgrid(np.linspace(11, 15, 200), np.linspace(0, 5.5, 200)), axis=-1)
panels[1].contourf(*grid.T, fused.predict(grid.reshape(-1, 2)).reshape(200, 200).T, alpha=0.3)
for panel, title in zip(panels, ["what each grower has", "the fused model"]):
    for g in range(3):
        panel.scatter(*x[grower == g].T, s=10, color=plt.cm.viridis(g / 2), label=f"grower {g}")
    panel.set(title=title, xlabel="alcohol", ylabel="flavanoids")
panels[0].legend()
plt.savefig("one_class.png")
