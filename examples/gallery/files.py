"""Files and the command line.

Three sites fit mixtures to images of digits. Each site saves what it sends in one small file. The
command `klfusion fuse` fuses the files wherever they meet.

The picture compares a site's images with its file. A file holds parameters and counts. The command
`klfusion inspect` lists all of it. Use this when the sites and whoever fuses do not share a Python
process.
"""

import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.mixture import BayesianGaussianMixture

import klfusion as kf

images, digit = load_digits(return_X_y=True)
settings = {"covariance_type": "diag", "mean_prior": np.full(64, 8.0), "random_state": 0}
sizes = {}
for j in range(3):
    own = images[j::3][np.isin(digit[j::3], [j, j + 1])]
    model = BayesianGaussianMixture(n_components=2, covariance_prior=np.full(64, 10.0), **settings)
    kf.save(f"site-{j}.safetensors", kf.extract(model.fit(own), name=f"site-{j}"))
    sizes[f"images of site {j}"] = own.nbytes / 1000
    sizes[f"file of site {j}"] = Path(f"site-{j}.safetensors").stat().st_size / 1000

files = sorted(Path().glob("site-*.safetensors"))
command = [sys.executable, "-m", "klfusion", "fuse", *files, "-o", "global.safetensors"]
subprocess.run(command, capture_output=True, check=True)
print(kf.load("global.safetensors").contributions)

plt.figure(figsize=(7, 3), layout="constrained")
plt.barh(list(sizes)[::-1], list(sizes.values())[::-1], color=["C0", "0.7"] * 3)
plt.title("What stays at a site, and what leaves it (kB)")
plt.savefig("files.png")
