"""Hidden Markov models of four prices.

Four analysts follow one price or index each. Each fits a hidden Markov model to the monthly
changes. The model finds its number of states, which differ in their spread.

Each row shows the changes of one price, coloured by the states of the fused model. A colour means
the same in every row. A turbulent month of the S&P 500 is an ordinary month of Microsoft.

Use this when sites record sequences that pass through some of the same states.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.cbook import get_sample_data

import klfusion as kf

with get_sample_data("Stocks.csv") as file:
    table = np.genfromtxt(file, delimiter=",", names=True, skip_header=1, dtype=None, encoding=None)
table = table[~np.isnan(table["IBM"])]
names = {"IBM": "IBM", "MSFT": "Microsoft", "GSPC": "S&P 500", "IXIC": "Nasdaq"}
changes = {names[key]: 100 * np.diff(np.log(table[key]))[:, None] for key in names}
settings = {"n_components": 4, "S": [[100.0]], "mu0": [0.0], "n_init": 2, "random_state": 0}
models = {name: kf.learners.StickyHDPHMM(**settings).fit(x) for name, x in changes.items()}
fusion = kf.fuse(models)
model = fusion.model()

months = table["Date"][1:].astype("datetime64")
panels = plt.subplots(4, 1, figsize=(8, 6), sharex=True, sharey=True, layout="constrained")[1]
for panel, (name, x) in zip(panels, changes.items()):
    panel.vlines(months, 0, x, colors=[f"C{g}" for g in model.predict(x)], lw=1.5)
    panel.set(ylabel=name)
for g, variance in enumerate(model.covars_.ravel()):
    panels[2].plot([], [], f"C{g}", lw=6, label=f"{variance**0.5:.0f} %")
    print(f"standard deviation {variance**0.5:.0f} %:", *[name for name, _ in fusion.sources(g)])
panels[2].legend(ncols=3, title="standard deviation of the state", loc="lower right")
panels[0].set(title="Monthly changes in per cent, coloured by the state of the fused model")
plt.savefig("hmm.png")
